// SPDX-License-Identifier: Apache-2.0
#include "harness/report/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksFollowed = 40;  // the kernel's own limit (path_resolution(7))
constexpr int kMaxRemoved = 1000;   // times in a row that the holder removes the file before it can be locked
constexpr int kMaxGone = 10;        // times in a row that it is removed before another user's can be opened
constexpr std::chrono::milliseconds kPollInterval{20};

/// The file to which `file` leads in the end, which need not exist.
fs::path behind_links(fs::path file) {
  std::error_code error;
  for (int links = 0; links < kLinksFollowed && fs::is_symlink(file, error); ++links)
    file = file.parent_path() / fs::read_symlink(file, error);
  fs::path canonical = fs::weakly_canonical(file, error);
  return error ? file : canonical;
}

/// Locks the whole file for this open file description: with F_OFD_SETLK as try_lock(), with F_OFD_SETLKW
/// waiting. Returns the error, or 0.
int lock_range(int fd, int command) {
  struct ::flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, command, &whole) == 0 ? 0 : errno;
}

/// Returns the error, or 0.
int wait_for_flock(int fd) { return ::flock(fd, LOCK_EX) == 0 ? 0 : errno; }

std::string no_locks(const fs::path& file, int by_flock, int by_range) {
  return file.string() + ": its file system gives no locks (flock: " + std::strerror(by_flock) +
         "; fcntl: " + std::strerror(by_range) +
         "). If two programs change the file at the same time, the changes of one are lost: let one end "
         "before the other begins, or choose a file on a local disk. Lustre gives locks when it is mounted "
         "with -o flock, NFS when its lock service runs";
}

}  // namespace

int try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool has_name(int fd, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

bool is_still_there(int fd, const fs::path& path) {
  struct stat opened {};
  struct stat named {};
  return has_name(fd, path) || (::fstat(fd, &opened) == 0 && opened.st_nlink > 0 &&
                                ::lstat(path.c_str(), &named) == 0 && S_ISREG(named.st_mode));
}

FileLock::FileLock(const fs::path& file, const LockWait& wait) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  const fs::path behind = behind_links(file);
  path_ = behind.parent_path() / ("." + behind.filename().string() + ".r2bench-lock");
  for (int removed = 0; removed < kMaxRemoved; ++removed) {
    descriptor_ = open_file();
    if (descriptor_ < 0) return;
    const bool locked = lock(file, wait);
    if (cancelled_) break;
    if (!locked || is_still_there(descriptor_, path_)) return;
    ::close(std::exchange(descriptor_, -1));  // its holder has removed it
  }
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

int FileLock::open_file() const {
  for (int removed = 0; removed < kMaxGone; ++removed) {
    const int own = ::open(path_.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (own >= 0 || errno != EACCES) return own;
    // Another user's can be locked all the same, but not written; nor opened with O_CREAT in some folders.
    const int others = ::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (others >= 0 || errno != ENOENT) return others;
  }
  return -1;
}

bool FileLock::lock(const fs::path& file, const LockWait& wait) {
  for (;;) {
    const int by_flock = try_lock(descriptor_);
    const bool has_flock = by_flock == 0 || by_flock == EWOULDBLOCK;
    int error = has_flock ? by_flock : lock_range(descriptor_, F_OFD_SETLK);
    if (error == EWOULDBLOCK) {
      if (wait.begins && !std::exchange(told_, true)) wait.begins();
      cancelled_ = wait.cancel && *wait.cancel;
      if (cancelled_) return false;
      if (wait.cancel) {  // a signal just before a blocking call would not end it
        std::this_thread::sleep_for(kPollInterval);
        continue;
      }
      error = has_flock ? wait_for_flock(descriptor_) : lock_range(descriptor_, F_OFD_SETLKW);
    }
    if (error == 0) return true;
    if (error == EINTR) continue;
    problem_ = no_locks(file, has_flock ? error : by_flock, error);
    return false;
  }
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace r2bench
