// SPDX-License-Identifier: Apache-2.0
// Locks (flock) by which processes that write one file at the same time know of each other. The kernel gives
// them back whatever their holder dies of.
#pragma once

#include <filesystem>

namespace r2bench {

/// Returns the error, or 0. EWOULDBLOCK: somebody else has it; others: it cannot be locked on this file
/// system.
int try_lock(int fd);

/// Whether `path` is the name of the open file. With a rule that only the holder of the lock on a file
/// removes or renames it, that stays true while it is locked.
bool has_name(int fd, const std::filesystem::path& path);

/// One process at a time has the lock of a file: it reads it, and writes what it has made of it. It is held
/// on .NAME.r2bench-lock beside it, which is there only as long as somebody has or wants it.
class FileLock {
 public:
  /// Waits for it. There is none where the folder cannot be written or the file system knows no locks.
  explicit FileLock(const std::filesystem::path& file);
  ~FileLock();
  FileLock(const FileLock&) = delete;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace r2bench
