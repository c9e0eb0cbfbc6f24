// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/guest.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "harness/fabric/device_fabric.h"
#include "harness/launch/process.h"

namespace r2bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCancelGrace{15};  ///< from Ctrl-C in the guest to its end by force
constexpr std::chrono::seconds kAloneGrace{120};  ///< for one of two guests when the other has failed
constexpr int kGuestFailed = 125;                 ///< init.sh could not start the command
constexpr char kBarrier = '\x1d';                 ///< what init.sh's `barrier` says and nobody else does

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }
  /// A name under which QEMU opens it.
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_); }
  std::string content() const {
    std::string text;
    std::array<char, 4096> buffer{};
    for (off_t at = 0;;) {
      const ssize_t n = pread(fd_, buffer.data(), buffer.size(), at);
      if (n <= 0) return text;
      text.append(buffer.data(), size_t(n));
      at += n;
    }
  }

 private:
  int fd_;
};

File memory_file(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "a file for the guest");
  return File(fd);
}

/// The last lines that say something, for a message.
std::string last_lines(const std::string& text, size_t count) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  std::string result;
  for (size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i)
    result += "\n  " + lines[i];
  return result.empty() ? " nothing" : result;
}

/// The wire's end is the first descriptor that the process inherits.
void add_wire(std::vector<std::string>& arguments, size_t end) {
  arguments.insert(arguments.end(),
                   {"-netdev", "socket,id=wire,fd=" + std::to_string(Process::kFirstInherited), "-device",
                    "virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:72:32:0" + std::to_string(end)});
}

std::vector<std::string> qemu_arguments(const GuestJob& job, const File& script, const File& console,
                                        const File& status) {
  const char* wanted = std::getenv("R2BENCH_GUEST_ACCEL");
  const bool kvm = wanted != nullptr && std::string(wanted) == "kvm";
  std::vector<std::string> arguments = {
      "-M",
      "q35",
      "-accel",
      kvm ? "kvm" : "tcg,thread=multi",
      "-cpu",
      kvm ? "host" : "Nehalem",
      "-smp",
      std::to_string(job.cores),
      "-m",
      std::to_string(job.memory_mib),
      "-kernel",
      job.image + "/vmlinux",
      "-initrd",
      job.image + "/initrd.cpio",
      "-append",
      "console=ttyS0 quiet mitigations=off no_timer_check panic=-1 cryptomgr.notests random.trust_cpu=on",
      "-nodefaults",
      "-no-user-config",
      "-display",
      "none",
      "-monitor",
      "none",
      "-no-reboot",
      "-fw_cfg",
      "name=opt/r2bench/job,file=" + script.path(),
      "-chardev",
      "file,id=console,path=" + console.path(),
      "-serial",
      "chardev:console",
      "-chardev",
      "socket,id=tty,fd=" + std::to_string(Process::kControlFd),
      "-serial",
      "chardev:tty",
      "-chardev",
      "file,id=status,path=" + status.path(),
      "-device",
      "isa-debugcon,iobase=0xe9,chardev=status",
      "-device",
      "isa-debug-exit,iobase=0xf4,iosize=0x04",
      "-fsdev",
      "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
      "-device",
      "virtio-9p-pci,fsdev=root,mount_tag=root"};
  for (size_t i = 0; i < job.writable.size(); ++i) {
    const std::string id = "share" + std::to_string(i);
    std::string path;  // in QEMU's options a comma is written twice
    for (const char c : job.writable[i]) path += c == ',' ? std::string(",,") : std::string(1, c);
    arguments.insert(arguments.end(),
                     {"-fsdev", "local,id=" + id + ",path=" + path + ",security_model=none,multidevs=remap",
                      "-device", "virtio-9p-pci,fsdev=" + id + ",mount_tag=" + id});
  }
  return arguments;
}

}  // namespace

std::string find_qemu() {
  for (const char* path : {"/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

std::string guest_script(const GuestJob& job) {
  std::string text;
  for (size_t i = 0; i < job.writable.size(); ++i)
    text += "share share" + std::to_string(i) + " " + shell_quoted(job.writable[i]) + "\n";
  for (const auto& [name, address] : job.hosts)
    text += "host " + shell_quoted(name) + " " + shell_quoted(address) + "\n";
  std::string inner = "cd " + shell_quoted(job.folder) +
                      " && exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                      " HOME=/run TMPDIR=/dev/shm " +
                      std::string(kRxeHereVariable) + "=1";
  for (const auto& [name, value] : job.environment) {
    // A shell function in the environment (BASH_FUNC_x%%) is no name that `env` may set for us.
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_';
    });
    if (plain && name != "PATH" && name != "HOME" && name != "TMPDIR" && name != kRxeHereVariable)
      inner += " " + shell_quoted(name + "=" + value);
  }
  for (const std::string& word : job.command) inner += " " + shell_quoted(word);
  return text + "job /bin/sh -c " + shell_quoted(inner) + "\n";
}

namespace {

/// One QEMU process and its ends of everything.
class Guest {
 public:
  /// `wire`: one end of a pair of sockets, or -1; `end`: which.
  Guest(const std::string& qemu, const GuestJob& job, int wire, size_t end)
      : script_(memory_file("guest-job")),
        console_(memory_file("guest-console")),
        status_(memory_file("guest-status")),
        said_(memory_file("qemu-output")),
        tty_(-1) {
    const std::string text = (wire >= 0 ? "barrier\n" : "") + guest_script(job);
    if (write(script_.get(), text.data(), text.size()) != ssize_t(text.size()))
      throw std::system_error(errno, std::generic_category(), "the guest's job");
    std::array<int, 2> pair = sockets(SOCK_STREAM);
    tty_ = File(pair[0]);
    const File far_tty(pair[1]);
    ProcessSpec spec;
    spec.program = qemu;
    spec.arguments = qemu_arguments(job, script_, console_, status_);
    if (wire >= 0) {
      add_wire(spec.arguments, end);
      spec.inherited = {wire};
    }
    spec.environment = current_environment();
    spec.environment.erase("LD_PRELOAD");
    spec.environment.erase("LD_LIBRARY_PATH");
    spec.output_fd = said_.get();
    spec.control_fd = far_tty.get();
    process_ = std::make_unique<Process>(spec);
  }

  static std::array<int, 2> sockets(int type) {
    std::array<int, 2> pair{};
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair.data()) != 0)
      throw std::system_error(errno, std::generic_category(), "socketpair");
    return pair;
  }

  bool open() const { return tty_.get() >= 0; }
  int tty() const { return tty_.get(); }
  bool over() { return !open() && process_->ended(); }
  bool ended() { return process_->ended().has_value(); }

  /// What it has printed since; nothing when its end is closed.
  void read_some(const std::function<void(std::string_view)>& output) {
    std::array<char, 16384> buffer{};
    const ssize_t n = read(tty_.get(), buffer.data(), buffer.size());
    if (n > 0) output({buffer.data(), size_t(n)});
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) tty_.close();
  }
  void type(const char* keys) {
    if (open()) [[maybe_unused]]
      const ssize_t n = send(tty_.get(), keys, strlen(keys), MSG_NOSIGNAL);
  }
  void kill() {
    process_->kill();
    tty_.close();
    killed_ = true;
  }

  /// To be asked when it is over. `cancelled`: the user's wish ended it, unless it says itself how it ended.
  int result(bool cancelled) const {
    const std::string code = status_.content();
    if (killed_) return 128 + SIGINT;
    if (code.size() == 1 && uint8_t(code[0]) != kGuestFailed) return uint8_t(code[0]);
    if (cancelled) return 128 + SIGINT;  // it had not booted far enough to hear it
    throw FabricError("the guest ended without a result. QEMU said:" + last_lines(said_.content(), 3) +
                      "\nIts console said:" + last_lines(console_.content(), 8));
  }
  bool failed() const {
    const std::string code = status_.content();
    return code.size() != 1 || code[0] != 0;
  }

 private:
  File script_, console_, status_, said_, tty_;
  std::unique_ptr<Process> process_;
  bool killed_ = false;
};

/// Time that passes while we look: a pause of this process counts as one look.
class Patience {
 public:
  explicit Patience(Clock::duration most) : left_(most) {}
  bool spent() {
    const auto now = Clock::now();
    if (last_ != Clock::time_point{}) left_ -= std::min<Clock::duration>(now - last_, kLook * 2);
    last_ = now;
    return left_ <= Clock::duration::zero();
  }
  static constexpr std::chrono::milliseconds kLook{50};

 private:
  Clock::duration left_;
  Clock::time_point last_{};
};

void wait_for_words(std::vector<std::unique_ptr<Guest>>& guests,
                    const std::function<void(size_t, std::string_view)>& output) {
  std::vector<pollfd> waits;
  std::vector<size_t> whose;
  for (size_t i = 0; i < guests.size(); ++i) {
    if (!guests[i]->open()) continue;
    waits.push_back({guests[i]->tty(), POLLIN, 0});
    whose.push_back(i);
  }
  if (poll(waits.data(), waits.size(), int(Patience::kLook.count())) <= 0) return;
  for (size_t w = 0; w < waits.size(); ++w)
    if (waits[w].revents != 0)
      guests[whose[w]]->read_some([&](std::string_view text) { output(whose[w], text); });
}

/// Their exit statuses.
std::vector<int> watch(std::vector<std::unique_ptr<Guest>>& guests,
                       const std::function<void(size_t, std::string_view)>& output,
                       const std::atomic<bool>& cancel) {
  std::vector<bool> arrived(guests.size());  // at the barrier
  bool together = guests.size() == 1, asked = false;
  Patience grace(kCancelGrace), alone(kAloneGrace);
  const auto hear = [&](size_t guest, std::string_view text) {
    const size_t at = arrived[guest] || together ? std::string_view::npos : text.find(kBarrier);
    if (at == std::string_view::npos) return output(guest, text);
    output(guest, text.substr(0, at));
    output(guest, text.substr(at + 1));
    arrived[guest] = true;
  };
  while (std::any_of(guests.begin(), guests.end(), [](const auto& guest) { return !guest->over(); })) {
    wait_for_words(guests, hear);
    if (!together && std::all_of(arrived.begin(), arrived.end(), [](bool one) { return one; })) {
      together = true;
      for (const auto& guest : guests) guest->type("\n");
    }
    const bool one_failed = std::any_of(guests.begin(), guests.end(),
                                        [](const auto& guest) { return guest->over() && guest->failed(); });
    if (!asked && (cancel || (one_failed && alone.spent()))) {
      asked = true;
      for (const auto& guest : guests) guest->type("\x03");  // the guest's terminal makes it SIGINT
    }
    if (asked && grace.spent())
      for (const auto& guest : guests)
        if (!guest->over()) guest->kill();
  }
  std::vector<int> results;
  for (const auto& guest : guests) results.push_back(guest->result(asked));
  return results;
}

std::string qemu_or_throw() {
  const std::string qemu = find_qemu();
  if (qemu.empty())
    throw FabricError("the guest needs QEMU: apt-get install --no-install-recommends qemu-system-x86");
  return qemu;
}

}  // namespace

int run_in_guest(const GuestJob& job, const std::function<void(std::string_view)>& output,
                 const std::atomic<bool>& cancel) {
  std::vector<std::unique_ptr<Guest>> guests;
  guests.push_back(std::make_unique<Guest>(qemu_or_throw(), job, -1, 0));
  return watch(
      guests, [&](size_t, std::string_view text) { output(text); }, cancel)[0];
}

std::array<int, 2> run_in_two_guests(const std::array<GuestJob, 2>& jobs,
                                     const std::function<void(size_t, std::string_view)>& output,
                                     const std::atomic<bool>& cancel) {
  const std::string qemu = qemu_or_throw();
  const auto ends = Guest::sockets(SOCK_STREAM);
  const File wires[2] = {File(ends[0]), File(ends[1])};
  std::vector<std::unique_ptr<Guest>> guests;
  for (size_t i = 0; i < 2; ++i) guests.push_back(std::make_unique<Guest>(qemu, jobs[i], wires[i].get(), i));
  const std::vector<int> results = watch(guests, output, cancel);
  return {results[0], results[1]};
}

}  // namespace r2bench
