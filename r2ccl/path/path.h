// SPDX-License-Identifier: Apache-2.0
// One path of a channel: an RC QP for data over one rail, and beside it a second QP that only ever reads
// a word of the peer, to learn whether the rail works when the first one is silent, or a whole packet, to
// prove that it carries those: where the MTU of a switch is too small, ACKs pass. A path is opened,
// proved, used, fenced and destroyed; it is never used again after a fence (a late packet must not meet a
// reused QP). The calls that a driver may keep are made by its NIC's worker, one at a time; while a path is
// in those hands nobody else touches its data queue pair or completion queue.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/balance/meter.h"
#include "r2ccl/base/result.h"
#include "r2ccl/health/whole_packets.h"
#include "r2ccl/path/nic_workers.h"
#include "r2ccl/path/ownership.h"
#include "r2ccl/protocol/limits.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/probe_wait.h"
#include "r2ccl/protocol/wire.h"
#include "r2ccl/trace/event.h"
#include "r2ccl/verbs/completion_queue.h"
#include "r2ccl/verbs/memory_region.h"
#include "r2ccl/verbs/queue_pair.h"

namespace r2ccl {

/// Memory of one channel that the peer's NIC touches, on pages of its own: fork and deregistration leave the
/// neighbours alone.
struct ChannelMemory {
  wire::CtsLine
      lines[wire::kRingLines];    ///< sender: written by the receiver; receiver: where lines are built
  alignas(64) uint64_t received;  ///< sender: 'received up to', written by the receiver
  alignas(64) uint64_t staged_received[256];  ///< receiver: values of `received` on their way
  alignas(64) uint64_t probe_word;            ///< read by the peer's probes …
  uint64_t more_to_probe[511];                ///< … and, where they prove a path, with all of this
  alignas(64) uint64_t probe_landing[512];    ///< where our own probes land
  alignas(64) uint64_t sentinel;              ///< what a fence's sentinel would send; never written
  /// Sender: small messages, until the receiver has them (protocol/copy_ring.h). The last member: others do
  /// without.
  alignas(64) uint8_t copies[wire::kCopyRingBytes];

  /// Throws std::bad_alloc.
  static std::shared_ptr<ChannelMemory> make();
};
static_assert(offsetof(ChannelMemory, probe_landing) - offsetof(ChannelMemory, probe_word) == 4096);
/// What of it is registered: whole pages.
constexpr size_t channel_memory_bytes(bool keeps_copies) {
  return ((keeps_copies ? sizeof(ChannelMemory) : offsetof(ChannelMemory, copies)) + 4095) / 4096 * 4096;
}

/// Health has a place for each rail.
static_assert(wire::kMaxNics <= health::ProbeTimes::kMostNics);

/// What became of a probe.
enum class ProbeState : uint8_t { kIdle, kWaiting, kAnswered, kFailed };

class Path {
 public:
  /// Worst case: every open message in one segment per NIC, all replayed onto this path; and CTS entries or
  /// ACKs.
  static constexpr uint32_t kSendDepth = uint32_t(kMaxRequests) * wire::kMaxNics + wire::kRingLines;
  /// A path carries a segment of each open message, twice over where a replay meets the original. More than
  /// that come only when paths die one upon the other; then a NIC waits for the queue to be filled again
  /// (RNR). Receives are given back several at a time: so many more are there.
  static constexpr uint32_t kReceiveDepth = 2 * wire::kRingLines + verbs::QueuePair::kReceiveBatch;
  // What a work request was, in the upper half of its id.
  enum WorkKind : uint32_t {
    kWorkData = 1,
    kWorkCts = 2,
    kWorkReceived = 3,
    kWorkReceive = 4,
    kWorkSentinel = 5,
    kWorkProbe = 6,
    kWorkFlush = 7,
    kWorkPush = 8,
    kWorkWholeData = 9  // data as long as a whole packet, at least
  };
  static uint64_t work(WorkKind kind, uint32_t detail) { return uint64_t(kind) << 32 | detail; }
  static uint64_t data_work(uint32_t bytes, uint32_t detail) {
    return work(bytes >= health::WholePackets::kBytes ? kWorkWholeData : kWorkData, detail);
  }

  // --- driver calls, by the NIC's worker (or before anybody else knows the path) ---
  /// Makes both QPs on `device` and fills the receive queue.
  static Result<std::unique_ptr<Path>> create(uint32_t id, int local_nic, int remote_nic,
                                              const verbs::Device& device,
                                              std::shared_ptr<ChannelMemory> memory, bool keeps_copies,
                                              bool with_probe, bool with_flush, Job& job);
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  wire::PathEnd describe(const verbs::Device& device) const;
  Result<void> connect(const verbs::Device& device, const wire::PathEnd& remote, const Config& config,
                       Job& job);

  /// Starts to fence: the QP goes to ERR and a sentinel is posted behind everything on both queues.
  Result<void> start_fence(Job& job);
  /// The other way to fence, for a NIC that does not report flushes: without a QP nothing arrives either.
  /// What it had not reported counts as missing and is replayed. An error leaves things as they were. It is
  /// the driver's answer alone, which proves nothing once the device has failed.
  Result<void> fence_by_destroying(Job& job);
  /// A provider whose receive queue lies in memory shared with the kernel (rxe) rings no bell for a receive
  /// request: one that is posted in ERR is flushed at the next move to ERR only. Elsewhere it changes
  /// nothing.
  Result<void> flush_again(Job& job) {
    job.calls("ibv_modify_qp to ERR");
    return data ? noted(data.to_error()) : Result<void>();
  }
  /// Nobody wants it any more: it goes to ERR, so that nothing more arrives.
  Result<void> give_up(Job&) { return data ? data.to_error() : Result<void>(); }
  /// All queue pairs. An error leaves what could not be destroyed.
  Result<void> destroy(Job& job);
  /// … and then the memory that they used. False: the NIC still has it.
  bool deregister(Job& job) noexcept {
    job.calls("ibv_dereg_mr");
    return memory.deregister();
  }

  /// … and then the completion queues.
  void destroy_queues(Job& job);
  /// All of it, of a path that could not be made or connected.
  void discard(Job& job);

  /// `whole_packets`, when it was last looked at; service thread only. It is written in each turn, so it
  /// stands apart from what whoever owns the channel reads and writes.
  health::WholePackets::Look whole_packets_seen;
  /// The last job, and what came of it. The service thread's, but for `outcome` while the job is not done.
  JobPtr job;
  Result<void> outcome;
  bool worker_busy() const { return job && !job->done(); }

  /// A sentinel has been polled. It counts when it was flushed: carried out, it shows that the QP is in ERR
  /// for its driver only.
  void sentinel(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS) sentinels_ |= uint32_t(completion.wr_id);
  }
  /// Polls for them alone: what else there is counts for nothing any more.
  void look_for_sentinels();
  /// Posts a sentinel for which there was no room before. True: flush_again() must follow.
  bool retry_sentinels();
  /// Both are back.
  bool flushed() const { return sentinels_ == kBothSentinels; }
  /// Its completion queue is known to report nothing any more: no flush is worth waiting for.
  std::atomic<bool> reports_nothing{false};
  /// The driver refuses to destroy it: it is not asked again.
  bool destroying_failed = false;
  /// A command was answered with EIO: the device is being removed, or has failed.
  std::atomic<bool> refused_with_eio{false};
  /// ProcessContext::device_fatals when it was made.
  uint32_t device_fatals = 0;

  // --- probing; only the service thread ---
  static constexpr uint32_t kProofBytes = health::WholePackets::kBytes;
  /// Posts a probe unless one is under way. `now` is any clock that the caller accrues.
  void probe(uint64_t now, uint32_t bytes = 8);
  void prove(uint64_t now) { probe(now, kProofBytes); }
  /// Where it is `due`: posts an empty write behind the probe that is under way, once (protocol/choice.h).
  void push_probe(bool due, uint64_t now);
  ProbeState poll_probe(uint64_t now) { return probe_outstanding_ ? look_for_answer(now) : probe_state_; }
  ProbeState probe_state() const { return probe_state_; }
  uint64_t probe_age(uint64_t now) const { return probe_wait_.age(now); }
  /// The caller awaits the answer that is under way: for how long, in ns (protocol/probe_wait.h).
  uint64_t probe_awaited(uint64_t now) { return probe_wait_.awaited(now); }
  /// Of an answer: how long it took, and how much of that was left when the probe was pushed, in ns
  /// (health::ProbeTimes::kNotPushed: it was not).
  struct AnswerTime {
    uint64_t took = 0, since_push = health::ProbeTimes::kNotPushed;
  };
  /// Of the answer that came last, if it was not told yet and says something: a queue pair that has waited
  /// for `resend_ns` sends again, and what then comes back may be the answer to that.
  std::optional<AnswerTime> told_time(uint64_t resend_ns) {
    const AnswerTime told = std::exchange(answer_, {});
    return told.took > 0 && told.took < resend_ns ? std::optional(told) : std::nullopt;
  }
  /// The answer no longer matters. One that is still under way stays so: a QP holds one READ at a time.
  void forget_probe() {
    if (probe_outstanding_) probe_wait_.forget();
    probe_state_ = probe_outstanding_ ? ProbeState::kWaiting : ProbeState::kIdle;
  }

  /// Is one of its queue pairs the object that an asynchronous event names?
  bool has(const ibv_qp* pair) const { return data.is(pair) || probe_pair_.is(pair) || flush_pair_.is(pair); }

  // --- flushing what its NIC wrote into a GPU's memory; needs ownership of the channel ---
  /// It can: a queue pair of its own leads back to the same NIC.
  bool flushes() const { return bool(flush_pair_); }
  /// Has the NIC read a byte at `data`, under a key of its own. What it wrote before can then be seen. Needs
  /// !flush_under_way(). 0 or an errno.
  int post_flush(const void* data, uint32_t rkey, uint64_t covers, Owned);
  bool flush_under_way() const { return flush_covers_ != 0; }
  /// kIdle, kWaiting, or once what came of it: kAnswered with the `covers` it was posted with, or kFailed
  /// (`last_status` says why), after which there are no others.
  ProbeState poll_flush(uint64_t& covers, Owned);
  bool flush_failed = false;
  uint32_t id() const { return id_; }
  int local_nic() const { return local_nic_; }
  int remote_nic() const { return remote_nic_; }
  const wire::PathEnd& remote() const { return remote_; }

  /// Traffic goes over it.
  bool carries() const { return is_in_use(state); }
  bool is_standby() const { return state == PathState::kStandby; }
  /// It is being fenced.
  bool is_left() const { return state == PathState::kFencing; }
  /// What came over it may not have been seen.
  bool brings() const { return carries() || is_left(); }
  uint64_t since = 0;       ///< accrued time at which it entered the state
  uint64_t keep_until = 0;  ///< out of use: when it may be destroyed
  // Members are destroyed from the last to the first: a QP goes before the CQ and the memory it uses.
  std::shared_ptr<ChannelMemory> channel_memory;
  verbs::MemoryRegion memory;
  // What each message needs, in one cache line.
  alignas(64) verbs::CompletionQueue queue;
  verbs::QueuePair data;
  PathState state = PathState::kOpening;
  std::atomic<bool> is_failed{false};  ///< `failure`, for threads that do not own the channel
  uint32_t memory_lkey = 0;
  // Send queue accounting: unsignaled requests are freed by the next signaled one behind them.
  uint32_t posted = 0;
  uint32_t completed = 0;
  /// Two are kept for a push and a sentinel, which are not counted.
  bool send_queue_room(uint32_t wanted = 1) const { return posted - completed + wanted <= kSendDepth - 2; }
  /// Receives that have completed, and are not given back.
  uint32_t receives_used = 0;
  /// Balance, sender: how many of the writes under way the NIC's meter counts.
  int metered = 0;
  /// Data as long as a whole packet that it has carried to its end. Whoever owns the channel counts, any
  /// thread reads.
  std::atomic<uint32_t> whole_packets{0};

 private:
  uint32_t id_ = 0;
  int local_nic_ = 0;
  int remote_nic_ = 0;

 public:
  /// … which happens here once there are `enough`, up to verbs::QueuePair::kReceiveBatch. 0 or an errno.
  int give_back_receives(uint32_t enough, Owned) {
    if (receives_used < enough) return 0;
    return data.post_receives(work(kWorkReceive, 0), std::exchange(receives_used, 0));
  }
  /// Something is under way, and nothing has moved for long: posts an empty write behind it, one at a time. A
  /// lost packet shows by the one that follows; behind the last one there is none, and the queue pair sends
  /// it again only after its Local ACK Timeout.
  void push_work(Owned);
  void push_is_back(Owned) { work_pushed_ = false; }
  void carried(uint32_t bytes, Owned) {
    if (bytes >= health::WholePackets::kBytes)
      whole_packets.store(whole_packets.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The last failed completion, for the log.
  ibv_wc_status last_status = IBV_WC_SUCCESS;
  /// Balance, sender: bytes of each write by its number.
  std::vector<uint32_t> sizes;
  balance::NicMeter* link_meter = nullptr;  ///< mode 3: the link's
  /// It carries traffic and is to be left, and why.
  struct Failure {
    trace::DetectedBy by;
    std::string why;
  };
  std::optional<Failure> failure;
  void mark_failed(trace::DetectedBy by, std::string why, Owned) {
    failure = {by, std::move(why)};
    is_failed.store(true, std::memory_order_relaxed);
  }
  void clear_failure(Owned) {
    failure.reset();
    is_failed.store(false, std::memory_order_relaxed);
  }
  /// The same of a probe; service thread only.
  ibv_wc_status probe_status = IBV_WC_SUCCESS;

 private:
  Path() = default;
  Result<void> build(const verbs::Device& device, bool keeps_copies, bool with_probe, bool with_flush,
                     Job& job);
  Result<void> noted(Result<void> done);
  ProbeState look_for_answer(uint64_t now);
  static constexpr uint32_t kBothSentinels = 3;
  static constexpr uint32_t kPush = 1;  // which of kWorkProbe

  wire::PathEnd remote_{};
  uint32_t first_psn_ = 0;
  uint32_t sentinels_ = 0;
  uint32_t sentinels_missing_ = 0;
  bool work_pushed_ = false;
  verbs::CompletionQueue probe_queue_;
  verbs::QueuePair probe_pair_;
  verbs::CompletionQueue flush_queue_;
  verbs::QueuePair flush_pair_;
  uint64_t flush_covers_ = 0;  // of the flush that is under way
  ProbeState probe_state_ = ProbeState::kIdle;
  ProbeWait probe_wait_;
  AnswerTime answer_;  // that told_time() has not told
  bool probe_outstanding_ = false;
  bool pushed_ = false;  // the probe that is under way
  uint64_t pushed_at_ = 0;
  bool push_outstanding_ = false;  // not polled
};

}  // namespace r2ccl
