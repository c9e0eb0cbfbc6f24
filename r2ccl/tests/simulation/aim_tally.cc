// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/aim_tally.h"

#include <cstdio>

#include "r2ccl/tests/simulation/aims.h"

namespace r2ccl::simulation {
namespace {

using Number = unsigned long long;

bool is_less(uint64_t part, uint64_t all, unsigned per_cent) { return part * 100 < all * per_cent; }

}  // namespace

void AimTally::Count::add(Fate fate) {
  ++planned;
  found += fate != Fate::kWaits;
  struck += fate == Fate::kStruck;
}

void AimTally::add(const Plan& plan, std::span<const Fate> fates, bool sign) {
  if (!plan.aim) return;
  OfAim& aim = aims_[plan.aim->name];
  ++aim.histories;
  aim.signs += sign;
  aim.has_sign = plan.aim->sign.first != trace::EventType::kNone;
  for (size_t i = 0; i < plan.faults.size() && i < fates.size(); ++i) {
    aim.all.add(fates[i]);
    aim.of_label[plan.faults[i].label()].add(fates[i]);
  }
}

void AimTally::tell(bool each) const {
  for (const auto& [name, aim] : aims_) {
    std::printf("aim '%s', %llu histories: %llu of %llu aimed faults found their event, %llu took effect",
                name.c_str(), Number(aim.histories), Number(aim.all.found), Number(aim.all.planned),
                Number(aim.all.struck));
    if (aim.has_sign) std::printf("; its sign in %llu", Number(aim.signs));
    std::printf("\n");
    for (const auto& [label, count] : aim.of_label)
      if (each)
        std::printf("    %s: %llu of %llu found it, %llu took effect\n", label.c_str(), Number(count.found),
                    Number(count.planned), Number(count.struck));
  }
}

std::vector<std::string> AimTally::missed(unsigned per_cent) const {
  std::vector<std::string> missed;
  for (const auto& [name, aim] : aims_) {
    if (aim.histories < kFew) continue;
    if (aim.has_sign && is_less(aim.signs, aim.histories, per_cent))
      missed.push_back("'" + name + "': its sign");
    for (const auto& [label, count] : aim.of_label)
      if (is_less(count.struck, count.planned, per_cent)) missed.push_back("'" + name + "': " + label);
  }
  return missed;
}

}  // namespace r2ccl::simulation
