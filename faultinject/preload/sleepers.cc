// SPDX-License-Identifier: Apache-2.0
// Completion channels, and the programs that sleep on them: what wakes these where the real completion queue
// raises no event.
#include "faultinject/preload/context.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

void Context::add_channel(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  auto& known = channels_[channel] = std::make_shared<CompletionChannel>(channel);
  if (removal_.is_torn_down()) end_channel(*known);  // while it was being made
}

std::shared_ptr<CompletionChannel> Context::take_channel(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.extract(channel);
  return found ? found.mapped() : nullptr;
}

void Context::put_back(ibv_comp_channel* channel, std::shared_ptr<CompletionChannel> known) {
  const std::lock_guard lock(mutex_);
  channels_[channel] = std::move(known);
}

std::shared_ptr<CompletionChannel> Context::share_channel(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(channel);
  return found != channels_.end() ? found->second : nullptr;
}

void Context::after_req_notify(ibv_cq* pointer) {
  const std::lock_guard lock(mutex_);
  CompletionQueue& cq = *queue(pointer);
  if (!cq.ready.empty() && frozen_ == 0 && !cq.is_dead()) wake_sleeper(cq);
}

// There is something to show, and the real queue may be empty.
void Context::wake_sleeper(CompletionQueue& cq) {
  if (cq.cq->channel == nullptr || cq.ready.empty() || removal_.is_failing()) return;
  const ProviderCall call;
  if (cq.waker == nullptr) {
    const AsyncEvents::RealFd shown(events_.get());  // the kernel is handed the descriptor with a new object
    if (ibv_pd* pd = waker_pd(); pd != nullptr) cq.waker = Waker::make(pd, cq.cq);
    if (cq.waker == nullptr) return;
    cq.waker_qp_num = cq.waker->qp_num();
  }
  if (!cq.waker->wake(slot_.post_send)) return;  // one that is out already, and not polled
  cq.wakes++;
  mode_dirty_ = true;
}

ibv_pd* Context::waker_pd() {
  const auto alloc_pd = FAULTINJECT_REAL(kAllocPd, ibv_alloc_pd);
  if (waker_pd_ == nullptr && alloc_pd != nullptr) waker_pd_ = alloc_pd(context_);
  return waker_pd_;
}

void Context::close_wakers() {
  const std::lock_guard lock(mutex_);
  const ProviderCall call;
  for (auto& [pointer, channel] : channels_) channel->drop_waker();
  for (auto& [pointer, cq] : cqs_) cq->waker.reset();
  const auto dealloc_pd = FAULTINJECT_REAL(kDeallocPd, ibv_dealloc_pd);
  if (waker_pd_ != nullptr && dealloc_pd != nullptr) dealloc_pd(waker_pd_);
  waker_pd_ = nullptr;
}

void Context::wake_sleepers(QueuePair& qp) {
  if (qp.send_cq != nullptr) wake_sleeper(*qp.send_cq);
  if (qp.recv_cq != nullptr && qp.recv_cq != qp.send_cq) wake_sleeper(*qp.recv_cq);
}

}  // namespace faultinject
