// SPDX-License-Identifier: Apache-2.0
// Did the aimed histories meet what they aim at? Counts, for each aim, its faults that found what they
// follow, those that took effect, and the histories that showed the aim's sign.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "r2ccl/tests/simulation/plan.h"

namespace r2ccl::simulation {

class AimTally {
 public:
  void add(const Plan& plan, std::span<const Fate> fates, bool sign);
  /// A line for each aim; `each`: and one for each kind of fault that it has.
  void tell(bool each) const;
  /// What fewer than so many per cent of the histories (its sign) or faults (of one kind) of an aim met. Aims
  /// of fewer than kFew histories are left out.
  std::vector<std::string> missed(unsigned per_cent) const;
  static constexpr uint64_t kFew = 5;

 private:
  struct Count {
    uint64_t planned = 0, found = 0, struck = 0;
    void add(Fate fate);
  };
  struct OfAim {
    uint64_t histories = 0, signs = 0;
    bool has_sign = false;
    Count all;
    std::map<std::string, Count> of_label;
  };
  std::map<std::string, OfAim> aims_;
};

}  // namespace r2ccl::simulation
