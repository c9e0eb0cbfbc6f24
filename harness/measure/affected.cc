// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/affected.h"

#include <algorithm>
#include <utility>

namespace r2bench {
namespace {

bool among(const std::vector<NicId>& targets, uint16_t node, uint16_t nic) {
  return std::find(targets.begin(), targets.end(), NicId{node, nic}) != targets.end();
}

bool hits(const FaultWindow& window, const Stream& stream, const Delivery& d) {
  return among(window.targets, stream.rx_node, d.rx_nic) || among(window.targets, stream.tx_node, d.tx_nic);
}

/// Its sender is on a target's node, and no event says on which NIC.
bool may_hit(const FaultWindow& window, const Stream& stream, const Delivery& d) {
  return d.tx_nic == kNoNic && !hits(window, stream, d) &&
         std::any_of(window.targets.begin(), window.targets.end(),
                     [&](const NicId& target) { return target.node == stream.tx_node; });
}

bool fits(const FenceStart& fence, const std::vector<NicId>& targets) {
  return among(targets, fence.node, fence.nic) || among(targets, fence.peer_node, fence.peer_nic);
}

/// A channel that comes up may not name its path: then the NICs tell.
bool on_another_path(const Delivery& d, const Delivery& before) {
  if (before.bytes == 0 && before.path == 0) return d.rx_nic != before.rx_nic;
  return d.path != before.path || d.rx_nic != before.rx_nic || d.tx_nic != before.tx_nic;
}

/// Begin of the operation before the last one that had begun by t0: a whole one lies between.
uint64_t recently_ns(const Record& record, uint64_t t0_ns) {
  uint64_t last = 0, before = 0;
  for (const OperationSpan& operation : record.operations) {
    if (operation.span.begin_ns > t0_ns) break;
    before = last;
    last = operation.span.begin_ns;
  }
  return before;
}

/// No fence after this belongs to the strike.
uint64_t last_fence_ns(const Record& record, const FaultWindow& window) {
  if (window.heal_ns == 0) return window.end_ns;
  return std::min(window.end_ns, std::max(window.heal_ns, open_operation_end(record, window.t0_ns)));
}

/// A strike after `met_ns` may be what the fence answers.
bool explained_by_later(const FaultWindow& window, const FenceStart& fence, uint64_t met_ns) {
  return std::any_of(window.later.begin(), window.later.end(), [&](const OtherStrike& later) {
    return later.t0_ns > met_ns && later.t0_ns <= fence.time_ns && fits(fence, later.targets);
  });
}

/// What leaves the NIC carrying has no claim to a fence of a path that an earlier strike had taken away.
bool explained_by_earlier(const Record& record, const FaultWindow& window, const FenceStart& fence) {
  if (window.takes_away) return false;
  return std::any_of(window.earlier.begin(), window.earlier.end(), [&](const OtherStrike& earlier) {
    return fits(fence, earlier.targets) &&
           fence.time_ns <= std::max(earlier.heal_ns, open_operation_end(record, earlier.t0_ns));
  });
}

/// What is known of the streams at t0, by their index.
struct AtT0 {
  std::vector<Affected> streams;
  std::vector<bool> hit, may_be_hit;
};

/// When a path's receiver last fenced it, up to t0, by stream and path.
std::map<std::pair<uint32_t, uint32_t>, uint64_t> fenced_by_t0(const Record& record, uint64_t t0_ns) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> fenced;
  for (const FenceStart& fence : record.fences) {
    if (fence.time_ns > t0_ns) break;
    if (fence.stream && fence.path != 0) fenced[{*fence.stream, fence.path}] = fence.time_ns;
  }
  return fenced;
}

AtT0 look_at_t0(const Record& record, const FaultWindow& window) {
  const size_t count = record.streams.size();
  AtT0 at_t0{std::vector<Affected>(count), std::vector<bool>(count), std::vector<bool>(count)};
  const uint64_t recently = recently_ns(record, window.t0_ns);
  const auto fenced = fenced_by_t0(record, window.t0_ns);
  const auto note = [&](const Delivery& d) {
    // Of several NICs it has left the one on which it has fenced its path.
    if (const auto left = fenced.find({d.stream, d.path});
        window.spread && left != fenced.end() && d.time_ns <= left->second)
      return;
    const Stream& stream = record.streams[d.stream];
    at_t0.hit[d.stream] = at_t0.hit[d.stream] || hits(window, stream, d);
    at_t0.may_be_hit[d.stream] = at_t0.may_be_hit[d.stream] || may_hit(window, stream, d);
  };
  const auto look = [&](const std::vector<Delivery>& all, auto&& then) {
    for (const Delivery& d : all) {
      if (d.time_ns > window.t0_ns) break;
      then(at_t0.streams[d.stream], d);
      if (window.spread && d.time_ns >= recently) note(d);
    }
  };
  look(record.deliveries,
       [](Affected& stream, const Delivery& d) { stream.last_before = stream.at_t0 = &d; });
  look(record.path_uses, [](Affected& stream, const Delivery& use) {
    if (!stream.last_before || stream.last_before->bytes == 0) stream.last_before = &use;
    if (!stream.at_t0 || use.time_ns > stream.at_t0->time_ns) stream.at_t0 = &use;
  });
  for (size_t s = 0; s < count; ++s) {
    const Affected& stream = at_t0.streams[s];
    if (stream.at_t0 && stream.last_before->time_ns >= recently)
      note(*stream.at_t0);
    else
      at_t0.hit[s] = at_t0.may_be_hit[s] = false;
  }
  return at_t0;
}

}  // namespace

uint64_t open_operation_end(const Record& record, uint64_t t0_ns) {
  uint64_t end = t0_ns;
  for (const OperationSpan& operation : record.operations) {
    if (operation.span.begin_ns > t0_ns || operation.span.end_ns <= t0_ns) continue;
    if (!operation.complete) return UINT64_MAX;
    end = std::max(end, operation.span.end_ns);
  }
  return end;
}

std::map<uint32_t, Affected> affected_streams(const Record& record, const FaultWindow& window) {
  std::map<uint32_t, Affected> streams;
  const AtT0 at_t0 = look_at_t0(record, window);
  const std::vector<Affected>& before = at_t0.streams;
  for (uint32_t s = 0; s < before.size(); ++s)
    if (at_t0.hit[s]) streams[s] = before[s];
  if (window.single_qp) {
    // Of all streams on the NIC only some use the QP that was hit: those that were fenced on it, when any
    // was. One that has come back to the NIC just before t0 may have delivered nothing over it yet.
    std::map<uint32_t, Affected> fenced;
    for (const FenceStart& fence : record.fences) {
      if (!fence.stream || fence.time_ns < window.t0_ns || fence.time_ns > last_fence_ns(record, window))
        continue;
      const uint32_t s = *fence.stream;
      if ((fits(fence, window.targets) || streams.count(s)) && before[s].at_t0 && !fenced.count(s) &&
          !explained_by_later(window, fence, window.t0_ns)) {
        fenced[s] = before[s];
        fenced[s].left_path = fence.path;
      }
    }
    if (!fenced.empty()) streams = std::move(fenced);
  }
  for (const Delivery& d : record.deliveries) {
    if (d.time_ns <= window.t0_ns) continue;
    if (d.time_ns > window.end_ns) break;
    const auto found = streams.find(d.stream);
    if (found == streams.end()) continue;
    Affected& stream = found->second;
    stream.after.push_back(&d);
    const bool moved = window.spread           ? !hits(window, record.streams[d.stream], d)
                       : stream.left_path != 0 ? d.path != stream.left_path
                                               : on_another_path(d, *stream.at_t0);
    if (moved && !stream.first_moved) stream.first_moved = &d;
  }
  return streams;
}

bool may_affect_others(const Record& record, const FaultWindow& window) {
  const AtT0 at_t0 = look_at_t0(record, window);
  for (size_t s = 0; s < at_t0.streams.size(); ++s)
    if (at_t0.may_be_hit[s] && !at_t0.hit[s]) return true;
  return false;
}

const FenceStart* answering_fence(const Record& record, const FaultWindow& window) {
  const uint64_t until = last_fence_ns(record, window);
  const uint64_t met = window.takes_away ? open_operation_end(record, window.t0_ns) : window.t0_ns;
  for (const FenceStart& fence : record.fences) {
    if (fence.time_ns < window.t0_ns || !fits(fence, window.targets)) continue;
    if (fence.time_ns > until) return nullptr;
    if (!explained_by_later(window, fence, met) && !explained_by_earlier(record, window, fence))
      return &fence;
  }
  return nullptr;
}

uint64_t used_until_ns(const Record& record, uint64_t from_ns, uint64_t to_ns) {
  // Asked for every delivery of every affected stream: no search from the first operation.
  auto operation = std::lower_bound(record.operations.begin(), record.operations.end(), from_ns,
                                    [](const OperationSpan& o, uint64_t t) { return o.span.begin_ns < t; });
  for (; operation != record.operations.end() && operation->span.begin_ns <= to_ns; ++operation)
    if (operation->complete && operation->span.end_ns <= to_ns) return operation->span.begin_ns;
  return to_ns;
}

std::vector<Interval> silences(const Record& record, const FaultWindow& window,
                               const std::map<uint32_t, Affected>& streams, double longest_ms) {
  std::vector<Interval> silences;
  for (const auto& [id, stream] : streams) {
    uint64_t previous_ns = stream.last_before->time_ns;
    const auto look = [&](uint64_t time_ns) {
      const uint64_t from = record.open.elapsed(previous_ns);
      const uint64_t until = record.open.elapsed(used_until_ns(record, previous_ns, time_ns));
      if (until > from && double(until - from) > longest_ms * 1e6) silences.push_back({from, until});
      previous_ns = std::max(previous_ns, time_ns);
    };
    for (const Delivery* d : stream.after) look(d->time_ns);
    look(std::max(window.end_ns, window.t0_ns));
  }
  return merged(std::move(silences));
}

}  // namespace r2bench
