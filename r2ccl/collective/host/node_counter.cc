// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/node_counter.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace r2ccl::collective {
namespace {

constexpr size_t kViews = 8;  // that some tuner of the node may still need

}  // namespace

// Everything in it is 0 in the beginning, in memory of its own as in shared memory.
struct NodeCounter::Table {
  struct Slot {
    std::atomic<uint64_t> owner;  // 0: free
    std::atomic<uint64_t> begun;  // first operation that has not begun
    uint64_t padding[6];          // a cache line each
  };
  struct Engine {
    std::atomic<uint64_t> group;  // 0: free
    std::atomic<uint64_t> lacks;  // kNominal − its pace
  };
  struct Entry {
    std::atomic<uint64_t> from;
    std::atomic<uint64_t> epoch;
    std::atomic<uint64_t> least_bytes;
  };

  std::atomic<uint64_t> held;  // kNever − the first operation that is held: 0 when none is
  std::atomic<uint64_t> views;
  std::atomic<uint64_t> leader;
  std::atomic<uint32_t> failed;
  Slot slots[kMostTuners];
  Entry entries[kViews];
  Engine engines[kMostTuners];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

Result<std::shared_ptr<NodeCounter>> NodeCounter::make(const std::string& name, int tuners) {
  if (tuners < 1 || tuners > kMostTuners)
    return Error{ErrorCode::kInvalidArgument, std::to_string(tuners) + " ranks on a node"};
  std::shared_ptr<NodeCounter> counter(new NodeCounter);
  counter->tuners_ = tuners;
  if (tuners == 1) {
    counter->own_ = std::make_unique<Table>();
    counter->complete_ = true;
  } else {
    auto page = control::SharedPage::make(name, sizeof(Table));
    if (!page) return page.error();
    counter->page_ = std::move(*page);
  }
  counter->slot_ = counter->claim(0);
  return counter;
}

NodeCounter::~NodeCounter() {
  if (slot_ >= 0) table().slots[slot_].owner.store(0, std::memory_order_release);
}

NodeCounter::Table& NodeCounter::table() const {
  return own_ ? *own_ : *static_cast<Table*>(page_->memory());
}

int NodeCounter::claim(uint64_t number) {
  static std::atomic<uint32_t> made{0};
  const uint64_t self = uint64_t(uint32_t(getpid())) << 32 | (made++ + 1);
  for (int i = 0; i < kMostTuners; ++i) {
    Table::Slot& slot = table().slots[i];
    uint64_t free = 0;
    if (slot.owner.load(std::memory_order_relaxed) != 0) continue;
    // Its number is there before it counts: ~0 is "not yet".
    if (!slot.owner.compare_exchange_strong(free, ~uint64_t{0})) continue;
    slot.begun.store(number, std::memory_order_seq_cst);
    slot.owner.store(self, std::memory_order_seq_cst);
    return i;
  }
  return -1;
}

bool NodeCounter::complete() {
  const std::lock_guard lock(mutex_);
  if (complete_) return true;
  if (page_->tend()) slot_ = claim(next_);  // other memory: the slot is in the old one
  if (!page_->joined() || slot_ < 0) return false;
  int here = 0;
  for (const Table::Slot& slot : table().slots) {
    const uint64_t owner = slot.owner.load(std::memory_order_seq_cst);
    here += owner != 0 && owner != ~uint64_t{0};
  }
  return complete_ = here == tuners_;
}

bool NodeCounter::lead(uint64_t who) {
  const std::lock_guard lock(mutex_);
  uint64_t nobody = 0;
  return table().leader.compare_exchange_strong(nobody, who) || nobody == who;
}

Result<NodeCounter::Answer> NodeCounter::wait_for(uint64_t number, std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  for (int tries = 0;; ++tries) {
    {
      const std::lock_guard lock(mutex_);
      if (slot_ < 0) {  // never counted, so never complete
        next_ = number + 1;
        return Answer{};
      }
      Table& shared = table();
      std::atomic<uint64_t>& begun = shared.slots[slot_].begun;
      begun.store(number + 1, std::memory_order_seq_cst);
      if (number < kNever - shared.held.load(std::memory_order_seq_cst)) {
        next_ = number + 1;
        return answer_of(number);
      }
      begun.store(number, std::memory_order_seq_cst);
      if (error_) return *error_;
      if (shared.failed.load(std::memory_order_acquire) != 0)
        return Error{ErrorCode::kPeerGone, "the agreement on a new plan has failed on this node"};
    }
    if (std::chrono::steady_clock::now() >= until)
      return Error{ErrorCode::kPeerGone, "no decision on the algorithm of operation " +
                                             std::to_string(number) + " within " +
                                             std::to_string(at_most.count()) + " ms"};
    // A control round trip at most, as a rule. Other processes can only be asked.
    if (tries < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// Locked, after `number` was written down. Of the entries that begin at it or before, the newest.
NodeCounter::Answer NodeCounter::answer_of(uint64_t number) const {
  const Table& shared = table();
  const uint64_t count = shared.views.load(std::memory_order_seq_cst);
  for (uint64_t i = count; i > 0 && i + kViews > count; --i) {
    const Table::Entry& entry = shared.entries[(i - 1) % kViews];
    if (entry.from.load(std::memory_order_relaxed) > number) continue;
    return {entry.epoch.load(std::memory_order_relaxed), entry.least_bytes.load(std::memory_order_relaxed)};
  }
  return {};
}

CapacityCode NodeCounter::engine_pace(uint64_t who, CapacityCode own) {
  const std::lock_guard lock(mutex_);
  if (!complete_) return own;
  Table::Engine* mine = nullptr;
  uint64_t lacks = uint64_t(kNominal - own);
  for (Table::Engine& engine : table().engines) {
    if (engine.group.load(std::memory_order_acquire) == who)
      mine = &engine;
    else
      lacks = std::max(lacks, engine.lacks.load(std::memory_order_relaxed));
  }
  for (size_t i = 0; !mine && own < kNominal && i < kMostTuners; ++i) {
    uint64_t nobody = 0;
    Table::Engine& engine = table().engines[i];
    if (engine.group.compare_exchange_strong(nobody, who)) mine = &engine;
  }
  if (mine) mine->lacks.store(uint64_t(kNominal - own), std::memory_order_relaxed);
  return CapacityCode(kNominal - std::min<uint64_t>(lacks, kNominal - 1));
}

void NodeCounter::forget_engine(uint64_t who) {
  const std::lock_guard lock(mutex_);
  for (Table::Engine& engine : table().engines)
    if (engine.group.load(std::memory_order_acquire) == who) {
      engine.lacks.store(0, std::memory_order_relaxed);
      engine.group.store(0, std::memory_order_release);
    }
}

std::optional<uint64_t> NodeCounter::hold(uint64_t ahead) {
  const std::lock_guard lock(mutex_);
  if (!complete_) return std::nullopt;
  Table& shared = table();
  shared.held.store(kNever, std::memory_order_seq_cst);  // everything
  uint64_t most = 0, least = kNever;
  for (const Table::Slot& slot : shared.slots) {
    const uint64_t owner = slot.owner.load(std::memory_order_seq_cst);
    if (owner == 0 || owner == ~uint64_t{0}) continue;
    const uint64_t begun = slot.begun.load(std::memory_order_seq_cst);
    most = std::max(most, begun);
    least = std::min(least, begun);
  }
  // The entry that the next view overwrites must be needed by nobody: all are beyond the beginning of the one
  // behind it. (Who has written down `least` may still be looking for the view of the operation before.)
  const uint64_t count = shared.views.load(std::memory_order_relaxed);
  if (count >= kViews && shared.entries[(count + 1) % kViews].from.load(std::memory_order_relaxed) >= least) {
    shared.held.store(0, std::memory_order_seq_cst);
    return std::nullopt;
  }
  const uint64_t point = most + ahead;
  shared.held.store(kNever - point, std::memory_order_seq_cst);
  return point;
}

void NodeCounter::resume(uint64_t from, const std::optional<Answer>& answer) {
  const std::lock_guard lock(mutex_);
  Table& shared = table();
  if (answer && from != kNever) {
    const uint64_t count = shared.views.load(std::memory_order_relaxed);
    Table::Entry& entry = shared.entries[count % kViews];
    entry.from.store(from, std::memory_order_relaxed);
    entry.epoch.store(answer->epoch, std::memory_order_relaxed);
    entry.least_bytes.store(answer->least_bytes, std::memory_order_relaxed);
    shared.views.store(count + 1, std::memory_order_seq_cst);
  }
  error_.reset();
  shared.failed.store(0, std::memory_order_release);
  shared.held.store(0, std::memory_order_seq_cst);
}

void NodeCounter::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  error_ = error;
  table().failed.store(1, std::memory_order_release);
}

}  // namespace r2ccl::collective
