// SPDX-License-Identifier: Apache-2.0
#include "harness/base/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace r2bench {
namespace {

constexpr long kPipesOfShells = 0x50495045;  // PIPEFS_MAGIC of linux/magic.h

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

ReadError failed(int error) { return ReadError(std::string("cannot be read: ") + std::strerror(error)); }

/// A pipe with a name: a writer can still come.
bool is_named_pipe(int fd) {
  struct stat status {};
  struct statfs system {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && ::fstatfs(fd, &system) == 0 &&
         system.f_type != kPipesOfShells;
}

/// Until there is something to read, or no writer any more; -1: however long that takes. False: it is over.
bool wait_for(int fd, std::chrono::milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  for (auto left = most;;) {
    pollfd readable{fd, POLLIN, 0};
    const int ready = ::poll(&readable, 1, int(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw failed(errno);
    if (most.count() < 0) continue;
    left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
  }
}

}  // namespace

std::string read_input(const std::string& path, size_t most, std::chrono::milliseconds wait) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) throw failed(errno);
  bool writer_may_come = is_named_pipe(file.fd);
  std::string text;
  for (std::array<char, 1 << 16> room;;) {
    const ssize_t count = ::read(file.fd, room.data(), room.size());
    const int error = errno;
    if (count > 0) {
      text.append(room.data(), size_t(count));
      writer_may_come = false;
      if (text.size() > most)
        throw ReadError("is larger than " + std::to_string(most >> 20) + " MiB, the limit");
    } else if (count == 0) {
      if (!writer_may_come) return text;
      if (!wait_for(file.fd, wait))
        throw ReadError("is a pipe that nobody writes to; start its writer, or give a file");
      writer_may_come = false;  // it has come, and may be gone again
    } else if (error == EAGAIN) {
      writer_may_come = false;  // it is there
      wait_for(file.fd, std::chrono::milliseconds(-1));
    } else if (error != EINTR) {
      throw failed(error);
    }
  }
}

}  // namespace r2bench
