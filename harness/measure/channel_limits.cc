// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/channel_limits.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace r2bench {
namespace {

constexpr size_t kMaxSteps = 1'000'000;  // of the search; what it has found by then is good enough
constexpr double kLess = 1 - 1e-9;

struct Rail {
  size_t tx, rx;  // NICs
  bool operator==(const Rail&) const = default;
};

/// Where channels that have lost their home go.
class Placement {
 public:
  Placement(const std::vector<std::vector<NicState>>& nics, const Wiring& wiring)
      : nics_(nics), wiring_(wiring), count_(wiring.nic_socket.size()), load_(2 * nics.size() * count_, 0.0) {
    const std::set<const Connection*> struck = struck_channels();
    for (const Connection& channel : wiring.channels) {
      const Rail home{channel.tx_nic, channel.rx_nic};
      const bool works = alive(channel, home);
      if (works) add(channel, home, 1);
      if (!works || struck.contains(&channel)) moving_.push_back({&channel, rails_of(channel), 0});
    }
    // A struck channel that has no other rail is replaced at home.
    std::erase_if(moving_, [&](const Moving& m) {
      return m.rails.empty() && alive(*m.channel, {m.channel->tx_nic, m.channel->rx_nic});
    });
    std::stable_sort(moving_.begin(), moving_.end(),
                     [](const Moving& a, const Moving& b) { return a.channel->demand > b.channel->demand; });
  }

  /// Time of the busiest port; infinite when a channel has no rail.
  double time() {
    for (const Moving& m : moving_)
      if (m.rails.empty()) return std::numeric_limits<double>::infinity();
    for (Moving& m : moving_) place(m);
    while (steps_ < kMaxSteps && improve()) {
    }
    return busiest();
  }

 private:
  struct Moving {
    const Connection* channel;
    std::vector<Rail> rails;
    size_t at;  // of the rails
    const Rail& rail() const { return rails[at]; }
  };

  const NicState& nic(size_t node, size_t number) const { return nics_[node][number]; }
  size_t sending(size_t node, size_t nic) const { return 2 * (node * count_ + nic); }
  size_t receiving(size_t node, size_t nic) const { return sending(node, nic) + 1; }
  bool alive(const Connection& c, const Rail& rail) const {
    return nic(c.from, rail.tx).capacity > 0 && nic(c.to, rail.rx).capacity > 0;
  }
  double cost(size_t nic, int socket) const {
    return wiring_.nic_socket[nic] == socket ? 1 : wiring_.far_cost;
  }

  void add(const Connection& c, const Rail& rail, double sign) {
    load_[sending(c.from, rail.tx)] += sign * c.demand * cost(rail.tx, c.from_socket);
    load_[receiving(c.to, rail.rx)] += sign * c.demand * cost(rail.rx, c.to_socket);
  }
  double time_at(size_t port) const {
    const NicState& state = nic(port / 2 / count_, port / 2 % count_);
    return load_[port] > 0 && state.capacity > 0 ? load_[port] / state.capacity : 0;
  }
  double time_of(const Connection& c, const Rail& rail) const {
    return std::max(time_at(sending(c.from, rail.tx)), time_at(receiving(c.to, rail.rx)));
  }
  double busiest() const {
    double most = 0;
    for (size_t port = 0; port < load_.size(); ++port) most = std::max(most, time_at(port));
    return most;
  }

  /// Those that lost a queue pair: of each NIC what it sends first, as senders choose.
  std::set<const Connection*> struck_channels() const {
    std::set<const Connection*> struck;
    for (size_t node = 0; node < nics_.size(); ++node)
      for (size_t number = 0; number < count_; ++number) {
        int lost = nic(node, number).lost_queue_pairs;
        for (const bool sends : {true, false})
          for (const Connection& c : wiring_.channels) {
            if (lost == 0) break;
            const bool here =
                sends ? c.from == node && c.tx_nic == number : c.to == node && c.rx_nic == number;
            if (here && struck.insert(&c).second) --lost;
          }
      }
    return struck;
  }

  std::vector<Rail> rails_of(const Connection& c) const {
    std::vector<Rail> rails;
    const auto consider = [&](const Rail& rail) {
      if (alive(c, rail) && rail != Rail{c.tx_nic, c.rx_nic}) rails.push_back(rail);
    };
    for (size_t tx = 0; tx < count_; ++tx) consider({tx, (c.rx_nic + tx + count_ - c.tx_nic) % count_});
    if (rails.empty() && !alive(c, {c.tx_nic, c.rx_nic}))
      for (size_t tx = 0; tx < count_; ++tx)
        for (size_t rx = 0; rx < count_; ++rx) consider({tx, rx});
    return rails;
  }

  /// Onto the rail where it is done first; of equals, where the two ports have the least together. It must
  /// not be on any. Returns when it is done.
  double place(Moving& m) {
    std::pair<double, double> best{std::numeric_limits<double>::infinity(), 0};
    for (size_t at = 0; at < m.rails.size(); ++at) {
      const Rail& rail = m.rails[at];
      add(*m.channel, rail, 1);
      const std::pair<double, double> now{
          time_of(*m.channel, rail),
          time_at(sending(m.channel->from, rail.tx)) + time_at(receiving(m.channel->to, rail.rx))};
      add(*m.channel, rail, -1);
      if (now < best) best = now, m.at = at;
    }
    add(*m.channel, m.rail(), 1);
    return best.first;
  }

  /// Takes a channel off a busiest port. False when no move and no exchange does.
  bool improve() {
    const double limit = busiest() * kLess;
    for (Moving& m : moving_) {
      if (time_of(*m.channel, m.rail()) < limit) continue;
      const size_t was = m.at;
      steps_ += m.rails.size();
      add(*m.channel, m.rail(), -1);
      if (place(m) < limit) return true;
      add(*m.channel, m.rail(), -1);
      m.at = was;
      add(*m.channel, m.rail(), 1);
      if (exchange(m, limit)) return true;
    }
    return false;
  }

  /// Of channels that carry different amounts, or pay differently for crossing sockets.
  bool exchange(Moving& m, double limit) {
    for (Moving& other : moving_) {
      if (++steps_ > kMaxSteps) return false;
      const auto to = std::find(m.rails.begin(), m.rails.end(), other.rail());
      const auto back = std::find(other.rails.begin(), other.rails.end(), m.rail());
      if (m.rail() == other.rail() || to == m.rails.end() || back == other.rails.end()) continue;
      const auto swap = [&](size_t at, size_t other_at) {
        add(*m.channel, m.rail(), -1);
        add(*other.channel, other.rail(), -1);
        m.at = at;
        other.at = other_at;
        add(*m.channel, m.rail(), 1);
        add(*other.channel, other.rail(), 1);
      };
      const size_t at = m.at, other_at = other.at;
      swap(size_t(to - m.rails.begin()), size_t(back - other.rails.begin()));
      if (std::max(time_of(*m.channel, m.rail()), time_of(*other.channel, other.rail())) < limit) return true;
      swap(at, other_at);
    }
    return false;
  }

  const std::vector<std::vector<NicState>>& nics_;
  const Wiring& wiring_;
  const size_t count_;  // NICs of a node
  std::vector<double> load_;
  std::vector<Moving> moving_;
  size_t steps_ = 0;
};

bool lacks_something(const NicState& nic) { return nic.capacity <= 0 || nic.lost_queue_pairs > 0; }

}  // namespace

double channel_limit(ModeKind mode, const std::vector<std::vector<NicState>>& nics, const Wiring& wiring) {
  if (mode == ModeKind::kBaseline)
    for (const auto& node : nics)
      if (std::any_of(node.begin(), node.end(), lacks_something)) return 0;
  const std::vector<std::vector<NicState>> whole(nics.size(),
                                                 std::vector<NicState>(wiring.nic_socket.size()));
  const double healthy = Placement(whole, wiring).time();
  return healthy > 0 ? std::min(1.0, healthy / Placement(nics, wiring).time()) : 1;
}

}  // namespace r2bench
