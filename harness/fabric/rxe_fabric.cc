// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/rxe_fabric.h"

#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "harness/fabric/guest.h"
#include "harness/fabric/scripts.h"

namespace r2bench {
namespace {

constexpr int kScriptSeconds = 120;

std::string nic_name(char side, int node, int nic) {
  return side + std::to_string(node) + "k" + std::to_string(nic);
}

std::string device_list(int node, int nics) {
  std::string list;
  for (int k = 0; k < nics; ++k) list += (k > 0 ? "," : "") + rxe_device(node, k);
  return list;
}

class RxeFabric final : public DeviceFabric {
 public:
  explicit RxeFabric(const Fabric& shape) : shape_(shape), script_(fabric_script("rxe_net.sh")) {
    try {
      make();
    } catch (...) {
      take_down();
      throw;
    }
  }
  ~RxeFabric() override { take_down(); }

  std::string evidence() const override { return "rxe"; }
  std::map<std::string, std::string> environment(int node) const override {
    const std::string list = device_list(node, shape_.nics_per_node);
    // rxe takes a retry count of 7 for 'for ever'.
    return {{"NCCL_IB_HCA", "=" + list},
            {"FAULTINJECT_NICS", list},
            {"NCCL_IB_RETRY_CNT", "6"},
            {"R2CC_NODE_NAME", node_name(node)}};
  }
  std::vector<std::string> library_folders() const override { return {}; }
  std::optional<uint64_t> carried_bytes(int node, int nic) const override {
    uint64_t sum = 0;
    for (const char* counter : {"tx_bytes", "rx_bytes"}) {
      uint64_t value = 0;
      if (!(std::ifstream("/sys/class/net/" + nic_name('n', node, nic) + "/statistics/" + counter) >> value))
        return std::nullopt;
      sum += value;
    }
    return sum;
  }

 private:
  void make() const {
    const Fabric& shape = shape_;
    run({"up", std::to_string(shape.nodes), std::to_string(shape.nics_per_node)});
    std::vector<std::string> netem;
    if (shape.nic_rate_bits_per_s > 0) netem = {"rate", std::to_string(shape.nic_rate_bits_per_s) + "bit"};
    if (shape.latency.count() > 0)
      netem.insert(netem.end(), {"delay", std::to_string(shape.latency.count()) + "ns"});
    if (netem.empty()) return;
    for (int n = 0; n < shape.nodes; ++n) {
      for (int k = 0; k < shape.nics_per_node; ++k) {
        std::vector<std::string> words = {"shape", nic_name('n', n, k)};
        words.insert(words.end(), netem.begin(), netem.end());
        run(words);
      }
    }
  }
  void take_down() const noexcept {
    try {
      run_script({script_, "down"}, kScriptSeconds);
    } catch (const std::exception&) {  // the next `up` clears what is left
    }
  }

  void run(std::vector<std::string> words) const {
    words.insert(words.begin(), script_);
    const ScriptResult result = run_script(words, kScriptSeconds);
    if (result.exit_code == 0) return;
    throw FabricError("the soft RoCE devices cannot be made ('rxe_net.sh " + words[1] +
                      "' ended with status " + std::to_string(result.exit_code) + "): " + result.output);
  }

  Fabric shape_;
  std::string script_;
};

}  // namespace

std::string rxe_device(int node, int nic) {
  return "node" + std::to_string(node) + "_nic" + std::to_string(nic);
}

std::unique_ptr<DeviceFabric> make_rxe_fabric(const Fabric& shape) {
  const char* here = std::getenv(kRxeHereVariable);
  if (here == nullptr || std::string(here) != "1")
    throw FabricError(
        std::string("soft RoCE devices change the routing rules of the machine that has them, so they are "
                    "made in a guest; set ") +
        kRxeHereVariable + "=1 to have them right here (root, module rdma_rxe)");
  return std::make_unique<RxeFabric>(shape);
}

}  // namespace r2bench
