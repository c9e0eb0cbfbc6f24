// SPDX-License-Identifier: Apache-2.0
// The extended interface: work posted through the function pointers of ibv_qp_ex (ibv_wr_start …) and polled
// through those of ibv_cq_ex (ibv_start_poll …). The pointers are ours from the creation of the object on.
// With nothing to do they call the provider's; else a post is written down as an ibv_send_wr and goes the way
// of ibv_post_send, and a poll takes what Context::poll_cq shows, so that no fault needs to know which
// interface a program uses.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace faultinject {

struct Slot;

struct ExtendedQp;
struct ExtendedCq;

// After the real ibv_create_qp_ex with send operations. Before the real ibv_destroy_qp it is taken away, as
// the address may come again at once, and put back if that fails. nullptr is nothing.
void extended_adopt(ibv_qp_ex* qp, Slot& slot);
std::shared_ptr<ExtendedQp> extended_take(const ibv_qp* qp);
void extended_put_back(const std::shared_ptr<ExtendedQp>& qp);

// Posts one WR to a queue pair that was adopted, through the provider's own functions. 0 or an errno: ENOMEM
// also while another thread is in the middle of a post. `known` is false, and nothing is done, for any other
// queue pair.
int extended_post(ibv_qp* qp, const ibv_send_wr& wr, bool& known);

// What the provider left out stays out: it does not serve it on this object.
template <typename Function>
void replace(Function*& pointer, Function* by) {
  if (pointer != nullptr) pointer = by;
}

// Around a fork(): in the child, too, the tables of these objects are whole and free.
void extended_lock_qps();
void extended_unlock_qps();
void extended_lock_cqs();
void extended_unlock_cqs();

void extended_adopt(ibv_cq_ex* cq, Slot& slot);
std::shared_ptr<ExtendedCq> extended_take(const ibv_cq* cq);
void extended_put_back(const std::shared_ptr<ExtendedCq>& cq);

}  // namespace faultinject
