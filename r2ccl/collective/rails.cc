// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/rails.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace r2ccl::collective {
namespace {

constexpr double kNearEnough = 1.003;  // of the bound
constexpr int kRounds = 150;
constexpr size_t kGrain = 1 << 10;          // messages begin at multiples of it: no element is cut
// Where the bound of each node's ports cannot be had for all nodes at once, some more time can.
constexpr double kTimes[] = {1.0, 1.02, 1.06, 1.15, 1.4};

using PerRail = std::array<double, kMostNics>;
enum Direction { kOut, kIn };

/// Shares of the form base · out[from] · in[to], scaled to one: those of the greatest entropy under limits for
/// each port. A port above its limit gets a smaller factor, one below it a greater one, up to 1.
class Scaling {
 public:
  Scaling(std::span<const Flow> flows, std::span<const double> weights, size_t rails)
      : flows_(flows), weights_(weights), rails_(rails), nodes_(weights.size() / rails), shares_(flows.size()) {
    for (auto& factor : factor_) {
      factor.resize(nodes_);
      for (PerRail& of : factor) of.fill(1);
    }
    spread();
  }

  /// The least time that any node needs for what it sends or receives, whatever the rails.
  double bound() const {
    double longest = 0;
    for (const Direction direction : {kOut, kIn}) {
      std::vector<double> amount(nodes_);
      for (const Flow& flow : flows_) amount[direction == kOut ? flow.from : flow.to] += flow.amount;
      for (size_t node = 0; node < nodes_; ++node) {
        double all = 0;
        for (size_t rail = 0; rail < rails_; ++rail) all += weights_[node * rails_ + rail];
        if (all > 0) longest = std::max(longest, amount[node] / all);
      }
    }
    return longest;
  }

  /// Brings the ports of one direction towards `time`.
  void limit(Direction direction, double time) {
    const auto load = loads(direction);
    for (size_t node = 0; node < nodes_; ++node)
      for (size_t rail = 0; rail < rails_; ++rail) {
        if (load[node][rail] <= 0) continue;
        const double room = time * weights_[node * rails_ + rail] / load[node][rail];
        double& factor = factor_[direction][node][rail];
        factor = std::clamp(factor * room, 1e-9, 1.0);
      }
    spread();
  }
  double busiest() const {
    double most = 0;
    for (const Direction direction : {kOut, kIn}) {
      const auto load = loads(direction);
      for (size_t node = 0; node < nodes_; ++node)
        for (size_t rail = 0; rail < rails_; ++rail)
          if (load[node][rail] > 0) most = std::max(most, load[node][rail] / weights_[node * rails_ + rail]);
    }
    return most;
  }
  const std::vector<PerRail>& shares() const { return shares_; }

 private:
  void spread() {
    for (size_t f = 0; f < flows_.size(); ++f) {
      double sum = 0;
      for (size_t rail = 0; rail < rails_; ++rail) {
        const uint32_t from = flows_[f].from, to = flows_[f].to;
        const double base = std::min(weights_[from * rails_ + rail], weights_[to * rails_ + rail]);
        sum += shares_[f][rail] = base * factor_[kOut][from][rail] * factor_[kIn][to][rail];
      }
      for (size_t rail = 0; rail < rails_ && sum > 0; ++rail) shares_[f][rail] /= sum;
    }
  }
  /// What goes over each NIC; flows without a common rail count nowhere.
  std::vector<PerRail> loads(Direction direction) const {
    std::vector<PerRail> load(nodes_, PerRail{});
    for (size_t f = 0; f < flows_.size(); ++f)
      for (size_t rail = 0; rail < rails_; ++rail)
        load[direction == kOut ? flows_[f].from : flows_[f].to][rail] += flows_[f].amount * shares_[f][rail];
    return load;
  }

  const std::span<const Flow> flows_;
  const std::span<const double> weights_;
  const size_t rails_, nodes_;
  std::vector<PerRail> shares_;                     // by flow
  std::array<std::vector<PerRail>, 2> factor_;      // by direction and node
};

/// In parts of kWhole, exactly that many together: what rounding leaves goes to the largest.
RailShares rounded(const PerRail& shares, size_t rails) {
  RailShares out{};
  uint32_t sum = 0;
  for (size_t rail = 0; rail < rails; ++rail) sum += out[rail] = uint32_t(std::floor(shares[rail] * kWhole));
  if (sum == 0) return even_shares(rails);
  *std::max_element(out.begin(), out.end()) += kWhole - std::min(sum, kWhole);
  return out;
}

}  // namespace

RailShares even_shares(size_t rails) {
  RailShares out{};
  for (size_t rail = 0; rail < rails; ++rail)
    out[rail] = kWhole / uint32_t(rails) + (rail < kWhole % rails ? 1 : 0);
  return out;
}

std::vector<RailShares> spread_flows(std::span<const Flow> flows, std::span<const double> weights, size_t rails) {
  Scaling scaling(flows, weights, rails);
  const double bound = scaling.bound();
  std::vector<PerRail> best = scaling.shares();
  double least = scaling.busiest();
  for (const double times : kTimes) {
    for (int round = 0; round < kRounds && least > bound * times * kNearEnough; ++round) {
      scaling.limit(kOut, bound * times);
      scaling.limit(kIn, bound * times);
      const double now = scaling.busiest();
      if (now >= least) continue;
      least = now;
      best = scaling.shares();
    }
    if (least <= bound * times * kNearEnough) break;
  }
  std::vector<RailShares> out;
  out.reserve(best.size());
  for (const PerRail& shares : best) out.push_back(rounded(shares, rails));
  return out;
}

double busiest_nic(std::span<const Flow> flows, std::span<const RailShares> shares, std::span<const double> weights,
                   size_t rails) {
  double most = 0;
  for (const Direction direction : {kOut, kIn}) {
    std::vector<double> load(weights.size());
    for (size_t f = 0; f < flows.size(); ++f)
      for (size_t rail = 0; rail < rails; ++rail)
        load[(direction == kOut ? flows[f].from : flows[f].to) * rails + rail] +=
            flows[f].amount * shares[f][rail] / kWhole;
    for (size_t nic = 0; nic < load.size(); ++nic)
      if (load[nic] > 0) most = std::max(most, load[nic] / std::max(weights[nic], 1e-12));
  }
  return most;
}

namespace {

bool differ_among(std::span<const double> nics) {
  return std::any_of(nics.begin(), nics.end(),
                     [&](double nic) { return differ(code_of(nic), code_of(nics[0])); });
}

/// What nodes send each other, and which flow each connection belongs to.
struct Flows {
  std::vector<Flow> flows;
  std::vector<size_t> of_connection;

  explicit Flows(const Schedule& schedule) {
    std::map<std::pair<uint32_t, uint32_t>, size_t> number;
    of_connection.reserve(schedule.connections.size());
    for (const Connection& connection : schedule.connections) {
      const auto [known, fresh] = number.try_emplace({connection.from, connection.to}, flows.size());
      if (fresh) flows.push_back({connection.from, connection.to, 0});
      flows[known->second].amount += connection.weight;
      of_connection.push_back(known->second);
    }
  }
};

}  // namespace

std::vector<RailShares> rail_shares(const Schedule& schedule, std::span<const double> nics, size_t rails) {
  if (rails < 2 || nics.size() != schedule.ranks * rails || !differ_among(nics)) return {};
  const Flows traffic(schedule);
  const auto of_flow = spread_flows(traffic.flows, nics, rails);
  std::vector<RailShares> shares;
  shares.reserve(schedule.connections.size());
  for (const size_t flow : traffic.of_connection) shares.push_back(of_flow[flow]);
  return shares;
}

double rails_need(const Schedule& schedule, std::span<const double> nics, size_t rails) {
  if (rails < 2 || nics.size() != schedule.ranks * rails || !differ_among(nics)) return 1;
  const Flows traffic(schedule);
  for (const Flow& flow : traffic.flows) {
    double common = 0;
    for (size_t rail = 0; rail < rails; ++rail)
      common = std::max(common, std::min(nics[flow.from * rails + rail], nics[flow.to * rails + rail]));
    if (flow.amount > 0 && common <= 0) return INFINITY;
  }
  const double ports = Scaling(traffic.flows, nics, rails).bound();
  const double busiest = busiest_nic(traffic.flows, spread_flows(traffic.flows, nics, rails), nics, rails);
  return ports > 0 ? std::max(1.0, busiest / ports) : 1;
}

void RailTurns::set(const RailShares& shares) {
  if (shares == shares_) return;
  shares_ = shares;
  credit_ = {};
}

const RailTurns::Message& RailTurns::next(size_t chunk, size_t posted, size_t most) {
  if (message_.bytes > 0) return message_;
  if (posted == 0)
    for (size_t i = 0; i < rails_; ++i) credit_[i] += int64_t(shares_[i]) * int64_t(chunk);
  size_t best = first_;
  int64_t credit = INT64_MIN;
  for (size_t i = 0; i < rails_; ++i) {
    const size_t rail = (first_ + i) % rails_;
    if (shares_[rail] > 0 && credit_[rail] > credit) credit = credit_[rail], best = rail;
  }
  const size_t left = chunk - posted, due = size_t(std::max<int64_t>(credit / kWhole, 0)) / kGrain * kGrain;
  size_t bytes = std::clamp(due, std::min(kLeastMessage, most), most);
  // Nothing that is smaller than a message stays behind.
  if (left < bytes + kLeastMessage && left <= most) bytes = left;
  message_ = {best, std::min(bytes, left)};
  return message_;
}

void RailTurns::took() {
  credit_[message_.rail] -= int64_t{kWhole} * int64_t(message_.bytes);
  message_ = {};
}

}  // namespace r2ccl::collective
