// SPDX-License-Identifier: Apache-2.0
// From a provider's object to what we keep of it, for the hot path of the extended interface: a read is a
// hash and some loads and comparisons, without a lock. Writers lock.
//
// By the verbs contract nobody uses an object while it is destroyed, so an entry found is alive. Of all
// others a read looks at the keys only, which lie in the table itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace faultinject {

// Entry: a type with a member `const void* key`, which is not nullptr. Grows as needed.
template <typename Entry>
class PointerTable {
 public:
  PointerTable() {
    use_new_rows(kFewestRows);
    rows_.store(&current(), std::memory_order_release);
  }

  // nullptr where there is none.
  Entry* find(const void* key) const {
    const Rows& rows = *rows_.load(std::memory_order_acquire);
    for (uint64_t at = rows.first(key);; at = rows.next(at)) {
      const void* known = rows.row[at].key.load(std::memory_order_acquire);
      if (known == key) return rows.row[at].entry.load(std::memory_order_relaxed);
      if (known == nullptr) return nullptr;
    }
  }

  // Takes the place of an entry with the same key.
  void insert(std::shared_ptr<Entry> entry) {
    const std::lock_guard lock(mutex_);
    take_locked(entry->key);
    if ((used_ + 1) * 2 > rows()) rehash();
    put(*entry);
    const void* key = entry->key;
    kept_[key] = std::move(entry);
  }

  // nullptr where there is none.
  std::shared_ptr<Entry> take(const void* key) {
    const std::lock_guard lock(mutex_);
    return take_locked(key);
  }

  // Around a fork(), so that no other thread is in the middle of a change.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  // For tests.
  uint64_t rows() const { return rows_.load(std::memory_order_relaxed)->row.size(); }
  uint64_t rehashes() const { return all_rows_.size() - 1; }

 private:
  static constexpr uint64_t kFewestRows = 1024;
  struct Row {
    std::atomic<const void*> key{nullptr};  // nullptr: empty since the beginning, as far as readers can tell
    std::atomic<Entry*> entry{nullptr};     // set before its key
  };
  struct Rows {
    explicit Rows(uint64_t count) : row(count) {}  // a power of two
    // Neighbours on the heap differ in their middle bits.
    uint64_t first(const void* key) const {
      return (uint64_t(key) >> 4) * 0x9e3779b97f4a7c15u >> 32 & (row.size() - 1);
    }
    uint64_t next(uint64_t at) const { return (at + 1) & (row.size() - 1); }
    uint64_t previous(uint64_t at) const { return (at - 1) & (row.size() - 1); }
    std::vector<Row> row;
  };
  // The key of a row whose entry was taken: what lies behind it is still to be found.
  static const void* gone() {
    static constexpr char mark = 0;
    return &mark;
  }

  Rows& current() { return *all_rows_.back(); }

  void use_new_rows(uint64_t count) {
    all_rows_.push_back(std::make_unique<Rows>(count));
    used_ = 0;
  }

  // Half of the rows are in use, by entries or by what is left of them. The old rows stay, as somebody may be
  // reading them still.
  void rehash() {
    use_new_rows(std::max(kFewestRows, std::bit_ceil(uint64_t(kept_.size() + 1) * 4)));
    for (const auto& [key, entry] : kept_) put(*entry);
    rows_.store(&current(), std::memory_order_release);
  }

  void put(Entry& entry) {
    Rows& rows = current();
    for (uint64_t at = rows.first(entry.key);; at = rows.next(at)) {
      const void* known = rows.row[at].key.load(std::memory_order_relaxed);
      if (known != nullptr && known != gone()) continue;
      used_ += known == nullptr;
      rows.row[at].entry.store(&entry, std::memory_order_relaxed);
      rows.row[at].key.store(entry.key, std::memory_order_release);
      return;
    }
  }

  std::shared_ptr<Entry> take_locked(const void* key) {
    const auto kept = kept_.extract(key);
    if (!kept) return nullptr;
    Rows& rows = current();
    uint64_t at = rows.first(key);
    while (rows.row[at].key.load(std::memory_order_relaxed) != key) at = rows.next(at);
    rows.row[at].key.store(gone(), std::memory_order_release);
    // With an empty row behind it nothing lies behind, and so it goes on towards the front.
    if (rows.row[rows.next(at)].key.load(std::memory_order_relaxed) != nullptr) return kept.mapped();
    for (; rows.row[at].key.load(std::memory_order_relaxed) == gone(); at = rows.previous(at), used_--)
      rows.row[at].key.store(nullptr, std::memory_order_release);
    return kept.mapped();
  }

  std::atomic<Rows*> rows_{nullptr};  // the last of all_rows_
  std::vector<std::unique_ptr<Rows>> all_rows_;
  uint64_t used_ = 0;  // rows that are not empty
  std::unordered_map<const void*, std::shared_ptr<Entry>> kept_;
  std::mutex mutex_;
};

}  // namespace faultinject
