// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/verbs_fabric.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace r2bench {
namespace {

/// Names of the devices whose port 1 is active.
std::vector<std::string> active_devices() {
  std::vector<std::string> names;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list && i < count; ++i) {
    ibv_context* context = ibv_open_device(list[i]);
    if (!context) continue;
    ibv_port_attr port{};
    if (ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE)
      names.emplace_back(ibv_get_device_name(list[i]));
    ibv_close_device(context);
  }
  if (list) ibv_free_device_list(list);
  return names;
}

/// Soft RoCE and soft iWARP have a parent interface in sysfs.
bool any_is_software(const std::vector<std::string>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const std::string& name) {
    return std::filesystem::exists("/sys/class/infiniband/" + name + "/parent");
  });
}

class VerbsFabric final : public DeviceFabric {
 public:
  VerbsFabric(int first, std::vector<std::vector<std::string>> devices)
      : first_(first), devices_(std::move(devices)) {}

  /// One device of software makes no hardware of the whole.
  std::string evidence() const override {
    for (const auto& node : devices_)
      if (any_is_software(node)) return "rxe";
    return "hardware";
  }
  std::map<std::string, std::string> environment(int node) const override {
    std::string list;
    for (const std::string& name : of_node(node)) list += (list.empty() ? "" : ",") + name;
    std::map<std::string, std::string> variables = {
        {"NCCL_IB_HCA", "=" + list}, {"FAULTINJECT_NICS", list}, {"R2CC_NODE_NAME", node_name(node)}};
    // Soft RoCE takes a retry count of 7 for 'for ever'.
    if (any_is_software(of_node(node))) variables["NCCL_IB_RETRY_CNT"] = "6";
    return variables;
  }
  std::vector<std::string> library_folders() const override { return {}; }
  std::optional<uint64_t> carried_bytes(int node, int nic) const override {
    const std::string folder = "/sys/class/infiniband/" + of_node(node)[size_t(nic)] + "/ports/1/counters/";
    uint64_t words = 0;
    for (const char* counter : {"port_xmit_data", "port_rcv_data"}) {
      uint64_t value = 0;
      if (!(std::ifstream(folder + counter) >> value)) return std::nullopt;
      words += value;
    }
    return 4 * words;  // IBTA: counted in units of four bytes
  }

 private:
  const std::vector<std::string>& of_node(int node) const { return devices_.at(size_t(node - first_)); }

  int first_;                                      ///< of this machine's nodes
  std::vector<std::vector<std::string>> devices_;  ///< per node
};

}  // namespace

std::unique_ptr<DeviceFabric> make_verbs_fabric(const Fabric& shape, int first, int count,
                                                const DeviceWish& wish) {
  const size_t wanted = size_t(count) * size_t(shape.nics_per_node);
  const std::vector<std::string> found = choose_devices(active_devices(), wish, wanted);
  std::vector<std::vector<std::string>> devices(static_cast<size_t>(count));
  for (size_t i = 0; i < wanted; ++i) devices[i / size_t(shape.nics_per_node)].push_back(found[i]);
  return std::make_unique<VerbsFabric>(first, std::move(devices));
}

}  // namespace r2bench
