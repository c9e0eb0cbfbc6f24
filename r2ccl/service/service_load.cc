// SPDX-License-Identifier: Apache-2.0
// How the sending channels of this process lie on its NICs, and, in mode 1 once one of them has left home,
// those of the node's other processes: so that channels away from home are spread over the NICs that are
// left. From mode 2 on: what each NIC carries, and which carry less than their neighbours.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/service/service.h"

namespace r2ccl {
namespace {

constexpr uint64_t kLoadLookNs = 100 * kNsPerMs;
constexpr uint64_t kCapacityLookNs = kNsPerMs;
constexpr double kMbpsOfBytesPerNs = 8000;

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

// What each NIC carries, and where traffic has its home: while there is traffic.
void Service::look_at_rates(const Tick& tick) {
  if (tick.now < next_rate_look_) return;
  next_rate_look_ = tick.now + kRateLookMs * kNsPerMs;
  balance::Demand own;
  rates_wanted_ = false;
  for (const Entry& entry : entries_)
    if (entry.channel->in_demand(tick.now)) {
      own.add(entry.channel->far_rails(), size_t(entry.channel->home_nic()), 1);
      rates_wanted_ = true;
    }
  if (!rates_wanted_) {
    node_demand_->tend();
    return;
  }
  const balance::Demand before_demand = std::exchange(context_.demand, node_demand_->exchange(own, tick.now));
  std::array<double, wire::kMaxNics> part{};
  for (size_t nic = 0; nic < context_.devices.size(); ++nic)
    part[nic] = context_.demand.on(nic) > 0 ? own.on(nic) / context_.demand.on(nic) : 1;
  // Where others are not seen, a NIC that is home to none of ours counts as busy as those that are.
  if (!node_demand_->sees_others()) {
    double sum = 0, homes = 0;
    for (size_t nic = 0; nic < context_.devices.size(); ++nic) sum += own.on(nic), homes += own.on(nic) > 0;
    for (size_t nic = 0; nic < context_.devices.size(); ++nic)
      if (context_.demand.on(nic) <= 0 && homes > 0) context_.demand.add(0, nic, sum / homes);
  }
  if (context_.demand != before_demand) ++context_.demand_version;
  std::array<balance::NicMeter::Reading, wire::kMaxNics> readings;
  std::array<bool, wire::kMaxNics> before{};
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    readings[nic] = context_.meters[nic].read();
    before[nic] = context_.capacities.gray(nic);
  }
  const uint64_t planned = context_.planned_bytes.load(std::memory_order_relaxed);
  uint64_t bytes = 0;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) bytes += readings[nic].bytes;
  link_watches_.look(tick.now, part, planned, bytes != std::exchange(bytes_seen_, bytes));
  if (!context_.capacities.take(readings, tick.now, part, planned)) return;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic)
    context_.nic_carried[nic].store(kMbpsOfBytesPerNs * context_.capacities.most_carried(nic),
                                    std::memory_order_relaxed);
  tell_gray(before);
}

std::unique_ptr<LinkWatch> Service::watch_links(LinksWanted wanted) {
  std::vector<double> nominal;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) nominal.push_back(context_.capacities.nominal(nic));
  return link_watches_.add(std::move(wanted), nominal);
}

// NICs that carry less than their neighbours, or as much again.
void Service::tell_gray(const std::array<bool, wire::kMaxNics>& before) {
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    const bool gray = context_.capacities.gray(nic);
    if (gray == before[nic]) continue;
    const auto part = int(1000 * context_.capacities.relative(nic));
    trace::Writer::instance().emit(gray ? trace::EventType::kNicGray : trace::EventType::kNicWell,
                                   uint16_t(nic), 0, uint64_t(part));
    if (gray)
      R2_WARN(
          "NET/R2CCL: NIC %s of %s is degraded: it carries %d %% of what its neighbours do; the others carry "
          "the rest",
          context_.devices[nic].name().c_str(), context_.host.c_str(), part / 10);
    else
      R2_INFO("NET/R2CCL: NIC %s of %s has recovered: it carries as much as its neighbours",
              context_.devices[nic].name().c_str(), context_.host.c_str());
  }
}

}  // namespace r2ccl
