// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/gpu_delay.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/base/log.h"
#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/memory/gpu_copy.h"
#include "harness/vhca/memory/gpu_memory.h"

namespace vhca {
namespace {

constexpr std::uint64_t kPublished = 1ull << 32;
constexpr std::uint64_t kLookAtNotesNs = 200'000;
constexpr std::uint64_t kFlushPatienceNs = 2'000'000'000;

void sleep_ns(std::uint64_t ns) {
  const timespec length{0, static_cast<long>(ns)};
  ::nanosleep(&length, nullptr);
}

struct DelayedRegion {
  std::size_t slot;
  std::uint32_t nic;
  std::uint64_t address;  // in GPU memory
  std::size_t bytes;
  char* shadow;
  PendingTable* table;
  std::uint64_t table_offset;
};

// A published write, as its owner found it.
struct Waiting {
  const DelayedRegion* region;
  PendingWrite* note;
  std::uint64_t first, last, since_ns;  // addresses in GPU memory
  bool chosen;
};

// The owner's regions and the thread that looks after them. A forked child has none.
class Visibility {
 public:
  Visibility(Fabric& fabric, ProcessId self, std::uint64_t delay_ns)
      : pid(::getpid()), fabric_(fabric), self_(self), delay_ns_(delay_ns) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals go to the program's threads
    thread_ = std::thread([this] { look_after(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Visibility() {
    stop_ = true;
    thread_.join();
  }

  const pid_t pid;

  void add(const DelayedRegion& region) {
    const std::lock_guard guard(lock_);
    regions_.push_back(region);
  }

  // True: it was the last one.
  bool remove(std::size_t slot) {
    const std::lock_guard guard(lock_);
    const auto it = std::find_if(regions_.begin(), regions_.end(),
                                 [=](const DelayedRegion& region) { return region.slot == slot; });
    if (it == regions_.end()) return false;
    make_visible([&](const Waiting& waiting) { return waiting.region == &*it; });
    ::munmap(it->shadow, it->bytes);
    free_pages(fabric_, self_, it->table_offset, sizeof(PendingTable));
    regions_.erase(it);
    return regions_.empty();
  }

  void flush(std::uint32_t nic) {
    const std::lock_guard guard(lock_);
    make_visible([nic](const Waiting& waiting) { return waiting.region->nic == nic; });
  }

 private:
  void look_after() {
    ::pthread_setname_np(::pthread_self(), "vhca-visible");
    while (!stop_) {
      sleep_ns(kLookAtNotesNs);
      const std::lock_guard guard(lock_);
      for (const DelayedRegion& region : regions_) {
        const std::uint64_t asked = region.table->asked.load();
        if (asked == region.table->answered.load()) continue;
        make_visible([&](const Waiting& waiting) { return waiting.region->nic == region.nic; });
        region.table->answered.store(asked);
      }
      const std::uint64_t now = now_ns();
      make_visible([&](const Waiting& waiting) { return waiting.since_ns + delay_ns_ <= now; });
    }
  }

  // Needs the lock. Those that `choose` names, and before each of them what came earlier from the same NIC,
  // or to the same bytes: late bytes do not overwrite newer ones.
  template <typename F>
  void make_visible(F&& choose) {
    std::vector<Waiting> all;
    bool any = false;
    for (const DelayedRegion& region : regions_)
      for (PendingWrite& note : region.table->writes) {
        const std::uint64_t word = note.word.load(std::memory_order_acquire);
        if (word == 0) continue;
        if (!(word & kPublished)) {  // its writer is at it, or was killed
          std::uint64_t seen = word;
          if (process_liveness(fabric_, static_cast<ProcessId>(word)) == Liveness::kDead)
            note.word.compare_exchange_strong(seen, 0);
          continue;
        }
        const std::uint64_t first = region.address + note.offset;
        all.push_back({&region, &note, first, first + note.bytes, note.since_ns, false});
        any |= all.back().chosen = choose(all.back());
      }
    if (!any) return;
    std::stable_sort(all.begin(), all.end(),
                     [](const Waiting& a, const Waiting& b) { return a.since_ns < b.since_ns; });
    for (std::size_t i = all.size(); i-- > 0;)
      for (std::size_t later = i + 1; later < all.size() && !all[i].chosen; ++later)
        all[i].chosen =
            all[later].chosen && (all[later].region->nic == all[i].region->nic ||
                                  (all[i].first < all[later].last && all[later].first < all[i].last));
    for (const Waiting& waiting : all) {
      if (!waiting.chosen) continue;
      const std::uint64_t offset = waiting.first - waiting.region->address;
      copy_gpu(fabric_, self_, {reinterpret_cast<void*>(gpu_reference(waiting.region->slot) + offset), self_},
               {waiting.region->shadow + offset, self_}, waiting.last - waiting.first, nullptr);
      waiting.note->word.store(0, std::memory_order_release);
    }
  }

  Fabric& fabric_;
  const ProcessId self_;
  const std::uint64_t delay_ns_;
  std::mutex lock_;  // guards the following
  std::vector<DelayedRegion> regions_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The one of the process. Never destroyed at its end: threads may outlive static destructors, and a forked
// child has the parent's without the thread.
struct Current {
  std::mutex lock;
  std::shared_ptr<Visibility> visibility;
  std::vector<std::shared_ptr<Visibility>> of_parents;
};
Current& current() {
  static Current* const instance = new Current;
  return *instance;
}

std::shared_ptr<Visibility> visibility() {
  Current& its = current();
  const std::lock_guard guard(its.lock);
  return its.visibility && its.visibility->pid == ::getpid() ? its.visibility : nullptr;
}

}  // namespace

std::optional<std::uint64_t> visibility_delay_ms() {
  const char* const text = std::getenv("VHCA_DELAY_VISIBILITY");
  if (!text) return std::nullopt;
  std::uint64_t ms = 0;
  const char* const end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, ms);
  if (error == std::errc() && read == end && ms >= 1 && ms <= 60000) return ms;
  log_line(
      "VHCA_DELAY_VISIBILITY=%s is no number of milliseconds from 1 to 60000: GPU memory cannot be "
      "registered",
      text);
  return 0;
}

bool delay_region(Fabric& fabric, ProcessId self, std::size_t slot, std::size_t bytes, std::uint32_t nic,
                  GpuRegion& region) {
  const auto delay = visibility_delay_ms();
  void* const shadow =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED) return false;
  const std::uint64_t offset = allocate_pages(fabric, self, sizeof(PendingTable));
  if (offset == 0 || !delay) {
    ::munmap(shadow, bytes);
    return false;
  }
  region.shadow = reinterpret_cast<std::uintptr_t>(shadow);
  region.pending = offset;
  Current& its = current();
  const std::lock_guard guard(its.lock);
  if (its.visibility && its.visibility->pid != ::getpid())
    its.of_parents.push_back(std::move(its.visibility));
  if (!its.visibility) its.visibility = std::make_shared<Visibility>(fabric, self, *delay * 1'000'000);
  its.visibility->add({slot, nic, region.address, bytes, static_cast<char*>(shadow),
                       at_offset<PendingTable>(fabric, offset), offset});
  return true;
}

void end_delay(std::size_t slot) {
  std::shared_ptr<Visibility> last;
  Current& its = current();
  const std::lock_guard guard(its.lock);
  if (its.visibility && its.visibility->pid == ::getpid() && its.visibility->remove(slot))
    last = std::move(its.visibility);
}

DelayedWrite::DelayedWrite(Fabric& fabric, const GpuRegion& region, ProcessId self, std::uint64_t offset,
                           std::uint64_t bytes)
    : note_(nullptr) {
  for (PendingWrite& note : at_offset<PendingTable>(fabric, region.pending)->writes) {
    std::uint64_t free = 0;
    if (note.word.load(std::memory_order_relaxed) != 0 || !note.word.compare_exchange_strong(free, self))
      continue;
    note.offset = offset;
    note.bytes = bytes;
    note_ = &note;
    return;
  }
}

DelayedWrite::~DelayedWrite() {
  if (note_) note_->word.store(0);
}

void DelayedWrite::publish() {
  note_->since_ns = now_ns();
  note_->word.fetch_or(kPublished, std::memory_order_release);
  note_ = nullptr;
}

MoveStatus flush_delayed(Fabric& fabric, const GpuRegion& region, ProcessId self, ProcessId owner) {
  auto& table = *at_offset<PendingTable>(fabric, region.pending);
  if (owner == self) {
    if (const auto ours = visibility()) ours->flush(region.nic);
    return MoveStatus::kOk;
  }
  const std::uint64_t ticket = table.asked.fetch_add(1) + 1;
  for (const std::uint64_t start = now_ns(); table.answered.load() < ticket;) {
    sleep_ns(kLookAtNotesNs / 4);
    if (!find_process(fabric, owner) || process_liveness(fabric, owner) == Liveness::kDead ||
        now_ns() - start > kFlushPatienceNs)
      return MoveStatus::kGone;
  }
  return MoveStatus::kOk;
}

}  // namespace vhca
