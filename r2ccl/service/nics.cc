// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/service/nics.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "r2ccl/base/log.h"
#include "r2ccl/path/path.h"
#include "r2ccl/protocol/wire.h"
#include "r2ccl/topology/nic_order.h"

namespace r2ccl {
namespace {

Result<void> check_limits(const verbs::Device& device) {
  const ibv_device_attr& limits = device.limits();
  const auto need = [&](const char* what, int has, int wants) -> Result<void> {
    if (has >= wants) return {};
    return Error{ErrorCode::kOutOfResources, "NIC " + device.name() + " offers " + what + " = " +
                                                 std::to_string(has) + ", R2CCL needs " +
                                                 std::to_string(wants)};
  };
  if (auto ok = need("max_qp_wr", limits.max_qp_wr, int(std::max(Path::kSendDepth, Path::kReceiveDepth + 1)));
      !ok)
    return ok;
  if (auto ok = need("max_cqe", limits.max_cqe, int(Path::kSendDepth + Path::kReceiveDepth + 8)); !ok)
    return ok;
  if (auto ok = need("max_qp", limits.max_qp, 4); !ok) return ok;
  return need("max_mr", limits.max_mr, 8);
}

void take(std::vector<verbs::Device>& devices, const std::vector<size_t>& order) {
  std::vector<verbs::Device> taken;
  taken.reserve(order.size());
  for (const size_t i : order) taken.push_back(std::move(devices[i]));
  devices = std::move(taken);
}

/// A NIC that cannot do what a path needs is none, unless there is no other: then the error says so.
Result<void> leave_out_limited(std::vector<verbs::Device>& devices) {
  std::optional<Error> last;
  std::vector<size_t> kept;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto fine = check_limits(devices[i]);
    if (fine) {
      kept.push_back(i);
      continue;
    }
    R2_WARN("NET/R2CCL: %s; it is not used", fine.error().message.c_str());
    last = fine.error();
  }
  if (kept.empty() && last) return *last;
  if (kept.size() < devices.size()) take(devices, kept);
  return {};
}

}  // namespace

Result<std::vector<verbs::Device>> open_nics(const Config& config) {
  auto opened = verbs::Device::open_all(config);
  if (!opened) return opened;
  std::vector<verbs::Device>& devices = *opened;
  if (auto some = leave_out_limited(devices); !some) return some.error();
  std::vector<std::string> names;
  for (const verbs::Device& device : devices) names.push_back(device.name());
  if (config.pci_order != 0) take(devices, topology::order_by_pci(names));
  if (devices.size() <= size_t(wire::kMaxNics)) return opened;
  R2_WARN(
      "NET/R2CCL: %zu NICs found, the %d fastest are used, of equal ones the first; NCCL_IB_HCA chooses "
      "others",
      devices.size(), wire::kMaxNics);
  std::vector<int> speeds;
  for (const verbs::Device& device : devices) speeds.push_back(device.speed_mbps());
  take(devices, topology::fastest(speeds, size_t(wire::kMaxNics)));
  return opened;
}

}  // namespace r2ccl
