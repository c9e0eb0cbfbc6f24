// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/service/link_watches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace r2ccl {
namespace {

using balance::Capacities;
using balance::NicMeter;
using balance::PeerLinks;

bool is_slow(double rate) { return rate != PeerLinks::kUnknown && rate < PeerLinks::kFast; }

/// A slow rate that was measured again is another one: so much is worth telling.
constexpr double kWorthTelling = 0.02;

}  // namespace

struct LinkWatches::Watch {
  LinksWanted wanted;
  size_t nics;
  std::vector<NicMeter*> meters;  // of each peer's NICs in turn
  std::vector<PeerLinks> peers;
  std::vector<double> rates, told;

  Watch(LinksWanted what, std::span<const double> nominal, LinkMeters& all) : wanted(std::move(what)), nics(wanted.devices.size()) {
    std::array<double, Capacities::kMaxNics> of_group{};
    for (size_t i = 0; i < nics; ++i) of_group[i] = nominal[size_t(wanted.devices[i])];
    for (size_t i = 0; i < wanted.peers.size(); ++i)
      meters.push_back(all.of(wanted.devices[i % nics], wanted.peers[i]));
    peers.assign(wanted.peers.size() / nics, PeerLinks({of_group.data(), nics}));
    rates.assign(wanted.peers.size(), PeerLinks::kUnknown);
    told = rates;
  }

  void look(uint64_t now, std::span<const double> part, uint64_t planned, bool traffic) {
    if (wanted.tried)
      for (const size_t link : wanted.tried()) peers[link / nics].try_anew(link % nics);
    std::array<NicMeter::Reading, Capacities::kMaxNics> readings;
    for (size_t peer = 0; peer < peers.size(); ++peer) {
      for (size_t nic = 0; nic < nics; ++nic) readings[nic] = meters[peer * nics + nic]->read();
      peers[peer].take({readings.data(), nics}, now, part, planned, traffic);
      for (size_t nic = 0; nic < nics; ++nic) rates[peer * nics + nic] = peers[peer].rate(nic);
    }
  }
  bool has_news() const {
    for (size_t i = 0; i < rates.size(); ++i)
      if (is_slow(rates[i]) != is_slow(told[i]) || (is_slow(rates[i]) && std::abs(rates[i] - told[i]) > kWorthTelling))
        return true;
    return false;
  }
};

struct LinkWatches::Handle final : LinkWatch {
  Handle(LinkWatches& all, LinksWanted wanted, std::span<const double> nominal)
      : watches(all), watch(std::move(wanted), nominal, all.meters_) {
    const std::lock_guard lock(watches.mutex_);
    watches.watches_.push_back(&watch);
  }
  ~Handle() override {
    const std::lock_guard lock(watches.mutex_);
    std::erase(watches.watches_, &watch);
  }
  LinkWatches& watches;
  Watch watch;
};

std::unique_ptr<LinkWatch> LinkWatches::add(LinksWanted wanted, std::span<const double> nominal) {
  return std::make_unique<Handle>(*this, std::move(wanted), nominal);
}

void LinkWatches::look(uint64_t now, std::span<const double> part, uint64_t planned, bool traffic) {
  const std::lock_guard lock(mutex_);
  std::array<double, Capacities::kMaxNics> parts{};
  for (Watch* watch : watches_) {
    for (size_t i = 0; i < watch->nics; ++i) parts[i] = part[size_t(watch->wanted.devices[i])];
    watch->look(now, {parts.data(), watch->nics}, planned, traffic);
    if (!watch->has_news()) continue;
    watch->told = watch->rates;
    watch->wanted.changed(watch->told);
  }
}

}  // namespace r2ccl
