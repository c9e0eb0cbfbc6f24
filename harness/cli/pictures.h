// SPDX-License-Identifier: Apache-2.0
// The pictures of a run, which plots/*.py draw.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>

namespace r2bench {

inline constexpr int kExitNoMatplotlib = 3;  ///< of plots/*.py

/// Makes the pictures of one run; what kept it from doing so, or nothing. It ends early when `cancel` becomes
/// true; a picture is written as a whole or not at all.
std::optional<std::string> make_pictures(const std::string& result_json, const std::string& out_folder,
                                         const std::atomic<bool>* cancel = nullptr);

/// Of a script that was killed: what no living writer has, so that another plot in the same folder goes on.
void remove_half_figures(const std::filesystem::path& folder);

std::string last_line(const std::string& text);

}  // namespace r2bench
