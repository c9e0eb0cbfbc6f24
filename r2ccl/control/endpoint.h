// SPDX-License-Identifier: Apache-2.0
// What is known of a process's control connection without having one: where it listens, by which secret its
// conversation is known, and what became of an attempt to reach it. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace r2ccl::control {

inline constexpr size_t kTokenBytes = 32;
using Token = std::array<uint8_t, kTokenBytes>;

/// IPv4 or IPv6 address and port, as it travels in a handle.
struct Endpoint {
  uint16_t family = 0;
  uint16_t port = 0;  ///< network order
  uint32_t scope = 0;
  uint8_t address[16]{};  ///< network order; IPv4 in the first four
};

std::string text(const Endpoint& endpoint);

/// What has become of a connection.
enum class Reach : uint8_t {
  kPending,  ///< it is being made
  kReached,  ///< it stands: somebody's kernel answers for a process that listens
  kRefused,  ///< the host answers, and no process listens there
  kBroken,   ///< anything else
};

}  // namespace r2ccl::control
