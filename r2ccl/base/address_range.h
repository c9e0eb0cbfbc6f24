// SPDX-License-Identifier: Apache-2.0
// A range of IP addresses of one family, as NCCL_IB_ADDR_RANGE writes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "r2ccl/base/result.h"

namespace r2ccl {

/// NCCL_IB_ADDR_FAMILY, with the names of <sys/socket.h>.
enum class AddressFamily : uint8_t { kIpv4, kIpv6 };

/// "AF_INET" or "AF_INET6".
const char* name(AddressFamily family);

/// An address as GIDs hold it: 16 bytes in network order, IPv4 as ::ffff:a.b.c.d.
using AddressBytes = std::array<uint8_t, 16>;

class AddressRange {
 public:
  AddressRange() = default;
  /// All addresses of `family`.
  explicit AddressRange(AddressFamily family) : family_(family) {}
  /// `text`: "10.1.0.0/16" or "fd00:1::/32". Error kInvalidConfig, whose message says what is accepted.
  static Result<AddressRange> parse(AddressFamily family, const std::string& text);

  bool contains(const AddressBytes& address) const;
  AddressFamily family() const { return family_; }

 private:
  AddressFamily family_ = AddressFamily::kIpv4;
  AddressBytes first_{};
  int bits_ = 0;  ///< of the 128, those that must agree
};

}  // namespace r2ccl
