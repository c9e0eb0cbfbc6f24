// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/collector.h"

#include <algorithm>
#include <utility>

namespace r2bench {

using r2ccl::trace::DetectedBy;
using r2ccl::trace::Event;
using r2ccl::trace::EventType;

Collector::Collector(std::vector<RankPlace> ranks, Drain drain, Decline decline)
    : ranks_(std::move(ranks)),
      drain_(std::move(drain)),
      decline_(std::move(decline)),
      iterations_(ranks_.size()) {}

size_t Collector::drain() {
  size_t count = 0;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    scratch_.clear();
    lost_ += drain_(rank, scratch_);
    for (const Event& event : scratch_) take(rank, event);
    count += scratch_.size();
  }
  return count;
}

uint32_t Collector::stream_of(uint32_t rank, uint32_t channel, bool segments, uint32_t tx_process) {
  auto& index = segments ? segment_index_ : message_index_;
  auto& streams = segments ? segment_streams_ : message_streams_;
  const auto [entry, added] = index.try_emplace(uint64_t(rank) << 32 | channel, uint32_t(streams.size()));
  if (added) streams.push_back({rank, channel, ranks_[rank].node, ranks_[rank].tx_node, tx_process});
  return entry->second;
}

// The sender may have told its name after the receiver has told of its first segment.
uint16_t Collector::tx_node(const Stream& stream) const {
  const auto known = node_of_process_.find(stream.tx_process);
  return stream.tx_process != 0 && known != node_of_process_.end() ? known->second : stream.tx_node;
}

uint16_t Collector::remote_nic(uint32_t rank, uint32_t channel, uint32_t path) const {
  const auto known = remote_nic_.find({rank, channel, path});
  return known == remote_nic_.end() ? kNoNic : known->second;
}

void Collector::take(uint32_t rank, const Event& event) {
  const auto mark = [&](std::vector<uint64_t>& times) {
    if (event.a >= times.size()) times.resize(event.a + 1, 0);
    times[event.a] = event.time_ns;
  };
  switch (event.type) {
    case EventType::kIteration:
      mark(iterations_[rank].begin_ns);
      return;
    case EventType::kIterationDone:
      mark(iterations_[rank].end_ns);
      return;
    case EventType::kSegmentDelivered: {
      // Segments say all that messages say, and more: from now on the ranks need not record both.
      if (!std::exchange(segments_seen_, true) && decline_) decline_(EventType::kMessageReceived);
      segment_bytes_ += event.a;
      const uint32_t path = uint32_t(event.c);
      segments_.push_back({event.time_ns, uint32_t(event.a), stream_of(rank, event.channel, true, event.peer),
                           event.nic, remote_nic(rank, event.channel, path), path});
      return;
    }
    case EventType::kMessageReceived:
      message_bytes_ += event.a;
      messages_.push_back({event.time_ns, uint32_t(event.a), stream_of(rank, event.channel, false, 0),
                           event.nic, event.nic, 0});
      return;
    case EventType::kChannelUp:
      node_of_process_[uint32_t(event.a)] = ranks_[rank].node;
      break;
    case EventType::kPathOpened:
    case EventType::kPathAccepted:
      remote_nic_[{rank, event.channel, uint32_t(event.a)}] = uint16_t(event.b);
      break;
    default:
      break;
  }
  events_.push_back({rank, event});
}

void Collector::mark_all(EventType type, uint64_t number, uint64_t time_ns) {
  for (RankIterations& rank : iterations_) {
    auto& times = type == EventType::kIteration ? rank.begin_ns : rank.end_ns;
    if (number >= times.size()) times.resize(number + 1, 0);
    times[number] = time_ns;
  }
}

void Collector::drop_open() {
  for (RankIterations& rank : iterations_)
    rank.begin_ns.resize(std::min(rank.begin_ns.size(), rank.end_ns.size()));
}

uint64_t Collector::begun_by_any() const {
  uint64_t most = 0;
  for (const auto& rank : iterations_) most = std::max<uint64_t>(most, rank.begin_ns.size());
  return most;
}

uint64_t Collector::ended_by_all() const {
  uint64_t least = UINT64_MAX;
  for (const auto& rank : iterations_) least = std::min<uint64_t>(least, rank.end_ns.size());
  return least == UINT64_MAX ? 0 : least;
}

uint64_t Collector::begun_by_all() const {
  uint64_t least = UINT64_MAX;
  for (const auto& rank : iterations_) least = std::min<uint64_t>(least, rank.begin_ns.size());
  return least == UINT64_MAX ? 0 : least;
}

uint64_t Collector::operation_ns() const {
  const uint64_t ended = ended_by_all();
  uint64_t shortest = 0;
  for (uint64_t i = ended > 3 ? ended - 3 : 0; i < ended; ++i) {
    uint64_t begin = 0, end = 0;
    for (const auto& rank : iterations_) {
      begin = std::max(begin, rank.begin_ns[i]);
      end = std::max(end, rank.end_ns[i]);
    }
    if (begin && end > begin && (!shortest || end - begin < shortest)) shortest = end - begin;
  }
  return shortest;
}

uint64_t Collector::open_ns(uint64_t since_ns) const {
  constexpr uint64_t kOverlapping = 8;  // operations of ranks that drift: later ones may end before this one
  uint64_t open = 0, counted_from = UINT64_MAX, over = 0;
  for (uint64_t i = ended_by_all(); i-- > 0 && over < kOverlapping;) {
    uint64_t begin = 0, end = 0;
    for (const auto& rank : iterations_) {
      begin = std::max(begin, rank.begin_ns[i]);
      end = std::max(end, rank.end_ns[i]);
    }
    if (end <= since_ns) ++over;
    begin = std::max(begin, since_ns);
    end = std::min(end, counted_from);
    if (begin >= end) continue;
    open += end - begin;
    counted_from = begin;
  }
  return open;
}

uint64_t Collector::first_iteration_ns() const {
  uint64_t first = 0;
  for (const auto& rank : iterations_)
    for (uint64_t begin : rank.begin_ns) {
      if (begin && (!first || begin < first)) first = begin;
      if (begin) break;
    }
  return first;
}

size_t Collector::deliveries_on(NicId nic, uint64_t since_ns) const {
  size_t count = 0;
  const auto& streams = segments_seen_ ? segment_streams_ : message_streams_;
  // Rings are drained one after the other, so the list is in order only roughly: look back a little further.
  constexpr uint64_t kSlackNs = 1'000'000'000;
  const auto& all = deliveries();
  for (auto d = all.rbegin(); d != all.rend() && d->time_ns + kSlackNs > since_ns; ++d) {
    if (d->time_ns <= since_ns) continue;
    const Stream& stream = streams[d->stream];
    if (nic == NicId{stream.rx_node, d->rx_nic} || nic == NicId{tx_node(stream), d->tx_nic}) ++count;
  }
  return count;
}

Record Collector::record(uint64_t end_ns) const {
  Record record;
  record.end_ns = end_ns;
  record.streams = segments_seen_ ? segment_streams_ : message_streams_;
  for (Stream& stream : record.streams) stream.tx_node = tx_node(stream);
  record.deliveries = deliveries();
  std::erase_if(record.deliveries, [&](const Delivery& d) { return d.time_ns > end_ns; });
  std::stable_sort(record.deliveries.begin(), record.deliveries.end(),
                   [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  record.operations = operation_spans(iterations_, end_ns);
  std::vector<Interval> open;
  for (const OperationSpan& operation : record.operations) open.push_back(operation.span);
  record.open = OpenTime(std::move(open));
  // Only a channel's receiving end has a stream. Where it comes up it uses the path that it accepted last.
  std::map<std::pair<uint32_t, uint32_t>, const Event*> accepted;  // by rank and channel
  for (const RankEvent& e : events_) {
    if (e.event.type == EventType::kPathAccepted) accepted[{e.rank, e.event.channel}] = &e.event;
    const bool migrated = e.event.type == EventType::kMigrationDone;
    if ((!migrated && e.event.type != EventType::kChannelUp) || e.event.time_ns > end_ns) continue;
    const auto stream = segment_index_.find(uint64_t(e.rank) << 32 | e.event.channel);
    if (!segments_seen_ || stream == segment_index_.end()) continue;
    const auto last = accepted.find({e.rank, e.event.channel});
    uint32_t path = uint32_t(e.event.c);
    if (!migrated)
      path = last != accepted.end() && last->second->nic == e.event.nic ? uint32_t(last->second->a) : 0;
    record.path_uses.push_back(
        {e.event.time_ns, 0, stream->second, e.event.nic, remote_nic(e.rank, e.event.channel, path), path});
  }
  std::stable_sort(record.path_uses.begin(), record.path_uses.end(),
                   [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
  for (const RankEvent& e : events_) {
    if (e.event.type != EventType::kFenceStarted || e.event.c == 1 || e.event.time_ns > end_ns) continue;
    FenceStart fence{e.event.time_ns,
                     ranks_[e.rank].node,
                     e.event.nic,
                     std::nullopt,
                     std::string(r2ccl::trace::name(DetectedBy(e.event.a))),
                     uint32_t(e.event.b)};
    if (const auto peer = node_of_process_.find(e.event.peer);
        e.event.peer != 0 && peer != node_of_process_.end())
      fence.peer_node = peer->second;
    fence.peer_nic = remote_nic(e.rank, e.event.channel, uint32_t(e.event.b));
    const auto stream = segment_index_.find(uint64_t(e.rank) << 32 | e.event.channel);
    if (segments_seen_ && stream != segment_index_.end()) fence.stream = stream->second;
    record.fences.push_back(std::move(fence));
  }
  std::stable_sort(record.fences.begin(), record.fences.end(),
                   [](const FenceStart& a, const FenceStart& b) { return a.time_ns < b.time_ns; });
  return record;
}

std::string describe(const Event& event) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto number = [](uint64_t value) { return std::to_string(value); };
  if (event.nic != kNoNic) add("nic " + number(event.nic));
  switch (event.type) {
    case EventType::kFenceStarted:
      add("path " + number(event.b));
      add(event.c == 1 ? "planned (failback)" : "by " + std::string(r2ccl::trace::name(DetectedBy(event.a))));
      break;
    case EventType::kFenceDone:
      add("path " + number(event.a) + " in " + number(event.b) + " us");
      break;
    case EventType::kMigrationStarted:
      add("leaves path " + number(event.b) + ", epoch " + number(event.a));
      break;
    case EventType::kReplayed:
      add(number(event.a) + " segments, " + number(event.b) + " bytes on path " + number(event.c));
      break;
    case EventType::kMigrationDone:
      add("left nic " + number(event.a) + ", path " + number(event.c) + ", epoch " + number(event.b));
      break;
    case EventType::kNicDown:
      add("by " + std::string(r2ccl::trace::name(DetectedBy(event.a))));
      break;
    case EventType::kPathOpened:
    case EventType::kPathAccepted:
      add("path " + number(event.a) + " to remote nic " + number(event.b));
      break;
    case EventType::kProbeFailed:
      add("path " + number(event.a));
      break;
    case EventType::kDuplicateDropped:
      add("message " + number(event.b));
      break;
    default:
      break;
  }
  if (event.peer) add("peer " + number(event.peer));
  return text;
}

}  // namespace r2bench
