// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace r2bench {

/// A TCP port of the loopback that nobody has at the moment.
uint16_t free_port();

}  // namespace r2bench
