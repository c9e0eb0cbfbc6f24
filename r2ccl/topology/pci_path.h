// SPDX-License-Identifier: Apache-2.0
// PCI addresses inside /sys paths. Pure.
#pragma once

#include <string>
#include <string_view>

namespace r2ccl::topology {

/// True for "0000:3b:00.1" (domain of 4 to 8 hex digits).
bool is_bus_id(std::string_view text);

/// The path up to and including its last component that is a PCI address, "" when it has none:
/// /sys/devices/pci0000:00/0000:00:03.0/virtio1 -> /sys/devices/pci0000:00/0000:00:03.0
std::string_view trim_to_pci(std::string_view path);

/// Last component of a path.
std::string_view last_component(std::string_view path);

}  // namespace r2ccl::topology
