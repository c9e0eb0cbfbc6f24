// SPDX-License-Identifier: Apache-2.0
// The state of a QP (ibv_qp_state) and the number of its life in one word; RESET begins a new life. So
// whoever has found the QP in one life cannot change the next one.
#pragma once

#include <atomic>
#include <cstdint>

namespace vhca {

class QpState {
 public:
  static std::uint32_t state_of(std::uint32_t word) { return word & kStateMask; }
  static std::uint32_t life_of(std::uint32_t word) { return word >> kStateBits; }

  std::uint32_t word(std::memory_order order = std::memory_order_seq_cst) const { return word_.load(order); }
  std::uint32_t load(std::memory_order order = std::memory_order_seq_cst) const {
    return state_of(word_.load(order));
  }
  // The word must still be `seen`, which becomes what it is if it is not.
  bool change(std::uint32_t& seen, std::uint32_t state) {
    return word_.compare_exchange_strong(seen, (seen & ~kStateMask) | state);
  }
  // From that state, in whichever life; `expected` becomes the state if it is another one.
  bool compare_exchange_strong(std::uint32_t& expected, std::uint32_t state) {
    std::uint32_t seen = word_.load();
    while (state_of(seen) == expected)
      if (change(seen, state)) return true;
    expected = state_of(seen);
    return false;
  }
  // The owner only.
  void store(std::uint32_t state) {
    for (std::uint32_t seen = word_.load(); !change(seen, state);) {
    }
  }
  // RESET. The owner only. No life is number 0.
  void begin_life() {
    std::uint32_t seen = word_.load(), next;
    do {
      next = (life_of(seen) + 1) << kStateBits;
      if (next == 0) next = 1u << kStateBits;
    } while (!word_.compare_exchange_strong(seen, next));
  }

 private:
  static constexpr std::uint32_t kStateBits = 4;
  static constexpr std::uint32_t kStateMask = (1u << kStateBits) - 1;
  std::atomic<std::uint32_t> word_;
};

// The events that initiators have raised in one life of a QP, and that its owner's engine has not taken yet;
// in one word with the number of that life. So an initiator that was held up raises none in the next life.
class QpEvents {
 public:
  static constexpr std::uint32_t kEstablished = 1u << 31;  // COMM_EST was raised; once in a life

  // RESET, after QpState::begin_life(). The owner only.
  void begin_life(std::uint32_t life) { word_.store(static_cast<std::uint64_t>(life) << 32); }
  // `events`: 1 << ibv_event_type of each. Not where one of `unless` is there. False: nothing was raised.
  bool raise(std::uint32_t life, std::uint32_t events, std::uint32_t unless = 0) {
    std::uint64_t seen = word_.load();
    do {
      if (seen >> 32 != life || (seen & unless) != 0) return false;
    } while (!word_.compare_exchange_weak(seen, seen | events));
    return true;
  }
  std::uint32_t take() {
    // Each doorbell asks all queue pairs: mostly there is nothing, and who raises an event rings afterwards.
    if ((word_.load(std::memory_order_acquire) & kEvents) == 0) return 0;
    return static_cast<std::uint32_t>(word_.fetch_and(~kEvents) & kEvents);
  }
  bool any() const { return (word_.load() & kEvents) != 0; }

 private:
  static constexpr std::uint64_t kEvents = kEstablished - 1;
  std::atomic<std::uint64_t> word_;
};

}  // namespace vhca
