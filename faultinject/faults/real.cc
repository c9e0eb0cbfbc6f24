// SPDX-License-Identifier: Apache-2.0
// real_*: changes of the machine itself, which whoever made the board carries out and reports
// (BoardHost::report). A process only lets its sends and events count for their triggers.
// The program sees: what the machine then does, nothing of the injector's.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/fault.h"
#endif

namespace faultinject::faults {

std::vector<FaultKind> real() {
  return {FaultKind{
              .name = "real_link_down",
              .what = "`ip link set … down`",
              .past = "had its interface taken down",
              .present = "has its interface taken down",
              .takes = Takes::kPort,
              .whole_device = true,
              .outside = true,
              .make = IN_LIBRARY(made<Fault>),
          },
          FaultKind{
              .name = "real_tc",
              .what = "`tc qdisc replace … netem`: loss, a rate limit or a delay",
              .past = "was impaired by a queueing discipline",
              .present = "is impaired by a queueing discipline",
              .takes = Takes::kSpeed,
              .whole_device = true,
              .outside = true,
              .shared = {"loss", "rate", "delay"},
              .needs = {{{"loss", "rate", "delay"}, "loss: 30 %"}},
              .examples = {{.parameters = "loss: 30 %", .harm = Harm::kHarmless}},
              .make = IN_LIBRARY(made<Fault>),
          },
          FaultKind{
              .name = "real_ovs_drop",
              .what = "an OpenFlow rule that drops RoCE",
              .past = "had its RoCE packets dropped by its switch",
              .present = "has its RoCE packets dropped by its switch",
              .takes = Takes::kPort,
              .whole_device = true,
              .outside = true,
              .shared = {"bridge", "via"},
              .needs = {{{"bridge"}, "bridge: ovsbr1"}},
              .examples = {{.parameters = "bridge: ovsbr1"}},
              .make = IN_LIBRARY(made<Fault>),
          },
          FaultKind{
              .name = "real_pcie_remove",
              .what = "the NIC's PCI function is removed",
              .past = "was removed from the PCI bus",
              .present = "is removed from the PCI bus",
              .takes = Takes::kPort,
              .ends = Ends::kNeverForJob,
              .whole_device = true,
              .outside = true,
              .make = IN_LIBRARY(made<Fault>),
          },
          FaultKind{
              .name = "real_switch_port",
              .what = "a command that you supply, such as one that turns off a switch port",
              .past = "was cut off by a command",
              .present = "is cut off by a command",
              .takes = Takes::kPort,
              .whole_device = true,
              .outside = true,
              .shared = {"cut", "mend", "check"},
              .needs = {{{"cut"}, "cut: ssh switch port-off 7"}, {{"mend"}, "mend: ssh switch port-on 7"}},
              .examples = {{.parameters = "cut: 'port-off 7', mend: 'port-on 7'"}},
              .make = IN_LIBRARY(made<Fault>),
          }};
}

}  // namespace faultinject::faults
