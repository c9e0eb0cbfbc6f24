// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/path/path.h"

#include <sodium.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace r2ccl {
namespace {

// Each names the driver call that it is about to make, whose time is then its own.
Result<verbs::QueuePair> make_pair(const verbs::Device& device, const verbs::CompletionQueue& queue,
                                   const verbs::QueuePairLimits& limits, Job& job) {
  job.calls("ibv_create_qp");
  auto pair = verbs::QueuePair::create(device, queue, limits);
  if (!pair) return pair;
  job.calls("ibv_modify_qp to INIT");
  if (auto done = pair->to_init(device); !done) {
    job.calls("ibv_destroy_qp");
    return done.error();
  }
  return pair;
}

Result<void> connect_pair(verbs::QueuePair& pair, const verbs::Device& device,
                          const verbs::RemoteQueuePair& remote, uint32_t our_psn, const Config& config,
                          Job& job) {
  job.calls("ibv_modify_qp to RTR");
  if (auto done = pair.to_rtr(device, remote, config); !done) return done;
  job.calls("ibv_modify_qp to RTS");
  return pair.to_rts(device, our_psn, config);
}

}  // namespace

std::shared_ptr<ChannelMemory> ChannelMemory::make() {
  constexpr size_t kBytes = channel_memory_bytes(true);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // The kernel has cleared it; pages that nobody uses are not touched.
  return {new (memory) ChannelMemory, [](ChannelMemory* mapped) { munmap(mapped, kBytes); }};
}

Result<std::unique_ptr<Path>> Path::create(uint32_t id, int local_nic, int remote_nic,
                                           const verbs::Device& device, std::shared_ptr<ChannelMemory> memory,
                                           bool keeps_copies, bool with_probe, bool with_flush, Job& job) {
  std::unique_ptr<Path> path(new Path);
  path->id_ = id;
  path->local_nic_ = local_nic;
  path->remote_nic_ = remote_nic;
  path->channel_memory = std::move(memory);
  if (auto built = path->build(device, keeps_copies, with_probe, with_flush, job); !built) {
    path->discard(job);
    return built.error();
  }
  path->first_psn_ = randombytes_random() & 0xffffff;
  return path;
}

Result<void> Path::build(const verbs::Device& device, bool keeps_copies, bool with_probe, bool with_flush,
                         Job& job) {
  job.calls("ibv_create_cq");
  auto made = verbs::CompletionQueue::create(device, int(kSendDepth + kReceiveDepth + 8));
  if (!made) return made.error();
  queue = std::move(*made);
  verbs::QueuePairLimits limits;
  limits.send_work_requests = kSendDepth;
  limits.receive_work_requests = kReceiveDepth + 1;
  limits.inline_bytes = sizeof(wire::CtsLine);
  auto pair = make_pair(device, queue, limits, job);
  if (!pair) return pair.error();
  data = std::move(*pair);
  job.calls("ibv_reg_mr");
  auto region = verbs::MemoryRegion::create(device, channel_memory.get(), channel_memory_bytes(keeps_copies));
  if (!region) return region.error();
  memory = std::move(*region);
  memory_lkey = memory.lkey();
  for (uint32_t i = 0; i < kReceiveDepth; ++i)
    if (const int error = data.post_receive(work(kWorkReceive, 0)); error != 0)
      return Error{ErrorCode::kVerbs, "ibv_post_recv on " + device.name() + ": " + std::strerror(error)};
  if (with_probe) {
    job.calls("ibv_create_cq");
    auto probe_queue = verbs::CompletionQueue::create(device, 4);
    if (!probe_queue) return probe_queue.error();
    probe_queue_ = std::move(*probe_queue);
    verbs::QueuePairLimits probe_limits;
    probe_limits.send_work_requests = 2;
    auto probe_pair = make_pair(device, probe_queue_, probe_limits, job);
    if (!probe_pair) return probe_pair.error();
    probe_pair_ = std::move(*probe_pair);
  }
  if (with_flush) {
    job.calls("ibv_create_cq");
    auto flush_queue = verbs::CompletionQueue::create(device, 4);
    if (!flush_queue) return flush_queue.error();
    flush_queue_ = std::move(*flush_queue);
    verbs::QueuePairLimits flush_limits;
    flush_limits.send_work_requests = 2;
    auto flush_pair = make_pair(device, flush_queue_, flush_limits, job);
    if (!flush_pair) return flush_pair.error();
    flush_pair_ = std::move(*flush_pair);
  }
  return {};
}

void Path::discard(Job& job) {
  for (verbs::QueuePair* it : {&data, &probe_pair_, &flush_pair_}) {
    job.calls("ibv_destroy_qp");
    *it = {};
  }
  job.calls("ibv_dereg_mr");
  memory = {};
  destroy_queues(job);
}

wire::PathEnd Path::describe(const verbs::Device& device) const {
  wire::PathEnd end{};
  end.address = device.address();
  end.data_qp = data.number();
  end.probe_qp = probe_pair_ ? probe_pair_.number() : 0;
  end.first_psn = first_psn_;
  end.probe_key = memory.rkey();
  end.probe_word = uint64_t(&channel_memory->probe_word);
  end.ring = uint64_t(channel_memory->lines);
  end.ring_key = memory.rkey();
  return end;
}

Result<void> Path::connect(const verbs::Device& device, const wire::PathEnd& remote, const Config& config,
                           Job& job) {
  remote_ = remote;
  verbs::RemoteQueuePair to{remote.address, remote.data_qp, remote.first_psn};
  if (auto done = connect_pair(data, device, to, first_psn_, config, job); !done) return done;
  if (probe_pair_) {
    to.number = remote.probe_qp;
    if (auto done = connect_pair(probe_pair_, device, to, first_psn_, config, job); !done) return done;
  }
  if (flush_pair_) {  // to itself
    const verbs::RemoteQueuePair self{device.address(), flush_pair_.number(), first_psn_};
    if (auto done = connect_pair(flush_pair_, device, self, first_psn_, config, job); !done) return done;
  }
  return {};
}

Result<void> Path::noted(Result<void> done) {
  if (!done && done.error().code == ErrorCode::kDeviceGone) refused_with_eio = true;
  return done;
}

Result<void> Path::fence_by_destroying(Job& job) {
  job.calls("ibv_destroy_qp");
  auto done = noted(data.destroy());
  destroying_failed = !done;
  return done;
}

Result<void> Path::destroy(Job& job) {
  job.calls("ibv_destroy_qp");
  if (data)
    if (auto done = noted(data.destroy()); !done) return done;
  job.calls("ibv_destroy_qp");
  if (flush_pair_)
    if (auto done = noted(flush_pair_.destroy()); !done) return done;
  job.calls("ibv_destroy_qp");
  return probe_pair_ ? probe_pair_.destroy() : Result<void>();
}

void Path::destroy_queues(Job& job) {
  for (verbs::CompletionQueue* it : {&queue, &probe_queue_, &flush_queue_}) {
    job.calls("ibv_destroy_cq");
    *it = {};
  }
}

Result<void> Path::start_fence(Job& job) {
  if (!data) return {};
  if (reports_nothing || !noted(data.to_error())) return fence_by_destroying(job);
  // Flushes come in order on each queue (IBTA volume 1, 10.8.6): when a sentinel is back, everything that
  // was posted before it is back too, and what had arrived has been reported.
  const int send = data.post_write(work(kWorkSentinel, 1), &channel_memory->sentinel, 8, memory_lkey,
                                   remote_.probe_word, remote_.probe_key, true);
  const int receive = data.post_receive(work(kWorkSentinel, 2));
  // A queue that is full of flushed requests has no room yet: its own last flush then does the same service,
  // and the caller polls until both queues are empty; so try again from there.
  if (send != 0) sentinels_missing_ |= 1;
  if (receive != 0) sentinels_missing_ |= 2;
  static_cast<void>(flush_again(job));
  return {};
}

void Path::look_for_sentinels() {
  if (!data) return;
  std::array<ibv_wc, 32> completions;
  for (int count; (count = queue.poll(completions)) > 0;)
    for (int i = 0; i < count; ++i)
      if (const ibv_wc& it = completions[size_t(i)]; it.wr_id >> 32 == kWorkSentinel) sentinel(it);
}

bool Path::retry_sentinels() {
  if (!data) return false;
  if ((sentinels_missing_ & 1) &&
      data.post_write(work(kWorkSentinel, 1), &channel_memory->sentinel, 8, memory_lkey, remote_.probe_word,
                      remote_.probe_key, true) == 0)
    sentinels_missing_ &= ~1u;
  if ((sentinels_missing_ & 2) && data.post_receive(work(kWorkSentinel, 2)) == 0) {
    sentinels_missing_ &= ~2u;
    return true;
  }
  return false;
}

void Path::probe(uint64_t now, uint32_t bytes) {
  if (!probe_pair_ || probe_outstanding_) return;
  probe_wait_.begin(now);
  pushed_ = false;
  const int error = probe_pair_.post_read(work(kWorkProbe, 0), channel_memory->probe_landing, bytes,
                                          memory_lkey, remote_.probe_word, remote_.probe_key);
  probe_outstanding_ = error == 0;
  probe_state_ = error == 0 ? ProbeState::kWaiting : ProbeState::kFailed;
}

void Path::push_work(Owned) {
  if (work_pushed_ || posted == completed || !data) return;
  work_pushed_ = data.post_empty_write(work(kWorkPush, 0), remote_.ring, remote_.ring_key) == 0;
}

void Path::push_probe(bool due, uint64_t now) {
  if (!due || pushed_ || push_outstanding_ || !probe_outstanding_) return;
  pushed_ = true;
  pushed_at_ = now;
  push_outstanding_ =
      probe_pair_.post_empty_write(work(kWorkProbe, kPush), remote_.probe_word, remote_.probe_key) == 0;
}

ProbeState Path::look_for_answer(uint64_t now) {
  ibv_wc completion;
  int count = probe_queue_.poll({&completion, 1});
  while (count > 0 && completion.wr_id == work(kWorkProbe, kPush)) {  // of the probe before
    push_outstanding_ = false;
    count = probe_queue_.poll({&completion, 1});
  }
  if (count == 0) return probe_state_;
  probe_outstanding_ = false;
  const bool stale = probe_wait_.end();
  if (count > 0 && completion.status == IBV_WC_SUCCESS) {
    answer_ = {std::max<uint64_t>(probe_wait_.age(now), 1),
               pushed_ ? now - pushed_at_ : health::ProbeTimes::kNotPushed};
    if (stale) return probe_state_ = ProbeState::kIdle;
    probe_state_ = ProbeState::kAnswered;
  } else {
    if (count > 0) probe_status = completion.status;
    probe_state_ = ProbeState::kFailed;
  }
  return probe_state_;
}

int Path::post_flush(const void* data, uint32_t rkey, uint64_t covers, Owned) {
  // Where it lands nobody looks.
  const int error = flush_pair_.post_read(work(kWorkFlush, 0), &channel_memory->probe_landing[511], 1,
                                          memory_lkey, uint64_t(data), rkey);
  if (error == 0) flush_covers_ = covers;
  return error;
}

ProbeState Path::poll_flush(uint64_t& covers, Owned) {
  if (flush_covers_ == 0) return ProbeState::kIdle;
  ibv_wc completion;
  const int count = flush_queue_.poll({&completion, 1});
  if (count == 0) return ProbeState::kWaiting;
  covers = std::exchange(flush_covers_, 0);
  if (count > 0 && completion.status == IBV_WC_SUCCESS) return ProbeState::kAnswered;
  last_status = count > 0 ? completion.status : IBV_WC_FATAL_ERR;
  flush_failed = true;
  return ProbeState::kFailed;
}

}  // namespace r2ccl
