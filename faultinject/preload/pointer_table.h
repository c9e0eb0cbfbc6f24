// SPDX-License-Identifier: Apache-2.0
// From a provider's object to what we keep of it, for the hot path of the extended interface: a read is a
// hash, a load and a comparison, without a lock. Writers lock.
//
// By the verbs contract nobody uses an object while it is destroyed, so an entry found is alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace faultinject {

// Entry: a type with a member `const void* key`.
template <typename Entry, unsigned kRows>
class PointerTable {
 public:
  Entry* find(const void* key) const {
    for (uint64_t row = first(key);; row = (row + 1) % kRows) {
      Entry* entry = rows_[row].load(std::memory_order_acquire);
      if (entry == nullptr || entry->key == key) return entry;
    }
  }

  // Takes the place of an entry with the same key. False when the table is full.
  bool insert(std::shared_ptr<Entry> entry) {
    const std::lock_guard lock(mutex_);
    take_locked(entry->key);
    if (used_ + 1 >= kRows / 2) return false;
    for (uint64_t row = first(entry->key);; row = (row + 1) % kRows) {
      Entry* old = rows_[row].load(std::memory_order_relaxed);
      if (old != nullptr && old != &gone_) continue;
      used_ += old == nullptr;
      rows_[row].store(entry.get(), std::memory_order_release);
      kept_[entry.get()] = entry;
      return true;
    }
  }

  // nullptr where there is none.
  std::shared_ptr<Entry> take(const void* key) {
    const std::lock_guard lock(mutex_);
    return take_locked(key);
  }

  // Around a fork(), so that no other thread is in the middle of a change.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // Neighbours on the heap differ in their middle bits.
  static uint64_t first(const void* key) {
    return (uint64_t(key) >> 4) * 0x9e3779b97f4a7c15u >> 32 & (kRows - 1);
  }

  std::shared_ptr<Entry> take_locked(const void* key) {
    for (uint64_t row = first(key);; row = (row + 1) % kRows) {
      Entry* entry = rows_[row].load(std::memory_order_relaxed);
      if (entry == nullptr) return nullptr;
      if (entry->key != key) continue;
      rows_[row].store(&gone_, std::memory_order_release);
      const auto kept = kept_.extract(entry);
      return kept.mapped();
    }
  }

  static_assert((kRows & (kRows - 1)) == 0);
  std::atomic<Entry*> rows_[kRows] = {};
  Entry gone_;  // its key is nullptr
  unsigned used_ = 0;
  std::unordered_map<Entry*, std::shared_ptr<Entry>> kept_;
  std::mutex mutex_;
};

}  // namespace faultinject
