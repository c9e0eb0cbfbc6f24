// SPDX-License-Identifier: Apache-2.0
// Locks (flock, or range locks) by which processes that write one file at the same time know of each other.
// The kernel gives them back whatever their holder dies of.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

namespace r2bench {

/// By flock. Returns the error, or 0. EWOULDBLOCK: somebody else has it; others: it cannot be locked on this
/// file system.
int try_lock(int fd);

/// Whether `path` is the name of the open file. With a rule that only the holder of the lock on a file
/// removes or renames it, that stays true while it is locked.
bool has_name(int fd, const std::filesystem::path& path);

/// As has_name(), for a file of which it is known that nobody renames it, but that its holder may have
/// removed. It is true also on file systems whose inode numbers change from one look to the next.
bool is_still_there(int fd, const std::filesystem::path& path);

/// How somebody waits for a FileLock.
struct LockWait {
  std::function<void()> begins;               ///< called once, if somebody else has the lock
  const std::atomic<bool>* cancel = nullptr;  ///< true: wait no longer
};

/// One process at a time has the lock of a file: it reads it, and writes what it has made of it. It is held
/// on .NAME.r2bench-lock beside it, which is there only as long as somebody has or wants it. Links to the
/// file are followed. Where the file system knows no flock, it is an open file description's range lock
/// (fcntl).
class FileLock {
 public:
  /// Waits for it. There is none where the folder cannot be written, the file system knows no locks
  /// (problem() says so), or `file` is no regular file (a pipe, a device).
  explicit FileLock(const std::filesystem::path& file, const LockWait& wait = {});
  ~FileLock();
  FileLock(const FileLock&) = delete;

  /// Whether wait.cancel ended the wait: somebody else has the lock.
  bool cancelled() const { return cancelled_; }

  /// If the file system knows no locks: a sentence that says so, and what to do. Else empty.
  const std::string& problem() const { return problem_; }

 private:
  /// Opens path_, of this or of another user; -1: it cannot be opened.
  int open_file() const;
  /// Locks the open file, which stands for `file`. Returns false where it cannot be locked, or the wait was
  /// cancelled.
  bool lock(const std::filesystem::path& file, const LockWait& wait);

  std::filesystem::path path_;
  std::string problem_;
  int descriptor_ = -1;
  bool told_ = false;  ///< that somebody else has it
  bool cancelled_ = false;
};

}  // namespace r2bench
