// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/post_send.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/vhca/queues/flows.h"
#include "harness/vhca/queues/pacing.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/send_queue.h"

namespace vhca {

int begin_entry(Qp& qp, std::uint64_t index, ibv_wr_opcode opcode) {
  if (index - qp.send_tail.load(std::memory_order_acquire) >= qp.init.cap.max_send_wr) return ENOMEM;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (is_datagram(qp)) return EINVAL;
      break;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if (!qp.is_reliable()) return EINVAL;
      break;
    default:
      return EOPNOTSUPP;
  }
  SendEntry& e = qp.send_entry(index);
  e = {};
  e.opcode = opcode;
  if (is_datagram(qp)) e.datagram.port = kNoPort;  // until it is given an address
  return 0;
}

int set_datagram_target(Qp& qp, SendEntry& e, const ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
  if (!ah) return EINVAL;
  const auto& to = *static_cast<const AddressHandle*>(ah);
  DatagramTarget& target = e.datagram;
  target = {};
  target.source_port = qp.shared->port;
  target.port = to.port;
  target.number = number;
  // A Q_Key with the highest bit set stands for the QP's own.
  target.qkey = qkey >> 31 ? qp.shared->qkey.load(std::memory_order_relaxed) : qkey;
  target.grh_word = 6u << 28 | static_cast<std::uint32_t>(to.attr.grh.traffic_class) << 20 |
                    (to.attr.grh.flow_label & 0xfffff);
  target.sl = to.attr.sl;
  target.hop_limit = to.attr.grh.hop_limit;
  target.source_gid = to.attr.grh.sgid_index;
  target.target_gid = to.target_gid;
  target.has_grh = to.attr.is_global != 0;
  if (to.port != kNoPort) target.flow = datagram_flow(qp, to.port, number);
  return 0;
}

int set_inline_data(Qp& qp, std::uint64_t index, const void* data, std::size_t bytes) {
  SendEntry& e = qp.send_entry(index);
  if (e.length + bytes > qp.init.cap.max_inline_data) return EINVAL;
  e.is_inline = true;
  if (bytes != 0)
    std::memcpy(&qp.inline_data[(index & qp.send_mask) * qp.init.cap.max_inline_data + e.length], data,
                bytes);
  e.length += bytes;
  return 0;
}

int set_pieces(Qp& qp, std::uint64_t index, const ibv_sge* list, std::size_t count) {
  if (count > qp.init.cap.max_send_sge) return EINVAL;
  SendEntry& e = qp.send_entry(index);
  e.sge_count = static_cast<std::uint32_t>(count);
  e.is_inline = false;
  e.length = 0;
  for (std::size_t i = 0; i < count; ++i) e.length += list[i].length;
  std::copy(
      list, list + count,
      qp.send_sges.begin() + static_cast<std::ptrdiff_t>((index & qp.send_mask) * qp.init.cap.max_send_sge));
  return 0;
}

namespace {

// All of it, from a WR, in the entry at send_head.
int add_request(Qp& qp, const ibv_send_wr& wr) {
  if (const int error = begin_entry(qp, qp.send_head, wr.opcode)) return error;
  SendEntry& e = qp.send_entry(qp.send_head);
  e.wr_id = wr.wr_id;
  e.flags = wr.send_flags;
  e.imm_data = wr.imm_data;
  if (is_datagram(qp)) {
    if (const int error = set_datagram_target(qp, e, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey))
      return error;
  } else if (is_atomic(wr.opcode)) {
    e.remote_address = wr.wr.atomic.remote_addr;
    e.rkey = wr.wr.atomic.rkey;
    e.atomic = {wr.wr.atomic.compare_add, wr.wr.atomic.swap};
  } else {
    e.remote_address = wr.wr.rdma.remote_addr;
    e.rkey = wr.wr.rdma.rkey;
  }
  if (wr.num_sge < 0) return EINVAL;
  const auto pieces = static_cast<std::size_t>(wr.num_sge);
  if (!(wr.send_flags & IBV_SEND_INLINE) || !carries_data_to_peer(e.opcode))
    return set_pieces(qp, qp.send_head, wr.sg_list, pieces);
  if (pieces > qp.init.cap.max_send_sge) return EINVAL;
  e.is_inline = true;
  for (std::size_t i = 0; i < pieces; ++i)
    if (const int error = set_inline_data(qp, qp.send_head, reinterpret_cast<const void*>(wr.sg_list[i].addr),
                                          wr.sg_list[i].length))
      return error;
  return 0;
}

}  // namespace

int may_post(const Qp& qp) {
  if (qp.owner->runtime->is_forked_copy()) return ENODEV;
  const std::uint32_t state = qp.state();
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR
             ? 0
             : EINVAL;
}

int post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  if (qp.owner->runtime->is_forked_copy()) {  // before the lock, which a thread of the parent may have held
    if (bad_wr) *bad_wr = wr;
    return ENODEV;
  }
  const std::lock_guard guard(qp.send_lock);
  int error = may_post(qp);
  for (; wr && error == 0; wr = wr->next) {
    error = add_request(qp, *wr);
    if (error != 0) break;
    ++qp.send_head;
  }
  if (error != 0 && bad_wr) *bad_wr = wr;
  start_posted(qp);
  return error;
}

}  // namespace vhca
