// SPDX-License-Identifier: Apache-2.0
// A real fault as commands: what is done, how the kernel (or the switch) says that it is so, and what puts it
// back. Pure but for what `keep` reads; nothing here changes anything.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "faultinject/control/effects.h"
#include "faultinject/plan/plan.h"
#include "harness/real/nic_place.h"

namespace r2bench {

/// A real fault that cannot be made, and why: one sentence for the user.
class RealFaultError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A question to the machine, and the answer that is wanted.
struct Probe {
  enum class Kind {
    kFileSays,     ///< the first word of file `of` is `wanted`
    kPathGone,     ///< there is no `of`
    kPathThere,    ///< there is
    kOutputHas,    ///< command `of` prints `wanted`
    kOutputLacks,  ///< it does not
    kSucceeds,     ///< command `of` ends with 0
    kFails,        ///< it ends with 1 to 123; more is no answer: it could not run
  };
  Kind kind = Kind::kSucceeds;
  std::string of, wanted;
};

/// Commands are for /bin/sh.
struct Change {
  std::string where;               ///< the NIC, in words
  std::vector<std::string> apply;  ///< one after the other
  std::vector<std::string>
      undo;         ///< right also where `apply` did not get to its end; `back` is about the first
  Probe cut, back;  ///< true once it has taken effect; once it is put back
  faultinject::Effect effect = faultinject::Effect::kNone;

  /// "node1/nic0 (…): `ip link set dev n1k0 down`; puts it back with `…`"
  std::string in_words() const;
};

/// Commands that give an interface back what it loses with its link, or when its device comes anew.
struct Kept {
  std::vector<std::string> routes, addresses;
};
/// Of a running machine: asks `ip`, about IPv6 routes only where the kernel has IPv6 (`proc`/net/if_inet6
/// exists). Throws RealFaultError where it does not tell all of them.
Kept keep(const std::string& interface, const std::string& proc = "/proc");
/// From what `ip -o -4 route show table all dev I`, `-6`, and `ip -o addr show dev I` print.
Kept keep_from(const std::string& interface, const std::string& routes4, const std::string& routes6,
               const std::string& addresses);

/// Throws RealFaultError where this fault cannot be made on this NIC.
Change change_for(const faultinject::FaultSpec& fault, const NicPlace& place, const Kept& kept,
                  const std::string& sys = "/sys");

/// The change with the NIC's places left open, for `explain`.
Change sample_change(const faultinject::FaultSpec& fault);

void to_json(nlohmann::json& json, const Probe& probe);
void from_json(const nlohmann::json& json, Probe& probe);
void to_json(nlohmann::json& json, const Change& change);
void from_json(const nlohmann::json& json, Change& change);

}  // namespace r2bench
