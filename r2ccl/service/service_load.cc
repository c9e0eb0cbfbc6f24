// SPDX-License-Identifier: Apache-2.0
// How the sending channels of this process lie on its NICs, and, in mode 1 once one of them has left home,
// those of the node's other processes: so that channels away from home are spread over the NICs that are
// left.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/service/service.h"

namespace r2ccl {
namespace {

constexpr uint64_t kLoadLookNs = 100 * kNsPerMs;
constexpr uint64_t kCapacityLookNs = kNsPerMs;

}  // namespace

std::vector<uint64_t> Service::nic_guids() const {
  std::vector<uint64_t> guids;
  for (const auto& device : context_.devices) guids.push_back(device.guid() ^ uint64_t(device.port()) << 56);
  return guids;
}

const NicLoad& Service::load(bool shared) {
  if (!shared && !context_.load_stale) return load_;
  context_.load_stale = false;
  const Tick tick{now_ns(), alive_};
  load_.own = {};
  load_.behind = {};
  load_.leaving = {};
  bool away = false;
  for (const Entry& entry : entries_)
    if (entry.channel->is_sender()) away |= entry.channel->add_to(load_, tick);
  if (context_.balances() || (!node_load_ && !away)) return load_;
  if (!node_load_) node_load_.emplace("load/" + context_.config.node_scope, context_.process, nic_guids());
  if (!shared) return load_;
  balance::Demand own;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic)
    if (load_.own[nic] > 0) own.add(0, nic, load_.own[nic]);
  const balance::Demand all = node_load_->exchange(own, tick.now);
  for (size_t nic = 0; nic < context_.devices.size(); ++nic)
    load_.others[nic] = std::max(0.0, all.on(nic) - own.on(nic));
  return load_;
}

// Others are let in, and shown what this process has, for as long as it lives: it may be the one that serves.
void Service::look_at_load(const Tick& tick) {
  if (tick.now < next_load_look_) return;
  next_load_look_ = tick.now + kLoadLookNs;
  const bool away = std::any_of(entries_.begin(), entries_.end(),
                                [](const Entry& entry) { return entry.channel->is_away(); });
  if (node_load_ || away) load(true);
}

// What others plan with: only what is certain. A slow rate may be the other end's, and Balance sees to it.
// A NIC whose port says nothing may have failed all the same: then all channels that have their home there
// lack it, whoever their peers are. Where only those to one peer do, it is the peer's NIC that has failed.
void Service::look_at_capacity(const Tick& tick) {
  if (tick.now < next_capacity_look_) return;
  next_capacity_look_ = tick.now + kCapacityLookNs;
  std::array<int, wire::kMaxNics> homes{}, lacking{};
  for (const Entry& entry : entries_) {
    if (entry.channel->status() != Status::kReady && entry.channel->status() != Status::kMigrating) continue;
    ++homes[size_t(entry.channel->home_nic())];
    lacking[size_t(entry.channel->home_nic())] += entry.channel->lacks_home();
  }
  double sum = 0, nominal = 0;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    nominal += context_.capacities.nominal(nic);
    const bool failed = homes[nic] > 0 && lacking[nic] == homes[nic];
    const bool carries = !context_.nic_down[nic] && !context_.nic_unusable[nic] && !failed;
    if (carries) sum += context_.capacities.nominal(nic) * context_.capacities.by_port(nic);
    context_.nic_lacks[nic].store(carries ? 1 - context_.capacities.by_port(nic) : 1,
                                  std::memory_order_relaxed);
  }
  if (nominal > 0) context_.node_capacity.store(sum / nominal, std::memory_order_relaxed);
}

}  // namespace r2ccl
