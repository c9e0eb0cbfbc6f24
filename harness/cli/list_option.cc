// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/list_option.h"

#include <CLI/CLI.hpp>

#include "harness/base/comma_list.h"

namespace r2bench {
namespace {

void append(const std::string& name, const std::string& text, const CheckEntry& check,
            std::vector<std::string>& entries) {
  try {
    for (const std::string& entry : comma_list(text)) {
      if (const std::string wrong = check ? check(entry) : ""; !wrong.empty())
        throw std::invalid_argument("'" + entry + "' " + wrong);
      entries.push_back(entry);
    }
  } catch (const std::invalid_argument& error) {
    throw CLI::ValidationError(name, error.what());
  }
}

}  // namespace

CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& entries,
                      const std::string& help, const CheckEntry& check) {
  return command.add_option_function<std::string>(
      name,
      [name, check, &entries](const std::string& text) {
        entries.clear();
        append(name, text, check, entries);
      },
      help);
}

CLI::Option* add_lists(CLI::App& command, const std::string& name, std::vector<std::string>& entries,
                       const std::string& help, const CheckEntry& check) {
  return command.add_option_function<std::vector<std::string>>(
      name,
      [name, check, &entries](const std::vector<std::string>& texts) {
        entries.clear();
        for (const std::string& text : texts) append(name, text, check, entries);
      },
      help);
}

}  // namespace r2bench
