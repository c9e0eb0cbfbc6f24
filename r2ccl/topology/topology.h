// SPDX-License-Identifier: Apache-2.0
// Where the NICs sit in the machine, and how far they are from each other and from memory. It picks the order
// in which NICs stand in for one another. Works for devices that the machine knows nothing of (virtual HCAs,
// soft RoCE): their distance is kUnknown and their order is simply the next NIC, and the next.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "r2ccl/base/result.h"

namespace r2ccl::topology {

/// From near to far. A second port of the same card comes after other cards on the same switch: whatever
/// broke the first port may well have broken the card.
enum class Distance {
  kSame,        ///< the NIC itself
  kSameSwitch,  ///< traffic between them stays below one PCIe switch
  kSameCard,    ///< functions of one PCI device
  kSameSocket,  ///< same NUMA node, or same package
  kCross,       ///< traffic between them crosses sockets
  kUnknown,
};

/// "same", "same switch", "same card", "same socket", "cross socket", "unknown".
const char* name(Distance distance);

/// The PCI device behind an InfiniBand device, as the canonical /sys path that NCCL wants, with function 0
/// where the card has it: NCCL counts the functions of a card as one PCI device, because they share its
/// bandwidth. Empty when there is none. `sysfs` is where sysfs is mounted.
std::string pci_path_of(const std::string& nic_name, const std::string& sysfs = "/sys");

/// Is this network interface of the same PCI device as the InfiniBand device, so that it fails with that?
bool is_interface_of(const std::string& interface, const std::string& nic_name,
                     const std::string& sysfs = "/sys");

/// NUMA node of the page that holds `address`, -1 when the kernel does not say (or the page was never
/// touched).
int numa_node_of(const void* address);

/// The order in which other NICs should take over from `nic`: by distance, and among equals nic+1, nic+2, …
/// (mod n), so that the NICs of a group do not all pick the same one. `distances[i]` is from `nic` to NIC i.
std::vector<int> order_by_distance(const std::vector<Distance>& distances, int nic);

/// NICs are numbered as in the list given at construction. Immutable to its users; safe from any thread. The
/// machine is looked at on the first question that needs it, and not at all when no NIC has a PCI path.
class Topology {
 public:
  /// The machine that this process runs on.
  static Topology of_machine(const std::vector<std::string>& nic_names, const std::string& sysfs = "/sys");

  /// A topology as `lstopo --of xml` writes it; `bus_ids` are the NICs' PCI addresses ("0000:3b:00.0"), ""
  /// for none. Error kInvalidArgument when hwloc cannot read it.
  static Result<Topology> from_xml(const std::string& xml, const std::vector<std::string>& bus_ids);

  /// The same from a file, instead of what the machine shows; NICs are found in it by the name of their
  /// OpenFabrics device, and their PCI paths are still the machine's. A NIC that is not in it is at an
  /// unknown distance. Error kInvalidConfig, which names the file, when it cannot be read or has none of the
  /// NICs.
  static Result<Topology> from_file(const std::string& file, const std::vector<std::string>& nic_names,
                                    const std::string& sysfs = "/sys");

  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  int nics() const;
  /// Canonical /sys path of the NIC's PCI device, empty when there is none.
  const std::string& pci_path(int nic) const;
  /// -1 when unknown.
  int numa_node(int nic) const;
  Distance between(int a, int b) const;
  /// From memory on that NUMA node: kSameSocket (the node or another one of its package), kCross or kUnknown.
  Distance from_memory(int numa_node, int nic) const;
  /// All other NICs, the best stand-in first.
  std::vector<int> backup_order(int nic) const;

 private:
  struct State;
  explicit Topology(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace r2ccl::topology
