// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/address_range.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace r2ccl {
namespace {

constexpr AddressBytes kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};
constexpr int kMappedBits = 96;

bool agree(const AddressBytes& a, const AddressBytes& b, int bits) {
  const int whole = bits / 8, rest = bits % 8;
  if (!std::equal(a.begin(), a.begin() + whole, b.begin())) return false;
  return rest == 0 || (a[size_t(whole)] ^ b[size_t(whole)]) >> (8 - rest) == 0;
}

}  // namespace

const char* name(AddressFamily family) { return family == AddressFamily::kIpv4 ? "AF_INET" : "AF_INET6"; }

Result<AddressRange> AddressRange::parse(AddressFamily family, const std::string& text) {
  const bool v4 = family == AddressFamily::kIpv4;
  const int most = v4 ? 32 : 128;
  AddressRange range(family);
  if (v4) range.first_ = kMapped;
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const char* const bits = text.data() + slash + 1;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(bits, end, range.bits_);
    const bool number = error == std::errc() && stopped == end && range.bits_ >= 0 && range.bits_ <= most;
    if (number && inet_pton(v4 ? AF_INET : AF_INET6, text.substr(0, slash).c_str(),
                            range.first_.data() + (v4 ? kMappedBits / 8 : 0)) == 1) {
      if (v4) range.bits_ += kMappedBits;
      return range;
    }
  }
  return Error{ErrorCode::kInvalidConfig, std::string("is not an address of ") + name(family) +
                                              ", '/' and a number of bits from 0 to " + std::to_string(most)};
}

bool AddressRange::contains(const AddressBytes& address) const {
  const bool v4 = agree(address, kMapped, kMappedBits);
  return v4 == (family_ == AddressFamily::kIpv4) && agree(address, first_, bits_);
}

}  // namespace r2ccl
