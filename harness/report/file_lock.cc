// SPDX-License-Identifier: Apache-2.0
#include "harness/report/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace r2bench {

int try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

bool has_name(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

FileLock::FileLock(const std::filesystem::path& file)
    : path_(file.parent_path() / ("." + file.filename().string() + ".r2bench-lock")) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) return;
    int locked = 0;
    do locked = ::flock(descriptor_, LOCK_EX);
    while (locked != 0 && errno == EINTR);
    if (locked != 0 || has_name(descriptor_, path_)) return;
    ::close(std::exchange(descriptor_, -1));  // its holder has removed it
  }
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace r2bench
