// SPDX-License-Identifier: Apache-2.0
// The buffers of all channels' messages, what belongs into them, and which of them NICs may touch just now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "r2ccl/tests/simulation/plan.h"

namespace r2ccl::simulation {

constexpr int kSlots = 8;  ///< of each end of a channel: message n lies in slot n % kSlots

class Buffers {
 public:
  explicit Buffers(const Plan& plan);

  uint8_t* slot(size_t channel, bool sender, int message) const;
  /// 0: the slot is the program's; else NICs may touch it.
  int& open(size_t channel, bool sender, int message);

  uint32_t size_of(size_t channel, int message) const;
  void fill(size_t channel, int message) const;
  /// The receiver's slot has what the sender filled in.
  bool holds(size_t channel, int message) const;

  struct Place {
    size_t channel;
    bool sender;  ///< its end
    bool open;
    size_t end;  ///< bytes from the beginning of the slot to the end of the range
  };
  /// Where that range lies; nullopt: it is no message's, or empty.
  std::optional<Place> find(const uint8_t* at, size_t bytes) const;

 private:
  uint32_t draw_size(size_t channel, int message) const;
  uint64_t first_word(size_t channel, int message) const {
    return (plan_.seed + channel * 1000003 + uint64_t(message)) * 0x9e3779b97f4a7c15;
  }
  static size_t index(size_t channel, bool sender, int message) {
    return (channel * 2 + !sender) * kSlots + size_t(message % kSlots);
  }

  const Plan& plan_;
  const size_t bytes_;
  uint8_t* const memory_;  // stays: NICs may touch it for as long as the history lasts
  std::vector<int> open_;
  std::vector<std::vector<uint32_t>> sizes_;  // of each channel's messages
};

}  // namespace r2ccl::simulation
