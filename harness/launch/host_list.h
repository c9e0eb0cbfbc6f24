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

/// For the command line's parser: what is wrong with a list that is given; empty where nothing is. An empty
/// list is no list: it would mean every host, or this one.
inline std::string no_host_in(const std::string& text) {
  return text.empty() ? "names no host; give HOST,HOST, or leave the option out" : "";
}

}  // namespace r2bench
