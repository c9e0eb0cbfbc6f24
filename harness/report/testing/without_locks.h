// SPDX-License-Identifier: Apache-2.0
// File systems that know no locks. For one source of a test program: flock() and fcntl() in place of the C
// library's.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <utility>

namespace r2bench::testing_support {

enum class Locks {
  kAll,
  kNoFlock,  ///< flock fails with EOPNOTSUPP
  kNone,     ///< … and range locks with ENOLCK
};
inline Locks locks = Locks::kAll;

/// Of all file systems, for this process and those that it forks, as long as it exists.
class OnlyLocks {
 public:
  explicit OnlyLocks(Locks which) : before_(std::exchange(locks, which)) {}
  ~OnlyLocks() { locks = before_; }
  OnlyLocks(const OnlyLocks&) = delete;

 private:
  Locks before_;
};

}  // namespace r2bench::testing_support

extern "C" int flock(int fd, int operation) noexcept {
  if (r2bench::testing_support::locks == r2bench::testing_support::Locks::kAll)
    return int(::syscall(SYS_flock, fd, operation));
  errno = EOPNOTSUPP;
  return -1;
}

extern "C" int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (r2bench::testing_support::locks != r2bench::testing_support::Locks::kNone ||
      (command != F_OFD_SETLK && command != F_OFD_SETLKW))
    return int(::syscall(SYS_fcntl, fd, command, argument));
  errno = ENOLCK;
  return -1;
}
