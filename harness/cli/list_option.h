// SPDX-License-Identifier: Apache-2.0
// Options whose value is a list separated by commas.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

/// What is wrong with an entry, behind its name; empty: nothing.
using CheckEntry = std::function<std::string(const std::string& entry)>;

/// Adds an option that takes one list: --modes a,b. An entry that is empty, or wrong, is an error of the
/// command line that names it.
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& entries,
                      const std::string& help, const CheckEntry& check = nullptr);
/// The same of an option that takes several: --degraded 0:0.5,1:0.5 2:0.25, also repeated.
CLI::Option* add_lists(CLI::App& command, const std::string& name, std::vector<std::string>& entries,
                       const std::string& help, const CheckEntry& check = nullptr);

}  // namespace r2bench
