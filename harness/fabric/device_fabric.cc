// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/device_fabric.h"

#include <cstdlib>

#include "harness/fabric/rxe_fabric.h"
#include "harness/fabric/verbs_fabric.h"
#include "harness/fabric/vhca_fabric.h"

namespace r2bench {

namespace {

/// No RDMA device at all: for net plugins over sockets. Nothing of the host's is hidden or counted.
class NoFabric final : public DeviceFabric {
 public:
  std::string evidence() const override { return "emulated"; }
  std::map<std::string, std::string> environment(int) const override { return {}; }
  std::vector<std::string> library_folders() const override { return {}; }
  std::optional<uint64_t> carried_bytes(int, int) const override { return std::nullopt; }
};

}  // namespace

std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir) {
  const char* ib_hca = std::getenv("NCCL_IB_HCA");
  return make_fabric(kind, shape, lib_dir, {0, shape.nodes, {}}, {ib_hca == nullptr ? "" : ib_hca, nullptr});
}

std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir, const NodesHere& here,
                                          const DeviceWish& wish) {
  if (kind == "vhca")
    return here.shared.empty() ? make_vhca_fabric(shape, lib_dir)
                               : join_vhca_fabric(shape, lib_dir, here.shared);
  if (kind == "verbs") return make_verbs_fabric(shape, here.first, here.count, wish);
  if (kind == "none") return std::make_unique<NoFabric>();
  if (kind == "rxe") {
    if (here.count != shape.nodes)
      throw FabricError(
          "fabric rxe makes the soft RoCE devices of all nodes on one machine; with several machines, make "
          "them on each (rdma link add NAME type rxe netdev INTERFACE) and choose fabric verbs");
    return make_rxe_fabric(shape);
  }
  throw FabricError("there is no fabric '" + kind + "'; choose vhca, rxe, verbs or none");
}

}  // namespace r2bench
