// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/readiness.h"

#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/fabric/device_fabric.h"
#include "harness/fabric/guest.h"
#include "harness/fabric/scripts.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall = "apt-get install --no-install-recommends ";
constexpr uint64_t kUsefulLockedBytes = 64u << 20;  // rings and buffers of a small job
constexpr int kCheckSeconds = 900;                  // apt's lists, on a machine that is busy

bool can_run(const std::string& program) {
  std::istringstream folders("/usr/sbin:/usr/bin:/sbin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

double gbits_per_second(const ibv_port_attr& port) {
  const double lane = port.active_speed == 1    ? 2.5
                      : port.active_speed == 2  ? 5
                      : port.active_speed == 4  ? 10
                      : port.active_speed == 8  ? 10
                      : port.active_speed == 16 ? 14
                      : port.active_speed == 32 ? 25
                      : port.active_speed == 64 ? 50
                                                : 100;
  const int lanes = port.active_width == 1   ? 1
                    : port.active_width == 2 ? 4
                    : port.active_width == 4 ? 8
                    : port.active_width == 8 ? 12
                                             : 2;
  return lane * lanes;
}

std::string first_word(const fs::path& path, const std::string& otherwise) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? word : otherwise;
}

/// One line about a device, and whether a port of it is active.
std::string describe(ibv_device* device, int& active_devices) {
  const std::string name = ibv_get_device_name(device);
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr) return name + ": cannot be opened (is /dev/infiniband there, and readable?)";
  ibv_device_attr limits{};
  std::ostringstream line;
  line << name << ": ";
  bool active = false;
  if (ibv_query_device(context, &limits) == 0) {
    for (int number = 1; number <= limits.phys_port_cnt; ++number) {
      ibv_port_attr port{};
      if (ibv_query_port(context, uint8_t(number), &port) != 0) continue;
      active = active || port.state == IBV_PORT_ACTIVE;
      int gids = 0;
      for (int i = 0; i < port.gid_tbl_len && i < 64; ++i) {
        ibv_gid gid{};
        if (ibv_query_gid(context, uint8_t(number), i, &gid) == 0 && gid.global.interface_id != 0) ++gids;
      }
      line << "port " << number << " " << ibv_port_state_str(port.state) << ", "
           << (port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand") << ", "
           << gbits_per_second(port) << " Gbit/s, MTU " << (128 << int(port.active_mtu)) << ", " << gids
           << " GIDs; ";
    }
  }
  ibv_close_device(context);
  line << "NUMA node "
       << first_word(fs::path("/sys/class/infiniband") / name / "device" / "numa_node", "unknown");
  active_devices += active ? 1 : 0;
  return line.str();
}

}  // namespace

Readiness vhca_readiness(const std::string& lib_dir) {
  Readiness result{"vhca", {}, {}};
  if (access((lib_dir + "/vhca/libibverbs.so.1").c_str(), R_OK) == 0)
    result.has.push_back("the virtual HCA is built; it needs no device and no privileges");
  else
    result.missing.push_back("there is no " + lib_dir + "/vhca/libibverbs.so.1: ./r2bench build");
  return result;
}

Readiness rxe_readiness(const std::string& python) {
  Readiness result{"rxe", {}, {}};
  if (!can_run("ip") || !can_run("rdma") || !can_run("tc"))
    result.missing.push_back(std::string("iproute2 (ip, tc, rdma): ") + kInstall + "iproute2");
  if (!fs::exists("/etc/libibverbs.d/rxe.driver"))
    result.missing.push_back(std::string("the rxe provider of libibverbs: ") + kInstall +
                             "ibverbs-providers");
  const char* here = std::getenv(kRxeHereVariable);
  if (here != nullptr && std::string(here) == "1") {
    result.has.push_back(std::string(kRxeHereVariable) +
                         "=1: its devices are made right here, without a guest");
    if (!fs::exists("/sys/module/rdma_rxe"))
      result.missing.push_back("the module rdma_rxe is not loaded: modprobe rdma_rxe");
    if (geteuid() != 0) result.missing.push_back("root is needed to make its devices: sudo");
    return result;
  }
  utsname system{};
  uname(&system);
  if (std::string(system.machine) != "x86_64") result.missing.push_back("its guest is made for x86-64 only");
  if (find_qemu().empty()) {
    result.missing.push_back(std::string("QEMU: ") + kInstall + "qemu-system-x86");
  } else {
    result.has.push_back(find_qemu());
  }
  if (python.empty()) {
    result.missing.push_back(std::string("Python: ") + kInstall + "python3");
    return result;
  }
  try {
    const ScriptResult guest = run_script({python, fabric_script("make_guest.py"), "--check"}, kCheckSeconds);
    if (guest.exit_code == 0)
      result.has.push_back("guest: " + guest.output);
    else if (guest.output.rfind("not made yet", 0) == 0)
      result.has.push_back("guest: " + guest.output);  // it makes itself
    else
      result.missing.push_back(guest.output);
  } catch (const FabricError& error) {
    result.missing.push_back(error.what());
  }
  return result;
}

Readiness verbs_readiness() {
  Readiness result{"verbs", {}, {}};
  int count = 0, active = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i) result.has.push_back(describe(list[i], active));
  if (list != nullptr) ibv_free_device_list(list);
  if (active < 2)
    result.missing.push_back(
        "a scenario of two nodes needs two RDMA devices with an active port, and this host has " +
        std::to_string(active) + (fs::exists("/sys/class/infiniband") ? "" : " (no RDMA driver is loaded)") +
        "; see: ibv_devinfo, rdma link");
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kUsefulLockedBytes)
    result.missing.push_back("locked memory is limited to " + std::to_string(limit.rlim_cur >> 10) +
                             " KiB: ulimit -l unlimited");
  return result;
}

std::vector<std::string> gpus(const std::string& root) {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "proc/driver/nvidia/gpus", none)) {
    const std::string bus = entry.path().filename().string();
    std::string model = "of unknown model";
    std::ifstream information(entry.path() / "information");
    for (std::string line; std::getline(information, line);)
      if (line.rfind("Model:", 0) == 0) model = line.substr(line.find_first_not_of(" \t", 6));
    found.push_back(bus + " " + model + ", NUMA node " +
                    first_word(fs::path(root) / "sys/bus/pci/devices" / bus / "numa_node", "unknown"));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string gpu_direct() {
  if (!fs::exists("/proc/driver/nvidia/version")) return "no NVIDIA driver, so no GPU memory";
  if (fs::exists("/sys/module/nvidia_peermem")) return "nvidia_peermem is loaded";
  utsname system{};
  uname(&system);
  int major = 0, minor = 0;
  std::sscanf(system.release, "%d.%d", &major, &minor);
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  if (line.find("Open Kernel Module") != std::string::npos && (major > 5 || (major == 5 && minor >= 12)))
    return std::string("dma-buf (Linux ") + system.release + ", open kernel module)";
  return "missing: modprobe nvidia_peermem, or the driver's open kernel module on Linux 5.12 or later";
}

}  // namespace r2bench
