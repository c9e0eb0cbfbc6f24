// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/striped_transport.h"

#include <algorithm>
#include <utility>

namespace r2ccl::collective {

void StripedTransport::widen(std::vector<std::unique_ptr<ChannelTransport>> stripes, GroupPlan* plan) {
  for (auto& stripe : stripes) {
    for (const End& end : ends_) stripe->end(end.peer, end.sends, end.ordinal);
    stripes_.push_back(std::move(stripe));
  }
  if (stripes_.size() > 1 && plan)
    for (const auto& stripe : stripes_) stripe->follow(*plan);
  for (End& end : ends_) end.turns = turns_of(end);
}

uint32_t StripedTransport::end(uint32_t peer, bool sends, uint32_t ordinal) {
  uint32_t number = 0;
  for (const auto& stripe : stripes_) number = stripe->end(peer, sends, ordinal);
  if (number == ends_.size()) {
    ends_.push_back({peer, ordinal, sends});
    ends_.back().turns = turns_of(ends_.back());
  }
  return number;
}

Result<bool> StripedTransport::progress() {
  bool moved = false;
  for (const auto& stripe : stripes_) {
    auto step = stripe->progress();
    if (!step) return step.error();
    moved |= *step;
  }
  return moved;
}

bool StripedTransport::connected() const {
  return std::all_of(stripes_.begin(), stripes_.end(), [](const auto& stripe) { return stripe->connected(); });
}

RailTurns::Message StripedTransport::next(uint32_t number, size_t chunk, size_t posted, size_t most) {
  End& end = ends_[number];
  const RailTurns::Message& message = end.turns.next(chunk, posted, most);
  end.rail = message.rail;
  return message;
}

template <typename Post>
Result<void*> StripedTransport::post(uint32_t number, Post&& post) {
  End& end = ends_[number];
  auto message = post(*stripes_[end.rail]);
  if (message && *message) end.turns.took();
  return message;
}

Result<void*> StripedTransport::isend(uint32_t end, const void* data, size_t bytes, Registration* registration) {
  return post(end, [&](ChannelTransport& stripe) { return stripe.isend(end, data, bytes, registration); });
}

Result<void*> StripedTransport::irecv(uint32_t end, void* data, size_t bytes, Registration* registration) {
  return post(end, [&](ChannelTransport& stripe) { return stripe.irecv(end, data, bytes, registration); });
}

}  // namespace r2ccl::collective
