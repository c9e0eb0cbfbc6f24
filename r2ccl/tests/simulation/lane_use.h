// SPDX-License-Identifier: Apache-2.0
// Balance: a lane that its sender wants carries a share of the traffic.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "r2ccl/tests/simulation/faults.h"

namespace r2ccl::simulation {

class LaneUse {
 public:
  LaneUse(const Plan& plan, const Job& job, Findings& findings)
      : plan_(plan), job_(job), findings_(findings) {}
  /// Looks at the lanes now and then, from now on.
  void start();
  void event(const trace::Event& event, int process);

 private:
  struct Lane {
    int first = 0;     ///< messages posted when it was last known to carry, or not to be wanted
    int posted = 0;    ///< … and when it was looked at last
    Time looked = 0;   ///< then
    bool seen = true;  ///< by this look
  };
  using Key = std::pair<size_t, uint32_t>;  // channel, path
  void look();
  void look_at(const End& sender, const Path& path);

  const Plan& plan_;
  const Job& job_;
  Findings& findings_;
  std::map<Key, Lane> lanes_;
};

}  // namespace r2ccl::simulation
