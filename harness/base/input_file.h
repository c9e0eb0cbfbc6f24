// SPDX-License-Identifier: Apache-2.0
// Files that the user names for reading: regular ones, pipes such as <(command), /dev/stdin.
#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace r2bench {

/// what() is a sentence that goes on behind the file's name: "cannot be read: Permission denied".
class ReadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr size_t kLargestInput = size_t{1} << 30;  ///< bytes

/// All that is in `path`. A pipe is read until its writers have closed it, however long that takes; one with
/// a name (mkfifo) that nobody has open for writing is waited for, at most `wait`. Throws ReadError, also for
/// a folder, and where there is more than `most`, which is not read.
std::string read_input(const std::string& path, size_t most = kLargestInput,
                       std::chrono::milliseconds wait = std::chrono::seconds(10));

}  // namespace r2bench
