#include "harness/measure/limits.h"

#include <algorithm>
#include <numeric>

namespace r2bench {
namespace {

double busiest(const std::vector<double>& load, const std::vector<double>& capacity) {
  double worst = 0;
  for (size_t k = 0; k < load.size(); ++k)
    if (load[k] > 0) worst = std::max(worst, load[k] / capacity[k]);
  return worst;
}

/// One node under live migration: time of the busiest NIC, in units of one channel on a healthy NIC.
/// 0 when no NIC is left.
double migrated_time(const std::vector<double>& capacity, const std::vector<int>& channels) {
  std::vector<double> load(capacity.size(), 0);
  std::vector<int> homeless;
  bool any_left = false;
  for (size_t k = 0; k < capacity.size(); ++k) {
    if (capacity[k] > 0) {
      load[k] = channels[k];
      any_left = true;
    } else if (channels[k] > 0) {
      homeless.push_back(channels[k]);
    }
  }
  if (!any_left) return 0;
  std::sort(homeless.rbegin(), homeless.rend());
  for (int group : homeless) {
    size_t best = capacity.size();
    for (size_t k = 0; k < capacity.size(); ++k)
      if (capacity[k] > 0 && (best == capacity.size() ||
                              (load[k] + group) / capacity[k] < (load[best] + group) / capacity[best]))
        best = k;
    load[best] += group;
  }
  return busiest(load, capacity);
}

}  // namespace

double bandwidth_limit(ModeKind mode, const std::vector<std::vector<double>>& capacity,
                       const std::vector<int>& channels) {
  const double healthy = busiest(std::vector<double>(channels.begin(), channels.end()),
                                 std::vector<double>(channels.size(), 1.0));
  if (healthy == 0) return 1;
  double limit = 1;
  for (const auto& node : capacity) {
    const bool dead = std::any_of(node.begin(), node.end(), [](double c) { return c <= 0; });
    double kept = 0;
    if (mode == ModeKind::kBaseline && dead) return 0;
    if (mode == ModeKind::kBaseline || mode == ModeKind::kMigrate) {
      const double time = migrated_time(node, channels);
      kept = time > 0 ? healthy / time : 0;
    } else {
      const double total = std::accumulate(node.begin(), node.end(), 0.0);
      const double all = double(std::accumulate(channels.begin(), channels.end(), 0));
      kept = total > 0 ? healthy * total / all : 0;
    }
    limit = std::min(limit, kept);
  }
  return limit;
}

std::vector<int> channels_per_nic(int channels, int nics) {
  std::vector<int> per_nic(size_t(nics), 0);
  for (int c = 0; c < channels; ++c) ++per_nic[size_t(c % nics)];
  return per_nic;
}

}  // namespace r2bench
