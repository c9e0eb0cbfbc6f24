// SPDX-License-Identifier: Apache-2.0
// Takes the trace events of all ranks while they run and sorts what it finds: deliveries, iterations, fences,
// rare events. One thread at a time; knows nothing of scenarios or faults.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/measure/timeline.h"
#include "r2ccl/trace/event.h"

namespace r2bench {

/// Where a rank lives, and on which node the rank that sends to it: of a ring, or as far as the plugin's
/// events do not say.
struct RankPlace {
  std::string label;  ///< node0/rank0
  uint16_t node = 0;
  uint16_t tx_node = 0;
};

/// A trace event with the rank that wrote it.
struct RankEvent {
  uint32_t rank = 0;
  r2ccl::trace::Event event{};
};

class Collector {
 public:
  /// Appends a rank's events since the last call; returns how many were overwritten before.
  using Drain = std::function<uint64_t(size_t rank, std::vector<r2ccl::trace::Event>& out)>;

  /// The ranks need not record events of this type any more.
  using Decline = std::function<void(r2ccl::trace::EventType type)>;

  Collector(std::vector<RankPlace> ranks, Drain drain, Decline decline = {});
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  /// Every rank begins (kIteration) or ends (kIterationDone) that operation: of ranks that do not record it
  /// themselves.
  void mark_all(r2ccl::trace::EventType type, uint64_t number, uint64_t time_ns);
  /// Operations that have begun and will not end: they never were.
  void drop_open();

  /// Reads what is new. Returns how many events there were.
  size_t drain();

  uint64_t lost() const { return lost_; }
  uint64_t delivered_bytes() const { return segments_seen_ ? segment_bytes_ : message_bytes_; }
  /// Iterations that this rank has begun / ended (the highest number + 1).
  uint64_t begun(size_t rank) const { return iterations_[rank].begin_ns.size(); }
  uint64_t ended(size_t rank) const { return iterations_[rank].end_ns.size(); }
  uint64_t begun_by_any() const;
  uint64_t begun_by_all() const;
  uint64_t ended_by_all() const;
  /// How long an operation takes, from its last begin to its last end: the shortest of the last three. 0:
  /// none has ended.
  uint64_t operation_ns() const;
  /// Time since `since_ns` in which an operation was open, of those operations that every rank has ended.
  uint64_t open_ns(uint64_t since_ns) const;
  /// Begin of the first iteration of any rank; 0 when none has begun.
  uint64_t first_iteration_ns() const;
  /// Deliveries that crossed this NIC (at either end) later than `since_ns`.
  size_t deliveries_on(NicId nic, uint64_t since_ns) const;
  /// Rare events, in the order in which they were read.
  const std::vector<RankEvent>& events() const { return events_; }

  /// Everything so far, in order of time, up to `end_ns`. Segments where the plugin reports them, else
  /// messages.
  Record record(uint64_t end_ns) const;

 private:
  void take(uint32_t rank, const r2ccl::trace::Event& event);
  uint32_t stream_of(uint32_t rank, uint32_t channel, bool segments, uint32_t tx_process);
  uint16_t tx_node(const Stream& stream) const;
  /// At the other end of that path of the rank's channel; kNoNic: no event says.
  uint16_t remote_nic(uint32_t rank, uint32_t channel, uint32_t path) const;
  const std::vector<Delivery>& deliveries() const { return segments_seen_ ? segments_ : messages_; }

  std::vector<RankPlace> ranks_;
  Drain drain_;
  Decline decline_;
  std::vector<r2ccl::trace::Event> scratch_;
  std::vector<RankIterations> iterations_;
  std::vector<RankEvent> events_;
  bool segments_seen_ = false;
  uint64_t segment_bytes_ = 0, message_bytes_ = 0;
  std::vector<Delivery> segments_, messages_;
  std::vector<Stream> segment_streams_, message_streams_;
  std::map<uint64_t, uint32_t> segment_index_, message_index_;               // rank << 32 | channel
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint16_t> remote_nic_;  // rank, channel, path id
  std::map<uint32_t, uint16_t> node_of_process_;
  uint64_t lost_ = 0;
};

/// "nic 0, path 3, by completion": the event's fields in words.
std::string describe(const r2ccl::trace::Event& event);

}  // namespace r2bench
