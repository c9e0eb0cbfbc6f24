// SPDX-License-Identifier: Apache-2.0
#include "harness/real/nic_place.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "harness/real/shell.h"

namespace r2bench {

namespace fs = std::filesystem;

namespace {

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

std::string NicPlace::in_words() const {
  std::string text = "node" + std::to_string(node) + "/nic" + std::to_string(nic) + " (" + device;
  if (!interface.empty()) text += ", " + interface;
  if (!pci.empty()) text += ", " + pci;
  return text + ")";
}

NicPlace place_of(int node, int nic, const std::string& device, const std::string& sys) {
  NicPlace place{node, nic, device, "", "", false};
  const fs::path folder = fs::path(sys) / "class" / "infiniband" / device;
  place.interface = first_word(folder / "ports" / "1" / "gid_attrs" / "ndevs" / "0");
  std::error_code none;
  if (place.interface.empty())
    for (const auto& entry : fs::directory_iterator(folder / "device" / "net", none)) {
      place.interface = entry.path().filename().string();
      break;
    }
  const fs::path parent = folder / "parent";  // soft RoCE and soft iWARP have this, and no PCI function
  place.soft = fs::exists(parent, none);
  if (place.interface.empty() && place.soft) place.interface = first_word(parent);
  const fs::path pci = fs::canonical(folder / "device", none);
  if (!none && !place.soft && fs::exists(pci / "vendor", none)) place.pci = pci.filename().string();
  return place;
}

std::string bluefield_mode(const NicPlace& place, const std::string& sys) {
  if (place.pci.empty()) return "";
  const fs::path device = fs::path(sys) / "class" / "infiniband" / place.device / "device";
  const std::string id = first_word(device / "device");
  if (first_word(device / "vendor") != "0x15b3" || (id != "0xa2d2" && id != "0xa2d6" && id != "0xa2dc"))
    return "";
  const std::string said =
      run_shell(
          "PATH=$PATH:/usr/sbin:/sbin; for t in mlxconfig mstconfig; do command -v $t >/dev/null && $t -d " +
              place.pci + " query INTERNAL_CPU_OFFLOAD_ENGINE 2>/dev/null && break; done",
          std::chrono::seconds(20))
          .output;
  if (said.find("DISABLED") != std::string::npos) return "NIC";
  return said.find("ENABLED") != std::string::npos ? "DPU" : "unknown";
}

}  // namespace r2bench
