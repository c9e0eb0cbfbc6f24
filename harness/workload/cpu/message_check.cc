// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/message_check.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "harness/workload/cpu/operation.h"
#include "harness/workload/cpu/pattern.h"

namespace r2bench {

namespace {
constexpr size_t kElements = 8;   // of a message, that are looked at
constexpr uint64_t kReach = 16;   // messages before and behind the next one: twice the slots of a connection
constexpr uint64_t kSeen = 64;    // bits of seen_
constexpr size_t kElementSize = 8;  // of the widest type
}  // namespace

MessageCheck::MessageCheck(const RankConfig& config, int shift) : config_(config), shift_(shift) {}

uint64_t MessageCheck::lost() const { return lost_ + uint64_t(std::popcount(~seen_)); }

bool MessageCheck::carries(uint64_t message, const void* data, size_t bytes) {
  const Step& step = steps_[message % steps_.size()];
  const size_t element = element_size(config_.dtype), count = std::min(step.count, kElements);
  if (count == 0 || bytes != step.count * element) return false;
  ranks_.clear();
  const size_t first = content_of(config_, shift_, step, ranks_);
  alignas(kElementSize) char expected[kElements * kElementSize];
  fill_sums(config_.data(), expected, first, count, ranks_,
            data_operation(config_.seed, number_of(message / steps_.size())));
  return std::memcmp(expected, data, count * element) == 0;
}

uint64_t MessageCheck::number_of(uint64_t index) const {
  const uint64_t latest = numbers_[(begun_ - 1) % numbers_.size()];
  return index < begun_ ? numbers_[index % numbers_.size()] : latest + (index - begun_ + 1);
}

void MessageCheck::note(uint64_t message) {
  if (message < next_) {
    const uint64_t back = next_ - 1 - message;
    if (back >= kSeen || seen_ >> back & 1)
      ++duplicated_;
    else
      seen_ |= uint64_t{1} << back;
    return;
  }
  for (; next_ <= message; ++next_) {
    lost_ += (seen_ >> (kSeen - 1) & 1) == 0;
    seen_ <<= 1;
  }
  seen_ |= 1;
}

uint64_t MessageCheck::recognise(const void* data, size_t bytes) {
  ++recognised_;
  if (carries(next_, data, bytes)) return next_;
  for (uint64_t away = 1; away <= kReach; ++away) {
    if (carries(next_ + away, data, bytes)) return next_ + away;
    if (away <= next_ && carries(next_ - away, data, bytes)) return next_ - away;
  }
  --recognised_;
  return next_;
}

void MessageCheck::on_message(void* data, size_t bytes) {
  if (steps_.empty()) return;
  const uint64_t message = recognise(data, bytes);
  note(message);
  if (message != received_++) poison(data, std::min(bytes, kElements * element_size(config_.dtype)));
}

}  // namespace r2bench
