// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/limits.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace r2bench {
namespace {

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

double healthy_time(ModeKind mode, const NodeLoad& load) {
  if ((mode == ModeKind::kBalance || mode == ModeKind::kAllReduce) && some_live_far(load))
    return least_time(by_socket(load), std::vector<double>(load.demand.size(), 1.0), load.nic_socket,
                      load.far_cost);
  double busiest = 0;
  for (size_t k = 0; k < load.demand.size(); ++k) {
    double own = 0;
    for (size_t s = 0; s < load.demand[k].size(); ++s)
      own += load.demand[k][s] * (load.nic_socket[k] == int(s) ? 1 : load.far_cost);
    busiest = std::max(busiest, own);
  }
  return busiest;
}

double allreduce_limit(const std::vector<std::vector<double>>& capacity, const NodeLoad& load) {
  const double nodes = double(capacity.size());
  double sum = 0, least = 1;
  for (const auto& node : capacity) {
    const double left = shared_limit({node}, load);
    sum += left;
    least = std::min(least, left);
  }
  if (least <= 0) return 0;
  if (nodes < 2) return least;
  const double bound = std::max(1 / least, 2 * (nodes - 1) / sum);
  return std::min(1.0, 2 * (nodes - 1) / nodes / bound);
}

double shared_limit(const std::vector<std::vector<double>>& capacity, const NodeLoad& load) {
  const double healthy = healthy_time(ModeKind::kBalance, load);
  if (healthy == 0) return 1;
  double limit = 1;
  for (const auto& node : capacity)
    limit = std::min(limit, healthy / least_time(by_socket(load), node, load.nic_socket, load.far_cost));
  return limit;
}

}  // namespace r2bench
