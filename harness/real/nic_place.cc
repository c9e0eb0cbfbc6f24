// SPDX-License-Identifier: Apache-2.0
#include "harness/real/nic_place.h"

#include <filesystem>
#include <fstream>
#include <sstream>

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

bool is_way_out(const std::string& interface, const std::string& proc) {
  std::ifstream routes(fs::path(proc) / "net" / "route");
  for (std::string line; std::getline(routes, line);) {
    std::istringstream words(line);
    std::string name, destination, gateway, flags, count, use, metric, mask;
    words >> name >> destination >> gateway >> flags >> count >> use >> metric >> mask;
    if (name == interface && destination == "00000000" && mask == "00000000") return true;
  }
  return false;
}

}  // namespace r2bench
