// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/buffers.h"

#include <cstdlib>
#include <cstring>

#include "r2ccl/tests/simulation/arena.h"

namespace r2ccl::simulation {
namespace {

constexpr uint64_t kStep = 0xd1342543de82ef95;  // between the words of a message

void* new_memory(size_t bytes) {
  Arena* const arena = Arena::current();
  void* const memory = arena ? arena->take_uncleared(bytes) : std::malloc(bytes);
  if (!memory) std::abort();
  return memory;
}

}  // namespace

Buffers::Buffers(const Plan& plan)
    : plan_(plan),
      bytes_(plan.channels.size() * 2 * kSlots * kSlotBytes + 64),
      memory_(static_cast<uint8_t*>(new_memory(bytes_))),
      open_(plan.channels.size() * 2 * kSlots),
      sizes_(plan.channels.size()) {
  for (size_t channel = 0; channel < sizes_.size(); ++channel) {
    const Plan::Line& line = plan.channels[channel];
    for (int message = 0; message <= line.messages; ++message)
      sizes_[channel].push_back(draw_size(channel, message));
    for (const bool sender : {true, false})
      for (int number = 0; number < kSlots; ++number) {
        Arena::map(slot(channel, sender, number), line.most_bytes);
        std::memset(slot(channel, sender, number), 0, line.most_bytes);
      }
  }
}

uint8_t* Buffers::slot(size_t channel, bool sender, int message) const {
  return memory_ + index(channel, sender, message) * kSlotBytes;
}

int& Buffers::open(size_t channel, bool sender, int message) {
  return open_[index(channel, sender, message)];
}

uint32_t Buffers::size_of(size_t channel, int message) const { return sizes_[channel][size_t(message)]; }

uint32_t Buffers::draw_size(size_t channel, int message) const {
  Random random(plan_.seed ^ (channel << 32) ^ uint64_t(message) << 8);
  const uint32_t most = plan_.channels[channel].most_bytes;
  return random.chance(10) ? 0 : random.chance(30) ? most : uint32_t(random.below(most + 1));
}

// Loops over a number of words that is known when they begin: then a compiler takes several words at once.
void Buffers::fill(size_t channel, int message) const {
  uint8_t* const out = slot(channel, true, message);
  const size_t bytes = size_of(channel, message), words = bytes / 8;
  uint64_t word = first_word(channel, message);
#pragma GCC unroll 4
  for (size_t i = 0; i < words; ++i, word += kStep) std::memcpy(out + 8 * i, &word, 8);
  std::memcpy(out + 8 * words, &word, bytes % 8);
}

bool Buffers::holds(size_t channel, int message) const {
  const uint8_t* const at = slot(channel, false, message);
  const size_t bytes = size_of(channel, message), words = bytes / 8;
  uint64_t word = first_word(channel, message), differs = 0;
#pragma GCC unroll 4
  for (size_t i = 0; i < words; ++i, word += kStep) {
    uint64_t there;
    std::memcpy(&there, at + 8 * i, 8);
    differs |= there ^ word;
  }
  return differs == 0 && std::memcmp(at + 8 * words, &word, bytes % 8) == 0;
}

std::optional<Buffers::Place> Buffers::find(const uint8_t* at, size_t bytes) const {
  if (at < memory_ || at >= memory_ + bytes_ || bytes == 0) return std::nullopt;
  const size_t offset = size_t(at - memory_), which = offset / kSlotBytes;
  return Place{which / kSlots / 2, which / kSlots % 2 == 0, open_[which] != 0, offset % kSlotBytes + bytes};
}

}  // namespace r2ccl::simulation
