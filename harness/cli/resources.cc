// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/resources.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "harness/base/input_file.h"
#include "harness/report/report.h"
#include "harness/report/whole_file.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace fs = std::filesystem;

void refuse_file_of_run(const fs::path& file) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(file, error);
  if (error || !fs::exists(path, error) || !fs::exists(path.parent_path() / "result.json", error)) return;
  std::vector<std::string> names = {"scenario.yaml"};
  for (const auto& reporter : file_reporters()) names.push_back(reporter->file_name());
  if (std::find(names.begin(), names.end(), path.filename().string()) != names.end())
    throw UsageError(file.string() + ": is the " + path.filename().string() +
                     " of a run, which is never overwritten; choose another name");
}

void refuse_pipe(const fs::path& file, const std::string& what) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    throw UsageError(file.string() + ": is no regular file, and " + what +
                     " reads it more than once; save it in a file and name that");
}

std::string read_file(const fs::path& file) {
  try {
    std::string text = read_input(file);
    if (text.empty()) throw ReadError("is empty");
    return text;
  } catch (const ReadError& error) {
    throw UsageError(file.string() + ": " + error.what());
  }
}

void write_file(const fs::path& file, const std::string& text) {
  refuse_file_of_run(file);
  write_whole(file, [&](std::ostream& out) { out << text; });
}

void append_to_file(const fs::path& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary | std::ios::app);
  stream << text << std::flush;
  if (!stream) throw OutputError(file.string() + ": cannot be written");
}

fs::path program_prefix() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : program.parent_path().parent_path();
}

fs::path share_or_throw() {
  if (const auto share = share_folder()) return *share;
  throw UsageError(
      "the scenarios and scripts of this program are not found; set R2BENCH_SHARE to the folder that holds "
      "scenarios/, plots/ and results/");
}

std::optional<fs::path> share_folder() {
  std::vector<fs::path> candidates;
  if (const char* given = std::getenv("R2BENCH_SHARE"); given != nullptr && *given != '\0')
    candidates.emplace_back(given);
  candidates.push_back(program_prefix() / "share" / "r2ccl");
  candidates.emplace_back(R2BENCH_SOURCE_DIR);
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    if (fs::exists(candidate / "results" / "schema.json", ignored)) return candidate;
  }
  return std::nullopt;
}

fs::path find_scenario(const std::string& named) {
  std::error_code ignored;
  const fs::path path(named);
  if (fs::exists(path, ignored) || path.has_parent_path()) return path;
  if (const auto share = share_folder()) {
    for (const std::string& name : {named, named + ".yaml"}) {
      if (fs::exists(*share / "scenarios" / name, ignored)) return *share / "scenarios" / name;
    }
    // The message about a missing file then suggests one of ours.
    if (path.extension() != ".yaml") return *share / "scenarios" / (named + ".yaml");
  }
  return path;
}

std::optional<fs::path> find_python() {
  std::vector<fs::path> candidates;
  if (const char* given = std::getenv("R2BENCH_PYTHON"); given != nullptr && *given != '\0')
    return fs::path(given);
  candidates.emplace_back("/usr/bin/python3");
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    candidates.push_back(fs::path(folder) / "python3");
  for (const fs::path& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

ScriptResult run_python(const fs::path& python, std::vector<std::string> arguments, int seconds,
                        const std::atomic<bool>* cancel) {
  arguments.insert(arguments.begin(), python.string());
  try {
    return run_script(arguments, seconds, cancel);
  } catch (const std::system_error& error) {
    return {127, error.what()};
  }
}

}  // namespace r2bench
