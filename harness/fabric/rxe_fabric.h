// SPDX-License-Identifier: Apache-2.0
// The kernel's soft RoCE: one rxe device per NIC, all in one network namespace of this machine, joined by a
// bridge.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

/// Makes the devices with rxe_net.sh and takes them away at its end. Only where that is allowed (the guest
/// sets R2BENCH_RXE_HERE), because this machine's routing rules change. Throws FabricError.
std::unique_ptr<DeviceFabric> make_rxe_fabric(const Fabric& shape);

/// "node1_nic0": the device of that NIC. Its interface is "n1k0", its port of the switch "s1k0".
std::string rxe_device(int node, int nic);

/// What all NICs together may send there, in bits per second of payload, where nobody has measured it; above
/// that a scenario runs in slow motion. Two cores under software emulation carry four times as much when they
/// have nothing else to do.
inline constexpr unsigned long kRxePayloadBitsPerSecond = 160'000'000;
/// The part of what was measured that NICs may send: the ranks want the CPU as well, which may get busier.
inline constexpr double kRxePayloadShare = 0.25;
/// And no less than this, or a machine that is crowded for a moment makes a run of hours.
inline constexpr unsigned long kRxeLeastPayloadBitsPerSecond = 40'000'000;
/// What one mode of a scenario may take there; beyond it a scenario gets fewer iterations.
inline constexpr std::chrono::seconds kRxeModeBudget{180};
/// The slow motion of a scenario whose NICs have no rate, and so claim no speed: only timers are stretched.
inline constexpr int kRxeUnlimitedSlowMotion = 16;

}  // namespace r2bench
