// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace r2bench {
namespace {

// Signal handlers reach nothing but globals; these belong to Signals alone.
std::atomic<bool> cancel_flag{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

constexpr std::array<int, 3> kEnding = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array<int, 2> kErrors = {SIGPIPE, SIGXFSZ};

void on_ending(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  cancel_flag.store(true);
}

// A handler, not SIG_IGN: what is ignored stays ignored in the ranks that are started, a handler does not.
void on_error(int) {}

}  // namespace

Console Console::standard() {
  Console console{std::cout, std::cerr};
  console.descriptor = STDOUT_FILENO;
  const char* terminal = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool capable =
      terminal != nullptr && std::string_view(terminal) != "dumb" && ::isatty(STDOUT_FILENO) == 1;
  console.live = capable;
  console.colour = capable && (no_colour == nullptr || *no_colour == '\0');
  winsize size{};
  if (capable && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    console.columns = std::clamp<size_t>(size.ws_col, 60, 160);
  }
  return console;
}

bool Console::would_wait() const {
  pollfd state{descriptor, POLLOUT, 0};
  return descriptor >= 0 && ::poll(&state, 1, 0) == 0;
}

bool Console::has_lost_output() const {
  struct stat target {};
  return !(out << std::flush) && descriptor >= 0 && ::fstat(descriptor, &target) == 0 &&
         (S_ISREG(target.st_mode) || (S_ISCHR(target.st_mode) && ::isatty(descriptor) != 1));
}

void own_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) [[maybe_unused]]
      const int opened = ::open("/dev/null", O_RDWR);  // takes the lowest number that is free
}

Signals::Signals() {
  cancel_flag = false;
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_ending;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : kEnding) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // nohup and background jobs of plain shells ignore signals on purpose.
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  struct sigaction error {};
  error.sa_handler = on_error;
  error.sa_flags = SA_RESTART;
  for (const int signal : kErrors) ::sigaction(signal, &error, nullptr);
}

Signals::~Signals() {
  for (const int signal : kEnding) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
  for (const int signal : kErrors) ::signal(signal, SIG_DFL);
}

const std::atomic<bool>& Signals::cancel() const { return cancel_flag; }
int Signals::caught() const { return first_signal.load(); }

}  // namespace r2bench
