// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/limits.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace r2bench {
namespace {

constexpr size_t kMaxSteps = 100'000;  // of the search; what it has found by then is good enough

/// One node: where the channels of dead NICs go, so that the busiest NIC is done as early as possible. Exact
/// for what real nodes look like (a search that leaves out what cannot be better or is the same again).
class Migration {
 public:
  Migration(const std::vector<double>& capacity, const NodeLoad& load) : capacity_(capacity), load_(load) {
    for (size_t k = 0; k < capacity.size(); ++k) {
      double own = 0;
      for (size_t s = 0; s < load.demand[k].size(); ++s) own += cost(k, s) * load.demand[k][s];
      if (capacity[k] > 0)
        left_.push_back({k, own});
      else if (own > 0)
        homeless_.push_back(load.demand[k]);
    }
    std::sort(homeless_.rbegin(), homeless_.rend());
  }

  /// Time of the busiest NIC; infinite when no NIC is left.
  double time() {
    if (left_.empty()) return std::numeric_limits<double>::infinity();
    double now = 0;
    for (const Left& nic : left_) now = std::max(now, nic.load / capacity_[nic.nic]);
    place(0, now);
    return best_;
  }

 private:
  struct Left {
    size_t nic;
    double load;
  };

  double cost(size_t nic, size_t socket) const {
    return load_.nic_socket[nic] == int(socket) ? 1 : load_.far_cost;
  }

  void place(size_t group, double busiest) {
    if (busiest >= best_ || ++steps_ > kMaxSteps) return;
    if (group == homeless_.size()) {
      best_ = busiest;
      return;
    }
    struct Choice {
      double time;
      size_t at;
      double more;
    };
    std::vector<Choice> choices;
    for (size_t k = 0; k < left_.size(); ++k) {
      const bool seen = std::any_of(left_.begin(), left_.begin() + std::ptrdiff_t(k),
                                    [&](const Left& other) { return alike(other, left_[k]); });
      if (seen) continue;
      double more = 0;
      for (size_t s = 0; s < homeless_[group].size(); ++s)
        more += cost(left_[k].nic, s) * homeless_[group][s];
      choices.push_back({(left_[k].load + more) / capacity_[left_[k].nic], k, more});
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.time < b.time; });
    for (const Choice& choice : choices) {
      left_[choice.at].load += choice.more;
      place(group + 1, std::max(busiest, choice.time));
      left_[choice.at].load -= choice.more;
    }
  }
  bool alike(const Left& a, const Left& b) const {
    return a.load == b.load && capacity_[a.nic] == capacity_[b.nic] &&
           load_.nic_socket[a.nic] == load_.nic_socket[b.nic];
  }

  const std::vector<double>& capacity_;
  const NodeLoad& load_;
  std::vector<Left> left_;
  std::vector<std::vector<double>> homeless_;  // by socket
  double best_ = std::numeric_limits<double>::infinity();
  size_t steps_ = 0;
};

std::vector<double> by_socket(const NodeLoad& load) {
  std::vector<double> sum;
  for (const auto& nic : load.demand) {
    sum.resize(std::max(sum.size(), nic.size()), 0.0);
    for (size_t s = 0; s < nic.size(); ++s) sum[s] += nic[s];
  }
  return sum;
}

bool some_live_far(const NodeLoad& load) {
  for (size_t k = 0; k < load.demand.size(); ++k)
    for (size_t s = 0; s < load.demand[k].size(); ++s)
      if (load.demand[k][s] > 0 && load.nic_socket[k] != int(s)) return true;
  return false;
}

}  // namespace

double least_time(const std::vector<double>& demand, const std::vector<double>& capacity,
                  const std::vector<int>& nic_socket, double far_cost) {
  size_t sockets = demand.size();
  for (const int socket : nic_socket) sockets = std::max(sockets, size_t(socket) + 1);
  std::vector<double> wanted(sockets, 0.0), near(sockets, 0.0);
  std::copy(demand.begin(), demand.end(), wanted.begin());
  for (size_t k = 0; k < capacity.size(); ++k) near[size_t(nic_socket[k])] += std::max(capacity[k], 0.0);
  const double all = std::accumulate(near.begin(), near.end(), 0.0);
  const double work = std::accumulate(wanted.begin(), wanted.end(), 0.0);
  if (work <= 0) return 0;
  if (all <= 0) return std::numeric_limits<double>::infinity();

  // In time T socket s serves near[s] * T of its own; what is too much goes far, into what others have left
  // over. The balance of the two grows with T and is linear between the moments at which a socket is done
  // with its own.
  const auto balance = [&](double time) {
    double sum = 0;
    for (size_t s = 0; s < sockets; ++s) {
      const double room = near[s] * time - wanted[s];
      sum += room > 0 ? room / far_cost : room;
    }
    return sum;
  };
  std::vector<double> moments = {0};
  for (size_t s = 0; s < sockets; ++s)
    if (near[s] > 0) moments.push_back(wanted[s] / near[s]);
  std::sort(moments.begin(), moments.end());
  double from = 0;
  for (const double moment : moments) {
    if (balance(moment) >= 0) {
      const double low = balance(from), high = balance(moment);
      return high > low ? from + (moment - from) * -low / (high - low) : moment;
    }
    from = moment;
  }
  // All that have NICs are done with their own: each of them has room from here on.
  return from - balance(from) * far_cost / all;
}

namespace {

bool channels_stay_home(ModeKind mode) { return mode == ModeKind::kBaseline || mode == ModeKind::kMigrate; }

}  // namespace

double healthy_time(ModeKind mode, const NodeLoad& load) {
  const std::vector<double> whole(load.demand.size(), 1.0);
  return channels_stay_home(mode) || !some_live_far(load)
             ? Migration(whole, load).time()
             : least_time(by_socket(load), whole, load.nic_socket, load.far_cost);
}

double allreduce_limit(const std::vector<std::vector<double>>& capacity, const NodeLoad& load) {
  const double nodes = double(capacity.size());
  double sum = 0, least = 1;
  for (const auto& node : capacity) {
    const double left = bandwidth_limit(ModeKind::kAllReduce, {node}, load);
    sum += left;
    least = std::min(least, left);
  }
  if (least <= 0) return 0;
  if (nodes < 2) return least;
  const double bound = std::max(1 / least, 2 * (nodes - 1) / sum);
  return std::min(1.0, 2 * (nodes - 1) / nodes / bound);
}

double bandwidth_limit(ModeKind mode, const std::vector<std::vector<double>>& capacity,
                       const NodeLoad& load) {
  const bool alone = channels_stay_home(mode);
  const auto time_of = [&](const std::vector<double>& node) {
    return alone ? Migration(node, load).time()
                 : least_time(by_socket(load), node, load.nic_socket, load.far_cost);
  };
  const double healthy = healthy_time(mode, load);
  if (healthy == 0) return 1;
  double limit = 1;
  for (const auto& node : capacity) {
    if (mode == ModeKind::kBaseline && std::any_of(node.begin(), node.end(), [](double c) { return c <= 0; }))
      return 0;
    limit = std::min(limit, healthy / time_of(node));
  }
  return limit;
}

}  // namespace r2bench
