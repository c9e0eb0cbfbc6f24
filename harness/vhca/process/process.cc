// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/process/process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/base/log.h"
#include "harness/vhca/fabric/process_table.h"

namespace vhca {
namespace {

std::string node_names(const Fabric& fabric) {
  std::string names;
  for (std::uint32_t i = 0; i < fabric.node_count && i < kMaxNodes; ++i) {
    if (i == 8) return names + ", ...";
    names += (i ? ", " : "") + std::string(fabric.nodes[i].name);
  }
  return names;
}

// VHCA_MEMORY_NODE; false when it is no number of a NUMA node.
bool read_memory_node(std::uint32_t& node) {
  const char* text = std::getenv("VHCA_MEMORY_NODE");
  if (!text) return true;
  const char* end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, node);
  return error == std::errc() && read == end && node < kMaxMemoryNodes;
}

}  // namespace

std::optional<Process::Place> Process::find_place() {
  const char* path = std::getenv("VHCA_FABRIC");
  if (!path || !*path) return std::nullopt;
  const char* node_name = std::getenv("VHCA_NODE");
  std::uint32_t memory_node = kNoMemoryNode;
  if (!read_memory_node(memory_node)) {
    log_line("VHCA_MEMORY_NODE=%s is no NUMA node (0 to %u). There are no devices.",
             std::getenv("VHCA_MEMORY_NODE"), kMaxMemoryNodes - 1);
    return std::nullopt;
  }
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    log_line("VHCA_FABRIC=%s cannot be opened: %s. There are no devices.", path, std::strerror(errno));
    return std::nullopt;
  }
  struct stat status {};
  void* memory = MAP_FAILED;
  const bool big_enough =
      ::fstat(fd, &status) == 0 && static_cast<std::uint64_t>(status.st_size) == kFabricBytes;
  if (big_enough)
    memory = ::mmap(nullptr, kFabricBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  const int map_error = errno;
  ::close(fd);
  if (!big_enough) {
    log_line("VHCA_FABRIC=%s is not a fabric of this version (layout %u). There are no devices.", path,
             kLayoutVersion);
    return std::nullopt;
  }
  if (memory == MAP_FAILED) {
    log_line("VHCA_FABRIC=%s cannot be mapped: %s. There are no devices.", path, std::strerror(map_error));
    return std::nullopt;
  }
  auto* fabric = static_cast<Fabric*>(memory);
  if (fabric->magic != kFabricMagic || fabric->version != kLayoutVersion || fabric->node_count > kMaxNodes) {
    log_line("VHCA_FABRIC=%s is not a fabric of this version (layout %u). There are no devices.", path,
             kLayoutVersion);
    ::munmap(memory, kFabricBytes);
    return std::nullopt;
  }
  for (std::uint32_t i = 0; node_name && i < fabric->node_count; ++i) {
    if (std::strncmp(fabric->nodes[i].name, node_name, sizeof fabric->nodes[i].name) != 0) continue;
    return Place{fabric, i, memory_node};
  }
  log_line("VHCA_NODE%s%s names no node of the fabric in VHCA_FABRIC (%s). There are no devices.",
           node_name ? "=" : " is not set and so ", node_name ? node_name : "", node_names(*fabric).c_str());
  ::munmap(memory, kFabricBytes);
  return std::nullopt;
}

int Process::join() {
  // Initiators of other processes write into our memory, whatever Yama's ptrace_scope says about strangers.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  if (::getrandom(&beacon_, sizeof beacon_, GRND_NONBLOCK) != sizeof beacon_) beacon_ = now_ns();
  beacon_ ^= static_cast<std::uint64_t>(::getpid()) << 40;
  self_ = register_process(fabric(), place_.node, place_.memory_node, &beacon_);
  if (self_ == 0) {
    log_line("all %zu process slots of the fabric are taken", kMaxProcesses);
    return EAGAIN;
  }
  mover_ = std::make_unique<MemoryMover>(fabric(), self_);
  return 0;
}

void Process::leave() {
  unregister_process(fabric(), self_);
  self_ = 0;
}

}  // namespace vhca
