// SPDX-License-Identifier: Apache-2.0
// The memory of histories. Each runs in a process of its own, and most of the time of such a process in the
// kernel would go by with pages that it touches for the first time. So histories that run one after the other
// share theirs: what the operators new return in the process of a history lies there, and is zero when the
// history begins. It is for one thread, and gives back in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace r2ccl::simulation {

class Arena {
 public:
  /// Shared with the processes that are forked from now on. nullptr: there is none, and they use the heap:
  /// the system refuses it, or a sanitizer is to see each object.
  static Arena* make();
  /// In the process of a history: from now on the operators new take from it.
  void enter();

  /// nullptr: it is full.
  void* allocate(size_t bytes);
  /// For as long as the history lasts, and not cleared: whoever takes much, and uses little of it, clears
  /// that.
  void* take_uncleared(size_t bytes);
  /// Makes its pages known to this process: all at once, not one after the other when they are touched.
  static void map(void* memory, size_t bytes);
  /// Of this process; nullptr: it has entered none.
  static Arena* current();
  void give_back(void* object);
  bool has(const void* object) const {
    const auto* const at = static_cast<const std::byte*>(object);
    return at >= begin() && at < end();
  }

  static constexpr size_t kAlignment = 64;  ///< of objects that are larger than kSmall
  static constexpr size_t kSmall = 1024;

 private:
  static constexpr size_t kBytes = size_t{64} << 20;  // of addresses; few of them are used
  static constexpr size_t kStep = 16;  // between sizes that are small; larger ones are a quarter apart
  static constexpr size_t kSizes = kSmall / kStep + 64;

  struct Block {  // lies before each object
    uint64_t padding;
    uint64_t size;  // which
  };
  struct Free {
    Free* next;
  };
  static_assert(sizeof(Block) == kStep);

  const std::byte* begin() const { return reinterpret_cast<const std::byte*>(this + 1); }
  const std::byte* end() const { return reinterpret_cast<const std::byte*>(this) + kBytes; }

  std::byte* next_ = nullptr;       // behind all blocks
  std::byte* uncleared_ = nullptr;  // what is, from here to the end
  std::array<Free*, kSizes> free_{};
};

}  // namespace r2ccl::simulation
