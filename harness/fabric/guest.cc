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
#include <sstream>
#include <system_error>
#include <utility>

#include "harness/fabric/device_fabric.h"
#include "harness/launch/process.h"

namespace r2bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCancelGrace{15};  ///< from Ctrl-C in the guest to its end by force
constexpr int kGuestFailed = 125;                 ///< init.sh could not start the command

class File {
 public:
  explicit File(int fd) : fd_(fd) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "a file for the guest");
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
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

File memory_file(const char* name) { return File(memfd_create(name, MFD_CLOEXEC)); }

std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
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
      "console=ttyS0 quiet mitigations=off panic=-1 cryptomgr.notests random.trust_cpu=on",
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

int run_in_guest(const GuestJob& job, const std::function<void(std::string_view)>& output,
                 const std::atomic<bool>& cancel) {
  const std::string qemu = find_qemu();
  if (qemu.empty())
    throw FabricError("the guest needs QEMU: apt-get install --no-install-recommends qemu-system-x86");
  File script = memory_file("guest-job"), console = memory_file("guest-console"),
       status = memory_file("guest-status"), said = memory_file("qemu-output");
  const std::string text = guest_script(job);
  if (write(script.get(), text.data(), text.size()) != ssize_t(text.size()))
    throw std::system_error(errno, std::generic_category(), "the guest's job");
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  File tty(pair[0]), far_tty(pair[1]);

  ProcessSpec spec;
  spec.program = qemu;
  spec.arguments = qemu_arguments(job, script, console, status);
  spec.environment = current_environment();
  spec.environment.erase("LD_PRELOAD");
  spec.environment.erase("LD_LIBRARY_PATH");
  spec.output_fd = said.get();
  spec.control_fd = far_tty.get();
  Process process(spec);
  far_tty.close();

  bool asked = false, open = true;
  Clock::time_point kill_at{};
  while (open || !process.ended()) {
    pollfd wait{tty.get(), POLLIN, 0};
    const int ready = poll(&wait, open ? 1 : 0, 50);
    if (ready > 0) {
      std::array<char, 16384> buffer{};
      const ssize_t n = read(tty.get(), buffer.data(), buffer.size());
      if (n > 0) output({buffer.data(), size_t(n)});
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) open = false;
    }
    if (cancel && !asked) {
      asked = true;
      kill_at = Clock::now() + kCancelGrace;
      [[maybe_unused]] const ssize_t n =
          send(tty.get(), "\x03", 1, MSG_NOSIGNAL);  // the guest's terminal makes it SIGINT
    }
    if (asked && Clock::now() > kill_at) {
      process.kill();
      return 128 + SIGINT;
    }
  }
  const std::string code = status.content();
  if (code.size() == 1 && uint8_t(code[0]) != kGuestFailed) return uint8_t(code[0]);
  if (asked) return 128 + SIGINT;  // it had not booted far enough to hear it
  throw FabricError("the guest ended without a result. QEMU said:" + last_lines(said.content(), 3) +
                    "\nIts console said:" + last_lines(console.content(), 8));
}

}  // namespace r2bench
