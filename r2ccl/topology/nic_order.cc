// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/topology/nic_order.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <numeric>

#include "r2ccl/topology/pci_path.h"

namespace r2ccl::topology {
namespace {

constexpr uint64_t kNone = ~uint64_t{0};

// "0000:3b:00.1" as the number of its hexadecimal digits.
uint64_t pci_address(const std::string& nic_name, const std::string& sysfs) {
  std::error_code failed;
  const auto device = std::filesystem::canonical(
      std::filesystem::path(sysfs) / "class/infiniband" / nic_name / "device", failed);
  if (failed) return kNone;
  const std::string path = device.native();  // what follows looks into it
  std::string digits(last_component(trim_to_pci(path)));
  std::erase_if(digits, [](char c) { return c == ':' || c == '.'; });
  uint64_t address = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address, 16);
  return error == std::errc() && end != digits.data() ? address : kNone;
}

std::vector<size_t> as_they_stand(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

}  // namespace

std::vector<size_t> order_by_pci(std::span<const std::string> nic_names, const std::string& sysfs) {
  std::vector<uint64_t> addresses;
  for (const std::string& name : nic_names) addresses.push_back(pci_address(name, sysfs));
  std::vector<size_t> order = as_they_stand(nic_names.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return addresses[a] < addresses[b]; });
  return order;
}

std::vector<size_t> fastest(std::span<const int> speeds_mbps, size_t most) {
  std::vector<size_t> order = as_they_stand(speeds_mbps.size());
  if (order.size() <= most) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return speeds_mbps[a] > speeds_mbps[b]; });
  order.resize(most);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace r2ccl::topology
