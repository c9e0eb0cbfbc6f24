// SPDX-License-Identifier: Apache-2.0
// Sentences for the user on stderr, each beginning with "vhca: ". Never on a data path.
#pragma once

namespace vhca {

__attribute__((format(printf, 1, 2))) void log_line(const char* format, ...);

}  // namespace vhca
