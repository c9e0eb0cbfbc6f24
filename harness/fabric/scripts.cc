// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/scripts.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "harness/fabric/device_fabric.h"
#include "harness/launch/process.h"

namespace r2bench {

namespace fs = std::filesystem;

std::string fabric_script(const std::string& name) {
  std::vector<fs::path> folders;
  if (const char* share = std::getenv("R2BENCH_SHARE"); share != nullptr && *share != '\0')
    folders.emplace_back(share);
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path() / "share" /
                    "r2ccl");
  folders.emplace_back(R2BENCH_SOURCE_DIR);
  for (const fs::path& folder : folders) {
    const fs::path path = folder / "harness" / "fabric" / "guest" / name;
    if (fs::exists(path, ignored)) return path.string();
  }
  throw FabricError("the script " + name +
                    " of the rxe fabric is not found; set R2BENCH_SHARE to the source tree");
}

ScriptResult run_script(const std::vector<std::string>& command, int seconds,
                        const std::atomic<bool>* cancel) {
  const int fd = memfd_create("script-output", MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  struct Close {
    int fd;
    ~Close() { close(fd); }
  } const closer{fd};
  ProcessSpec spec;
  spec.program = command.at(0);
  spec.arguments.assign(command.begin() + 1, command.end());
  spec.environment = current_environment();
  spec.environment.erase("LD_PRELOAD");
  spec.output_fd = fd;
  Process process(spec);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  ScriptResult result;
  std::optional<int> status;
  const auto cancelled = [&] { return cancel && cancel->load(); };
  while (!(status = process.ended()) && !cancelled() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (!status) {
    const bool late = !cancelled();
    process.kill();
    status = late ? 124 << 8 : SIGKILL;
  }
  result.exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
  std::array<char, 4096> buffer{};
  for (off_t at = 0;;) {
    const ssize_t n = pread(fd, buffer.data(), buffer.size(), at);
    if (n <= 0) break;
    result.output.append(buffer.data(), size_t(n));
    at += n;
  }
  while (!result.output.empty() && result.output.back() == '\n') result.output.pop_back();
  return result;
}

}  // namespace r2bench
