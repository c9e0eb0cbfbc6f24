// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/world.h"

#include <algorithm>

#include "r2ccl/tests/model/executor.h"

namespace r2ccl::model {
// The sender has just begun to use its first path and its lanes, and the receiver is to hear of it.
World Model::initial() const {
  World world;
  Link& first = world.link[0];
  first.half[kSender] = {Life::kActive, Pair::kReady};
  first.half[kReceiver] = {Life::kStandby, Pair::kReady};
  Queue& words = world.to[kReceiver];
  words.item[words.count++] = {Say::kUse, 0, 1};
  for (int i = 0; i < bounds_.lanes; ++i) {
    Link& lane = world.link[size_t(1 + i)];
    lane.half[kSender] = {Life::kLane, Pair::kReady};
    lane.half[kReceiver] = {Life::kStandby, Pair::kReady};
    words.item[words.count++] = {Say::kLane, 0, world.next_path++};
  }
  return world;
}

const char* Model::at_end(const World& world) const {
  const auto is_over = [&](int end) { return world.failed[end] || world.closed[end]; };
  if (world.failed[kSender] || world.failed[kReceiver])
    return is_over(kSender) && is_over(kReceiver) ? nullptr
                                                  : "one end has failed, and the other waits for ever";
  const auto all = uint8_t((1u << bounds_.messages) - 1);
  if (world.completed != all || world.given_back != all)
    return "messages are open, and nothing happens any more";
  if (bounds_.closes) return is_over(kSender) && is_over(kReceiver) ? nullptr : "an end is never closed";
  const bool dead = bounds_.runs_out || std::all_of(world.link.begin(), world.link.begin() + bounds_.paths,
                                                    [](const Link& link) { return link.broken; });
  for (const int e : {kSender, kReceiver})
    if (const Phase phase = world.end(e).phase();
        phase != Phase::kRunning && (!dead || phase == Phase::kFencing))
      return "a migration does not end";
  for (int path = 1; path <= bounds_.paths && bounds_.lanes > 0; ++path) {
    const Half(&half)[2] = world.link[size_t(path - 1)].half;
    const auto carries = [&](int end) {
      return half[end].life == Life::kActive || half[end].life == Life::kLane;
    };
    if (carries(kSender) && !carries(kReceiver))
      return "the sender uses a path that the receiver does not look at";
    if (half[kSender].life == Life::kFencing || half[kReceiver].life == Life::kFencing)
      return "half of a path is left behind";
  }
  return nullptr;
}

size_t Model::bytes(const World& world, uint8_t* out) const {
  uint8_t* at = out;
  const auto kept = [&](uint64_t message) { return model::kept(bounds_, without_, world, message); };
  const auto put = [&at](auto value) { *at++ = uint8_t(value); };
  for (const int e : {kSender, kReceiver}) {
    const MigrationEnd& end = world.end(e);
    const bool running = end.phase() == Phase::kRunning;
    put(uint8_t(end.phase()) | world.failed[e] << 3);
    put(running ? 0 : unsigned(end.own_fence()) | unsigned(end.peer_fence()) << 2);
    put(end.epoch());
    put(running ? 0 : end.leaving());
    put(running ? 0 : end.target());
    const Queue& queue = world.to[e];
    put(queue.count);
    for (int i = 0; i < queue.count; ++i) {
      const Control& m = queue.item[size_t(i)];
      for (const auto value : {uint8_t(m.say), m.epoch, m.path, m.number}) put(value);
      for (const uint8_t value : m.segments) put(value);
      if (bounds_.gone > 0) put(m.cannot);
    }
  }
  if (bounds_.closes) {
    for (const int e : {kSender, kReceiver})
      put(world.closes[e] | world.closed[e] << 1 | world.peer_closed[e] << 2);
    put(world.answered | world.left_for_good << 1);
  }
  put(world.sender.ledger.next());
  put(world.sender.ledger.confirmed());
  if (bounds_.lanes > 0) {
    put(world.unwritten);
    put(world.rests);
    const auto segments = uint64_t(bounds_.segments);
    for (uint64_t message = 0; message < world.sender.ledger.next(); ++message) {
      uint8_t completed = 0;  // asked of the ledger itself: would the message be done without this one?
      for (uint64_t segment = 0; segment < segments && kept(message); ++segment) {
        auto rest = world.sender.ledger;
        for (uint64_t other = 0; other < segments; ++other)
          if (other != segment) rest.completed(message, uint32_t(other));
        completed |= uint8_t(rest.done(message, false) << segment);
      }
      put(completed);
      for (uint64_t segment = 0; segment < segments; ++segment)
        put(world.carrier[size_t(message * segments + segment)]);
    }
  }
  for (uint64_t message = 0; message < world.sender.ledger.next(); ++message)
    put(kept(message) ? 0x80 | world.sender.ledger.missing(message) : 0);
  put(world.receiver.ledger.next());
  put(world.receiver.ledger.received());
  for (uint64_t message = world.receiver.ledger.received(); message < world.receiver.ledger.next(); ++message)
    put(world.receiver.ledger.segments(message));
  put(world.sender.ack_query().asked() | world.sender.ack_query().lacked() << 1);
  put(world.sender.ack_query().reported());
  put(world.sender.ack_query().lacked() ? world.sender.ack_query().received() : 0);
  put(world.connected);
  put(world.given_back);
  put(world.completed);
  put(world.in_memory);
  put(world.receiver.told);
  for (const uint8_t value : world.ring) put(value);
  put(world.sender.report_first());
  for (const uint16_t value : world.sender.report()) put(value);
  put(world.opening);
  put(world.next_path);
  put(world.sender.awaited() | world.receiver.has_asked() << 1);
  put(world.asked);
  put(world.requested);
  put(world.again.say);
  if (world.again.say != Say::kNothing) {
    for (const auto value : {world.again.epoch, world.again.path, world.again.number, world.again_to})
      put(value);
    for (const uint8_t value : world.again.segments) put(value);
    put(world.again.cannot);
  }
  for (const auto value : {world.breaks, world.lost_completions, world.lost_immediates, world.lost_writes,
                           world.early, world.planned, world.duplicates, world.frozen, world.gone})
    put(value);
  for (int path = 1; path <= bounds_.paths; ++path) {
    const Link& l = world.link[size_t(path - 1)];
    for (const Half& h : l.half) put(uint8_t(h.life) | uint8_t(h.pair) << 3 | h.frozen << 6 | h.failed << 7);
    put(l.broken | l.stands_still << 1 | l.half[kSender].gone << 2 | l.half[kReceiver].gone << 3);
    for (const auto value : {l.posted, l.delivered, l.acknowledged, l.taken[0], l.taken[1],
                             l.lost_completions, l.lost_immediates, l.stale, l.writes})
      put(value);
    for (int i = 0; i < l.posted; ++i) put(l.queue >> 4 * i & 0xf);
    for (int i = 0; i < l.writes; ++i) put(l.write[size_t(i)]);
  }
  return size_t(at - out);
}

}  // namespace r2ccl::model
