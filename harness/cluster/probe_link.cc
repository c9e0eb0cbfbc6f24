// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster/probe_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <system_error>

#include "harness/base/json_text.h"

namespace r2bench {

namespace {

/// Runs between fork and exec: only async-signal-safe calls. An ssh that cannot connect does not see the end
/// of its input: the kernel ends it with the thread that has started it.
[[noreturn]] void become(char* const* words, pid_t parent, const std::array<int, 3>& streams) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  for (int to = 0; to < 3; ++to)
    if (streams[size_t(to)] >= 0) dup2(streams[size_t(to)], to);
  execv(words[0], words);
  _exit(127);
}

}  // namespace

ProbeLink::ProbeLink(std::string host, const std::string& command) : host_(std::move(host)) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  if (pipe2(from, O_CLOEXEC) != 0) {
    const int error = errno;
    close(to[0]);
    close(to[1]);
    throw std::system_error(error, std::generic_category(), "pipe2");
  }
  errors_ = memfd_create("probe-errors", MFD_CLOEXEC);
  const std::string line = "exec " + command;
  const char* words[] = {"/bin/sh", "-c", line.c_str(), nullptr};
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(const_cast<char* const*>(words), parent, {to[0], from[1], errors_});
  close(to[0]);
  close(from[1]);
  in_ = to[1];
  out_ = from[0];
}

ProbeLink::~ProbeLink() {
  close(in_);
  close(out_);
  if (errors_ >= 0) close(errors_);
  if (pid_ < 0) return;
  for (int i = 0; i < 1000; ++i) {  // it ends with its input; ssh may need a moment
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    usleep(2000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

nlohmann::json ProbeLink::ask(const nlohmann::json& request, std::chrono::seconds limit) {
  if (!lost_.empty()) throw std::runtime_error(lost_);
  const std::string line = request.dump() + "\n";
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const bool sent = write(in_, line.data(), line.size()) == ssize_t(line.size());
  sigaction(SIGPIPE, &before, nullptr);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::array<char, 65536> buffer{};
  std::string why = sent ? "" : "it has ended";
  while (why.empty()) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const auto answer = json_from(std::string_view(pending_).substr(0, end), false);
      pending_.erase(0, end + 1);
      if (!answer.is_discarded()) return answer;
      continue;  // a login script that greets
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{out_, POLLIN, 0};
    if (left.count() <= 0 || poll(&wait, 1, int(left.count())) == 0) {
      why = "it says nothing for " + std::to_string(limit.count()) + " s";
      break;
    }
    const ssize_t n = read(out_, buffer.data(), buffer.size());
    if (n <= 0)
      why = "it has ended";
    else
      pending_.append(buffer.data(), size_t(n));
  }
  std::array<char, 512> said{};
  const ssize_t n = errors_ < 0 ? 0 : pread(errors_, said.data(), said.size() - 1, 0);
  std::string last(said.data(), size_t(n > 0 ? n : 0));
  while (!last.empty() && last.back() == '\n') last.pop_back();
  lost_ = "the probe on " + host_ + " does not answer: " + why + (last.empty() ? "" : " (" + last + ")");
  throw std::runtime_error(lost_);
}

}  // namespace r2bench
