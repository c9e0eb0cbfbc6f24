// SPDX-License-Identifier: Apache-2.0
// Where the program's own files are: beside the sources in a build tree, under share/r2ccl when installed.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/fabric/scripts.h"

namespace r2bench {

/// The folder that holds scenarios/, plots/ and results/schema.json. R2BENCH_SHARE, else
/// <program>/../share/r2ccl, else the source tree of the build. nullopt when none has them.
std::optional<std::filesystem::path> share_folder();
std::filesystem::path share_or_throw();  ///< throws UsageError where there is none

/// A scenario as the user names it: a path, or the name of one of ours ("nic_down").
std::filesystem::path find_scenario(const std::string& named);

/// For `what` ("plot"), which reads `file` more than once, as it can no pipe. Throws UsageError where it is
/// there and neither a regular file nor a folder.
void refuse_pipe(const std::filesystem::path& file, const std::string& what);
/// As read_input(). Throws UsageError, also where it is empty.
std::string read_file(const std::filesystem::path& file);
/// A mistake in the name of an output must not cost what was measured: throws UsageError where `file` is one
/// of the files that a run has written.
void refuse_file_of_run(const std::filesystem::path& file);
/// As write_whole(): all of it, or an OutputError and nothing. Throws UsageError for a file of a run's
/// folder.
void write_file(const std::filesystem::path& file, const std::string& text);
/// Throws OutputError where it cannot be written.
void append_to_file(const std::filesystem::path& file, const std::string& text);

/// <program>/..: bin/ and lib/ of the build or installation.
std::filesystem::path program_prefix();

/// A Python that may have matplotlib: R2BENCH_PYTHON, /usr/bin/python3, or the first python3 of PATH.
std::optional<std::filesystem::path> find_python();

/// Runs `python` with these arguments, as run_script() does. exit_code 127, and `output` says why, when it
/// cannot be started.
ScriptResult run_python(const std::filesystem::path& python, std::vector<std::string> arguments, int seconds,
                        const std::atomic<bool>* cancel = nullptr);

}  // namespace r2bench
