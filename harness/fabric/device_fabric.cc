#include "harness/fabric/device_fabric.h"

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

std::string node_name(int node) { return "node" + std::to_string(node); }

std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir) {
  if (kind == "vhca") return make_vhca_fabric(shape, lib_dir);
  if (kind == "verbs") return make_verbs_fabric(shape);
  if (kind == "none") return std::make_unique<NoFabric>();
  if (kind == "rxe") return make_rxe_fabric(shape);
  throw FabricError("there is no fabric '" + kind + "'; choose vhca, rxe, verbs or none");
}

}  // namespace r2bench
