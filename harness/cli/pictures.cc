// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/pictures.h"

#include <string>

#include "harness/cli/resources.h"
#include "harness/report/part_file.h"

namespace r2bench {
namespace {

constexpr int kPlotSeconds = 180;  // the first one builds matplotlib's font cache

}  // namespace

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n");
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

void remove_half_figures(const std::filesystem::path& folder) {
  remove_stale_parts(
      folder, [](const std::string& name) { return name.ends_with(".png") || name.ends_with(".pdf"); });
}

std::optional<std::string> make_pictures(const std::string& result_json, const std::string& out_folder,
                                         const std::atomic<bool>* cancel) {
  const auto share = share_folder();
  if (!share) return "plots/timeline.py is not found";
  const auto python = find_python();
  if (!python) return "python3 is not found; install python3-matplotlib";
  const ScriptResult done =
      run_python(*python, {(*share / "plots" / "timeline.py").string(), "--out", out_folder, result_json},
                 kPlotSeconds, cancel);
  if (done.exit_code == 0) return std::nullopt;
  remove_half_figures(out_folder);
  if (cancel && cancel->load()) return "drawing it was interrupted; to draw it: r2bench plot " + result_json;
  if (done.exit_code == kExitNoMatplotlib) {
    return python->string() + " has no matplotlib; install python3-matplotlib, then: r2bench plot " +
           result_json;
  }
  if (done.exit_code == 124) return "the plot script took longer than " + std::to_string(kPlotSeconds) + " s";
  return "the plot script failed" + (done.output.empty()
                                         ? " with exit status " + std::to_string(done.exit_code)
                                         : ": " + last_line(done.output));
}

}  // namespace r2bench
