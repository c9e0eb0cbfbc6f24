// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster/facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/real/lifelines.h"
#include "harness/real/nic_place.h"
#include "harness/real/shell.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kExtendedConfig = 0x100;  // PCI Express base specification, 7.6.1
constexpr int kAcsCapability = 0x000d;
constexpr int kMostGids = 256;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return line;
}

int number_of(const fs::path& path, int otherwise) {
  const std::string text = line_of(path);
  try {
    return text.empty() ? otherwise : std::stoi(text, nullptr, 0);
  } catch (const std::exception&) {
    return otherwise;
  }
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// "4: ACTIVE" -> "ACTIVE"
std::string behind_colon(const std::string& text) {
  const size_t at = text.find(": ");
  return at == std::string::npos ? text : text.substr(at + 2);
}

std::vector<GidFacts> gids_of(const fs::path& port) {
  std::vector<GidFacts> gids;
  for (int i = 0; i < kMostGids; ++i) {
    const std::string gid = line_of(port / "gids" / std::to_string(i));
    if (gid.empty()) break;
    if (gid.find_first_not_of("0:") == std::string::npos) continue;
    if (gid == "fe80:0000:0000:0000:0000:0000:0000:0000") continue;
    gids.push_back({i, gid, line_of(port / "gid_attrs" / "types" / std::to_string(i))});
  }
  return gids;
}

std::vector<std::string> addresses_of(const std::string& interface) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (interface.empty() || getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_netmask == nullptr || interface != each->ifa_name ||
        each->ifa_addr->sa_family != AF_INET)
      continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof(text));
    const uint32_t mask = reinterpret_cast<const sockaddr_in*>(each->ifa_netmask)->sin_addr.s_addr;
    addresses.push_back(std::string(text) + "/" + std::to_string(std::popcount(mask)));
  }
  freeifaddrs(list);
  return addresses;
}

void pci_facts(PortFacts& port, const fs::path& device) {
  std::error_code none;
  const fs::path place = fs::canonical(device, none);
  if (none || !fs::exists(place / "vendor", none)) return;
  port.pci = place.filename().string();
  port.pci_speed = line_of(place / "current_link_speed");
  port.pci_speed_max = line_of(place / "max_link_speed");
  port.pci_width = number_of(place / "current_link_width", 0);
  port.pci_width_max = number_of(place / "max_link_width", 0);
  port.numa_node = number_of(place / "numa_node", -1);
  for (fs::path up = place.parent_path(); fs::exists(up / "class", none); up = up.parent_path()) {
    if (line_of(up / "class").rfind("0x0604", 0) != 0) continue;
    std::ifstream file(up / "config", std::ios::binary);
    std::ostringstream config;
    config << file.rdbuf();
    port.bridges.push_back({up.filename().string(), acs_control(config.str())});
  }
}

bool is_bluefield(const fs::path& device) {
  const std::string id = line_of(device / "device");
  return line_of(device / "vendor") == "0x15b3" && (id == "0xa2d2" || id == "0xa2d6" || id == "0xa2dc");
}

/// A user who is not root, or who comes by ssh, has no folder of system programs on the PATH.
const std::string kSystemPath = "PATH=$PATH:/usr/sbin:/sbin; ";

std::string ask(const std::string& command) {
  const ShellResult result = run_shell(kSystemPath + command, std::chrono::seconds(20));
  return result.exit_code == 0 ? result.output : "";
}

bool have(const std::string& program) { return !ask("command -v " + program).empty(); }

/// Words behind `key` in a line such as "prio-pfc 0:off 3:on".
std::string values_with(const std::string& text, const std::string& ending) {
  std::istringstream words(text);
  std::string all;
  for (std::string word; words >> word;)
    if (word.size() > ending.size() && word.substr(word.size() - ending.size()) == ending)
      all += (all.empty() ? "" : ",") + word.substr(0, word.size() - ending.size());
  return all;
}

void dcb_facts(PortFacts& port) {
  const std::string on = " dev " + port.interface;
  if (const std::string pfc = ask("dcb pfc show" + on + " prio-pfc 2>/dev/null"); !pfc.empty()) {
    const std::string priorities = values_with(pfc, ":on");
    port.pfc = priorities.empty() ? "none" : priorities;
  }
  if (const std::string rates = ask("dcb maxrate show" + on + " tc-maxrate 2>/dev/null"); !rates.empty()) {
    std::istringstream words(rates);
    std::string least = "none";
    for (std::string word; words >> word;)
      if (const size_t colon = word.find(':');
          colon == 1 && word.substr(2) != "0" && word.substr(2, 4) != "0bit")
        least = word.substr(2);
    port.rate_limit = least;
  }
}

PortFacts port_facts(const fs::path& root, const std::string& device, int number, bool tools) {
  const fs::path folder = root / "sys/class/infiniband" / device,
                 port = folder / "ports" / std::to_string(number);
  PortFacts facts;
  facts.device = device;
  facts.port = number;
  facts.state = behind_colon(line_of(port / "state"));
  facts.link_layer = line_of(port / "link_layer");
  facts.rate = line_of(port / "rate");
  facts.gids = gids_of(port);
  facts.firmware = line_of(folder / "fw_ver");
  facts.board = line_of(folder / "board_id");
  facts.interface = line_of(port / "gid_attrs/ndevs/0");
  std::error_code none;
  facts.soft = fs::exists(folder / "parent", none);
  if (facts.interface.empty() && facts.soft) facts.interface = line_of(folder / "parent");
  if (facts.interface.empty())
    if (const auto names = names_in(folder / "device/net"); !names.empty()) facts.interface = names.front();
  facts.driver =
      facts.soft ? "soft" : fs::path(fs::read_symlink(folder / "device/driver", none)).filename().string();
  const fs::path net = root / "sys/class/net" / facts.interface;
  if (!facts.interface.empty()) facts.interface_mtu = number_of(net / "mtu", 0);
  if (!facts.soft) pci_facts(facts, folder / "device");
  if (const std::string ecn = line_of(net / "ecn/roce_np/enable/3"); !ecn.empty()) facts.ecn = ecn == "1";
  if (is_bluefield(folder / "device"))
    facts.dpu_mode = tools ? bluefield_mode(place_of(0, 0, device, root / "sys"), root / "sys") : "unknown";
  for (const std::string& route : default_routes((root / "proc").string()))
    facts.default_route =
        facts.default_route || (!facts.interface.empty() && carries(facts.interface, route, root / "sys"));
  if (tools) {
    facts.addresses = addresses_of(facts.interface);
    if (!facts.interface.empty() && !facts.soft) dcb_facts(facts);
  }
  return facts;
}

}  // namespace

std::optional<int> acs_control(const std::string& config) {
  const auto word = [&](size_t at) {
    return at + 1 < config.size() ? int(uint8_t(config[at])) | int(uint8_t(config[at + 1])) << 8 : -1;
  };
  size_t at = kExtendedConfig;
  for (int steps = 0; steps < 64 && at >= kExtendedConfig && at + 8 <= config.size(); ++steps) {
    const int id = word(at);
    if (id <= 0 || id == 0xffff) break;
    if (id == kAcsCapability) return word(at + 6);
    at = size_t(word(at + 2)) >> 4;
  }
  return std::nullopt;
}

std::optional<GidFacts> PortFacts::chosen_gid() const {
  const std::string mapped = "0000:0000:0000:0000:0000:ffff:";
  std::optional<GidFacts> second;
  for (const GidFacts& gid : gids) {
    if (link_layer == "InfiniBand") return gid;
    if (gid.type != "RoCE v2") continue;
    if (gid.gid.rfind(mapped, 0) == 0) return gid;
    if (!second) second = gid;
  }
  return second;
}

RdmaHostFacts rdma_facts_of_this_host(const std::string& root, std::optional<bool> ask_tools) {
  RdmaHostFacts facts;
  const bool tools = ask_tools.value_or(root == "/");
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  facts.host = name;
  utsname system{};
  uname(&system);
  facts.kernel = system.release;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  facts.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : uint64_t(limit.rlim_cur);
  facts.root = geteuid() == 0;
  facts.gpus = !names_in(fs::path(root) / "proc/driver/nvidia/gpus").empty();
  facts.peer_memory = fs::exists(fs::path(root) / "sys/module/nvidia_peermem");
  if (tools)
    for (const char* tool : {"ip", "dcb", "setpci", "ibv_devinfo"})
      if (!have(tool)) facts.missing_tools.emplace_back(tool);
  for (const std::string& device : names_in(fs::path(root) / "sys/class/infiniband"))
    for (const std::string& port : names_in(fs::path(root) / "sys/class/infiniband" / device / "ports"))
      facts.ports.push_back(port_facts(root, device, std::stoi(port), tools));
  return facts;
}

}  // namespace r2bench
