#include "harness/fabric/verbs_fabric.h"

#include <infiniband/verbs.h>

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

class VerbsFabric final : public DeviceFabric {
 public:
  VerbsFabric(std::vector<std::vector<std::string>> devices) : devices_(std::move(devices)) {}

  /// Soft RoCE and soft iWARP have a parent interface in sysfs; one of them makes no hardware of the whole.
  std::string evidence() const override {
    for (const auto& node : devices_)
      for (const std::string& name : node)
        if (std::filesystem::exists("/sys/class/infiniband/" + name + "/parent")) return "rxe";
    return "hardware";
  }
  std::map<std::string, std::string> environment(int node) const override {
    std::string list;
    for (const std::string& name : devices_[size_t(node)]) list += (list.empty() ? "" : ",") + name;
    return {{"NCCL_IB_HCA", "=" + list}, {"FAULTINJECT_NICS", list}, {"R2CC_NODE_NAME", node_name(node)}};
  }
  std::vector<std::string> library_folders() const override { return {}; }
  std::optional<uint64_t> carried_bytes(int node, int nic) const override {
    const std::string folder =
        "/sys/class/infiniband/" + devices_[size_t(node)][size_t(nic)] + "/ports/1/counters/";
    uint64_t words = 0;
    for (const char* counter : {"port_xmit_data", "port_rcv_data"}) {
      uint64_t value = 0;
      if (!(std::ifstream(folder + counter) >> value)) return std::nullopt;
      words += value;
    }
    return 4 * words;  // IBTA: counted in units of four bytes
  }

 private:
  std::vector<std::vector<std::string>> devices_;  ///< per node
};

}  // namespace

std::unique_ptr<DeviceFabric> make_verbs_fabric(const Fabric& shape) {
  const std::vector<std::string> found = active_devices();
  const size_t wanted = size_t(shape.nodes) * size_t(shape.nics_per_node);
  if (found.size() < wanted)
    throw FabricError("the scenario wants " + std::to_string(shape.nodes) + " nodes with " +
                      std::to_string(shape.nics_per_node) + " NICs each on this host, which has " +
                      std::to_string(found.size()) +
                      " RDMA devices with an active port; 'kind: vhca' needs none");
  std::vector<std::vector<std::string>> devices(size_t(shape.nodes));
  for (size_t i = 0; i < wanted; ++i) devices[i / size_t(shape.nics_per_node)].push_back(found[i]);
  return std::make_unique<VerbsFabric>(std::move(devices));
}

}  // namespace r2bench
