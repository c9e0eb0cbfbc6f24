// SPDX-License-Identifier: Apache-2.0
// Where a YAML text goes on behind what YAML::Load reads of it.
#pragma once

#include <yaml-cpp/mark.h>

#include <optional>
#include <string>

namespace faultinject {

/// Where what YAML::Load does not read begins: a second document that is not empty, or a bracket too many.
/// Throws YAML::ParserException. (YAML::LoadAll does not end at such a bracket.)
std::optional<YAML::Mark> end_of_first_document(const std::string& text);

}  // namespace faultinject
