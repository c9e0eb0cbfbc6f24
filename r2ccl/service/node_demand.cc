// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/service/node_demand.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"

namespace r2ccl {
namespace {

constexpr uint32_t kLayout = 1;
constexpr uint64_t kStaleNs = 1000 * kNsPerMs;
constexpr double kMostDemand = 1e4;  // of a group on a NIC; more is no sensible number

/// Its process has ended, or sends nothing. A time to come is another clock's, or nonsense.
bool stale(uint64_t written, uint64_t now) { return written + kStaleNs < now || written > now + kStaleNs; }

}  // namespace

// Everything is a word that is read and written whole, so a process that is stopped or killed at any
// instruction holds up nobody. A reader that catches a writer in the middle takes the old and the new mixed,
// for one interval.
struct NodeDemand::Slot {
  std::atomic<uint64_t> process;  // 0: free
  std::atomic<uint64_t> written;  // CLOCK_MONOTONIC
  std::array<std::atomic<uint64_t>, balance::kMaxRails> guids;
  std::array<std::atomic<uint64_t>, balance::kMaxGroups> far;
  std::array<std::array<std::atomic<double>, balance::kMaxRails>, balance::kMaxGroups> demand;
};

struct NodeDemand::Table {
  static constexpr size_t kSlots = 64;
  std::array<Slot, kSlots> slots;
};

NodeDemand::NodeDemand(const std::string& scope, uint64_t process, std::vector<uint64_t> guids)
    : process_(process), guids_(std::move(guids)) {
  static_assert(std::atomic<double>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
  auto page = control::SharedPage::make("demand/" + std::to_string(kLayout) + "/" + scope, sizeof(Table));
  if (page)
    page_ = std::move(*page);
  else
    R2_WARN("NET/R2CCL: other processes' traffic is not taken into account: %s",
            page.error().message.c_str());
}

void NodeDemand::tend() {
  if (page_ && page_->tend()) slot_ = -1;
}

NodeDemand::Slot* NodeDemand::own_slot(uint64_t now) {
  if (!page_) return nullptr;
  auto& slots = static_cast<Table*>(page_->memory())->slots;
  if (slot_ >= 0 && slots[size_t(slot_)].process.load() == process_) return &slots[size_t(slot_)];
  for (size_t i = 0; i < Table::kSlots; ++i) {
    uint64_t holder = slots[i].process.load();
    const uint64_t written = slots[i].written.load();
    const bool free = holder == 0 || holder == process_ || stale(written, now);
    if (!free || !slots[i].process.compare_exchange_strong(holder, process_)) continue;
    slot_ = int(i);
    return &slots[i];
  }
  return nullptr;  // more processes than slots: the others do not see this one
}

balance::Demand NodeDemand::exchange(const balance::Demand& own, uint64_t now) {
  tend();
  balance::Demand all = own;
  processes_ = 1;
  Slot* mine = own_slot(now);
  if (mine) {
    for (size_t nic = 0; nic < balance::kMaxRails; ++nic)
      mine->guids[nic].store(nic < guids_.size() ? guids_[nic] : 0);
    for (size_t g = 0; g < balance::kMaxGroups; ++g) {
      mine->far[g].store(g < own.count ? own.groups[g].far : 0);
      for (size_t nic = 0; nic < balance::kMaxRails; ++nic)
        mine->demand[g][nic].store(g < own.count ? own.groups[g].demand[nic] : 0);
    }
    mine->written.store(now);
  }
  if (!page_) return all;
  for (Slot& slot : static_cast<Table*>(page_->memory())->slots) {
    const uint64_t written = slot.written.load();
    if (&slot == mine || slot.process.load() == 0 || stale(written, now)) continue;
    ++processes_;
    std::array<int, balance::kMaxRails> here;  // what this process calls its NICs
    for (size_t nic = 0; nic < here.size(); ++nic) {
      const uint64_t guid = slot.guids[nic].load();
      const auto at = std::find(guids_.begin(), guids_.end(), guid);
      here[nic] = guid == 0 || at == guids_.end() ? -1 : int(at - guids_.begin());
    }
    for (size_t g = 0; g < balance::kMaxGroups; ++g) {
      const uint64_t theirs = slot.far[g].load();
      uint8_t far = 0;
      for (size_t nic = 0; nic < here.size(); ++nic)
        if (here[nic] >= 0 && theirs >> nic & 1) far |= uint8_t(1u << here[nic]);
      for (size_t nic = 0; nic < here.size(); ++nic) {
        const double amount = slot.demand[g][nic].load();
        if (here[nic] >= 0 && amount > 0 && amount < kMostDemand) all.add(far, size_t(here[nic]), amount);
      }
    }
  }
  return all;
}

}  // namespace r2ccl
