// SPDX-License-Identifier: Apache-2.0
// Reads instances of 'who carries what' and prints what shares() makes of each, for shares_lp_test.py.
// In: one per line: rails, cost of crossing, a capacity and a nominal capacity per rail, number of groups,
// and for each its far rails as a number and a demand per rail. Out: the time that was planned, and the time
// of the busiest rail when everybody follows.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "r2ccl/balance/shares.h"

int main() {
  using namespace r2ccl::balance;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    size_t rails = 0, groups = 0;
    double far_cost = 1;
    in >> rails >> far_cost;
    std::vector<double> capacity(rails), nominal(rails), load(rails);
    for (double& c : capacity) in >> c;
    for (double& n : nominal) in >> n;
    Demand demand;
    in >> groups;
    for (size_t g = 0; g < groups; ++g) {
      unsigned far = 0;
      in >> far;
      for (size_t home = 0; home < rails; ++home) {
        double amount = 0;
        in >> amount;
        demand.add(uint8_t(far), home, amount);
      }
    }
    if (!in) {
      std::fprintf(stderr, "not an instance: %s\n", line.c_str());
      return 1;
    }
    const Rails all{capacity, nominal, far_cost};
    for (size_t g = 0; g < demand.count; ++g)
      for (size_t home = 0; home < rails; ++home) {
        const Group& group = demand.groups[g];
        const PerRail share = shares(all, demand, group.far, home);
        for (size_t rail = 0; rail < rails; ++rail)
          load[rail] += group.demand[home] * share[rail] * (group.far >> rail & 1 ? far_cost : 1);
      }
    double busiest = 0;
    for (size_t rail = 0; rail < rails; ++rail)
      if (load[rail] > 0) busiest = std::max(busiest, load[rail] / capacity[rail]);
    std::printf("%.12g %.12g\n", time_of(all, demand), busiest);
  }
  return 0;
}
