// SPDX-License-Identifier: Apache-2.0
// Files that are written as a whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <stdexcept>

namespace r2bench {

/// The user's to mend: exit code 64. what() is one sentence.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes a file piece by piece: what is written need not fit into memory. Throws OutputError.
///
/// A regular file is written as a whole or not at all: `content` goes to .NAME.r2bench-part beside it, which
/// then replaces it, with its owner and permissions; links are followed. What a killed writer of the same
/// file has left is removed (part_file.h). It is written in place, and may be cut off by an error, where its
/// folder cannot be written, or the file cannot be replaced (a mount of a single file), or not by one of the
/// same owner. What could then not be written is kept in NAME.unwritten. What is no regular file (a pipe, a
/// device), and every file that lies in /dev itself or below /proc, is opened as it is named; a descriptor of
/// this process, such as /dev/stdout, is written from where it stands.
void write_whole(const std::filesystem::path& file, const std::function<void(std::ostream&)>& content);

/// Throws OutputError where write_whole() could not write `file`; leaves everything as it was, but removes
/// what a killed writer of `file` has left. For a file that is written only after long work.
void check_writable(const std::filesystem::path& file);

}  // namespace r2bench
