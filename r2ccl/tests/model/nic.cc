// SPDX-License-Identifier: Apache-2.0
// Queue pairs, NICs and the application's side of the data path: the world that does its worst.
#include <algorithm>
#include <bit>

#include "r2ccl/tests/model/executor.h"

namespace r2ccl::model {

// --- questions
// ----------------------------------------------------------------------------------------------

int Model::Executor::in_life(int end, Life life) {
  for (int path = 1; path <= bounds_.paths; ++path)
    if (half(end, path).life == life) return path;
  return 0;
}

bool Model::Executor::carries(int end, int path) {
  return half(end, path).life == Life::kActive || half(end, path).life == Life::kLane;
}

bool Model::Executor::suspected(int end) {
  for (int path = 1; path <= bounds_.paths; ++path)
    if (carries(end, path) && half(end, path).failed) return true;
  return false;
}

int Model::Executor::lanes(int end) {
  int count = 0;
  for (int path = 1; path <= bounds_.paths; ++path) count += half(end, path).life == Life::kLane;
  return count;
}

bool Model::Executor::open_messages(int end) const {
  if (end == kSender) return w.given_back != (1u << w.sender.ledger.next()) - 1 || w.sender.awaited();
  return w.receiver.ledger.received() < w.receiver.ledger.next();
}

bool Model::Executor::may_post() {
  const int message = int(w.sender.ledger.next());
  if (!running(kSender) || !active(kSender) || suspected(kSender) || message >= messages()) return false;
  if (message >= int(kWindow) && !(w.given_back >> (message - int(kWindow)) & 1)) return false;
  return w.ring[size_t(message) % kWindow] == message + 1;
}

bool Model::Executor::may_receive() {
  const int message = int(w.receiver.ledger.next());
  if (!running(kReceiver) || !active(kReceiver) || suspected(kReceiver) || message >= messages())
    return false;
  return message < int(kWindow) || (w.completed >> (message - int(kWindow)) & 1);
}

bool Model::Executor::may_confirm() {
  return running(kReceiver) && active(kReceiver) && strict() &&
         w.receiver.ledger.received() > w.receiver.told;
}

bool Model::Executor::may_deliver(int path) {
  const Link& l = link(path);
  return l.delivered < l.posted && takes_in(l.half[kReceiver].pair);
}

bool Model::Executor::may_acknowledge(int path) {
  const Link& l = link(path);
  return !l.broken && l.acknowledged < l.delivered && takes_in(l.half[kSender].pair);
}

bool Model::Executor::may_land(int path) {
  return link(path).writes > 0 && takes_in(link(path).half[kSender].pair);
}

bool Model::Executor::may_query_ack() {
  const int path = running(kSender) ? active(kSender) : 0;
  return path != 0 && !link(path).broken && open_messages(kSender) && !w.sender.ack_query().asked();
}

bool Model::Executor::may_request_retransmit() {
  const int path = running(kReceiver) ? active(kReceiver) : 0;
  return path != 0 && !link(path).broken && open_messages(kReceiver) && link(path).writes == 0;
}

bool Model::Executor::may_poll(int end, int path) {
  const Link& l = link(path);
  return !l.half[end].frozen && l.taken[end] < (end == kSender ? l.acknowledged : l.delivered);
}

bool Model::Executor::may_start_lane(int path) {
  return running(kSender) && active(kSender) && !suspected(kSender) && lanes(kSender) < bounds_.lanes &&
         half(kSender, path).life == Life::kStandby;
}

bool Model::Executor::stands_still(int path) {
  if (!running(kSender) || !carries(kSender, path) || !open_messages(kSender) ||
      !holds(Rule::kStuckQueuePair))
    return false;
  const Link& l = link(path);
  return l.stands_still || (l.half[kSender].frozen && l.taken[kSender] < l.posted);
}

bool Model::Executor::all_broken() const {
  return std::all_of(w.link.begin(), w.link.begin() + bounds_.paths, [](const Link& l) { return l.broken; });
}

bool Model::Executor::may_close(int end) const {
  const auto all = uint8_t((1u << messages()) - 1);
  return bounds_.closes && is_open(end) && !w.closes[end] &&
         (end == kSender ? w.given_back : w.completed) == all;
}

bool Model::Executor::may_ask_at_end() {
  return settles() && !w.peer_closed[kSender] && !w.sender.ack_query().asked();
}

bool Model::Executor::may_leave_for_nic() {
  return is_open(kSender) && w.peer_closed[kSender] && !w.left_for_good && open_messages(kSender) &&
         w.sender.waits_for_nic_alone();
}

bool Model::Executor::nothing_is_sent() {
  if (!is_open(kSender) || !w.left_for_good || !open_messages(kSender)) return false;
  for (int path = 1; path <= bounds_.paths; ++path)
    if (const Pair pair = half(kSender, path).pair; pair != Pair::kNone && pair != Pair::kDead) return false;
  return true;
}

bool Model::Executor::lacks(int end) const {
  return is_open(end) && w.peer_closed[end] && open_messages(end) &&
         (end == kReceiver || !w.sender.waits_for_nic_alone());
}

// --- the application and the data path
// ----------------------------------------------------------------------

void Model::Executor::post(const std::array<uint8_t, kSegmentsInAll>& on, bool refused) {
  const int message = int(w.sender.ledger.open(uint32_t(bounds_.segments)));
  for (int segment = 0; segment < bounds_.segments; ++segment)
    put(index_of(message, segment), on[size_t(segment)], refused && link(on[size_t(segment)]).broken);
  moved();
}

// The sender gives a segment to a path, which refuses it when it is about to be left.
void Model::Executor::put(int index, int path, bool refused) {
  w.carrier[size_t(index)] = uint8_t(path);
  w.unwritten &= uint8_t(~(1u << index));
  Half& h = half(kSender, path);
  if (refused) h.failed = true;
  if (h.failed) {
    w.unwritten |= uint8_t(1u << index);
    return;
  }
  Link& l = link(path);
  l.queue |= uint64_t(index) << 4 * l.posted++;
}

void Model::Executor::receive() {
  const int message = int(w.receiver.ledger.open());
  w.receiver.told = uint8_t(w.receiver.ledger.received());
  write(link(active(kReceiver)), line(message, w.receiver.told));
}

void Model::Executor::confirm() {
  w.receiver.told = uint8_t(w.receiver.ledger.received());
  write(link(active(kReceiver)), word(w.receiver.told));
}

void Model::Executor::poll(int end, int path) {
  Link& l = link(path);
  if (l.half[end].frozen) return;
  if (end == kReceiver) {
    for (; l.taken[kReceiver] < l.delivered; ++l.taken[kReceiver]) {
      const int index = nth(l, l.taken[kReceiver]);
      if (!(l.lost_immediates >> index & 1)) arrive(index);
    }
    return;
  }
  for (; l.taken[kSender] < l.acknowledged; ++l.taken[kSender]) {
    const int index = nth(l, l.taken[kSender]);
    if (l.lost_completions >> index & 1)
      l.stands_still = true;
    else
      w.sender.ledger.completed(uint64_t(message_of(index)), uint32_t(index % bounds_.segments));
  }
}

void Model::Executor::arrive(int index) {
  const int message = message_of(index);
  moved();
  const auto outcome = w.receiver.ledger.arrive(
      {uint32_t(message), uint32_t(index % bounds_.segments), uint32_t(bounds_.segments)}, 1);
  switch (outcome.arrival) {
    case Arrival::kSegment:
      break;
    case Arrival::kMessage:
      if ((w.in_memory & bits(message)) != bits(message))
        violate("a receive was reported before its data was there");
      w.completed |= uint8_t(1u << message);
      break;
    case Arrival::kDuplicate:
      violate("a segment was delivered twice");
      break;
    case Arrival::kUnknown:
      violate("an immediate without a message arrived");
  }
}

void Model::Executor::write(Link& l, uint8_t what) {
  if (l.writes == kMaxWrites) return violate("the model's bound: kMaxWrites");
  l.write[l.writes++] = what;
}

// --- the NIC
// ------------------------------------------------------------------------------------------------

void Model::Executor::land_in_memory(int index) {
  if (w.completed >> message_of(index) & 1)
    violate("a receive buffer was written after its receive had been reported");
  w.in_memory |= uint8_t(1u << index);
}

void Model::Executor::deliver(int path, bool mute) {
  Link& l = link(path);
  const int index = nth(l, l.delivered++);
  land_in_memory(index);
  if (mute) l.lost_immediates |= uint8_t(1u << index);
}

void Model::Executor::deliver_stale(int path) {
  Link& l = link(path);
  const int index = std::countr_zero(l.stale);
  l.stale &= uint8_t(l.stale - 1);
  land_in_memory(index);
  if (!w.violation) arrive(index);
}

void Model::Executor::acknowledge(int path, bool mute) {
  Link& l = link(path);
  const int index = nth(l, l.acknowledged++);
  if (mute) l.lost_completions |= uint8_t(1u << index);
}

void Model::Executor::land(int path, bool vanish) {
  Link& l = link(path);
  const uint8_t what = l.write[0];
  std::copy(l.write.begin() + 1, l.write.begin() + l.writes, l.write.begin());
  l.write[--l.writes] = 0;
  if (vanish) return;
  if (const int message = (what >> 4) - 1; message >= 0)
    w.ring[size_t(message) % kWindow] = uint8_t(message + 1);
  w.sender.ledger.confirmed(what & 0xf);
}

}  // namespace r2ccl::model
