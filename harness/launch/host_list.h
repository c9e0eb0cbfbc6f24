// SPDX-License-Identifier: Apache-2.0
// Names of hosts as a command line gives them.
#pragma once

#include <string>
#include <vector>

namespace r2bench {

/// "a,b" as {a, b}; nothing for an empty text. A name is one that ssh, mpirun and srun take as it is. Throws
/// std::invalid_argument, with `option` and the name in its text, when one is empty, is there twice, or has
/// characters that no host's name has. `more`: characters that may be in it besides (user@host).
std::vector<std::string> host_list(const std::string& text, const std::string& option,
                                   const std::string& more = "");

}  // namespace r2bench
