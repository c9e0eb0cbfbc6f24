// SPDX-License-Identifier: Apache-2.0
// The process's engine: listeners and groups over the Net.
#include "r2ccl/collective/host/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "r2ccl/base/config.h"
#include "r2ccl/base/file_limit.h"
#include "r2ccl/base/log.h"
#include "r2ccl/collective/host/group.h"
#include "r2ccl/collective/host/reduce.h"

namespace r2ccl::collective {

class GroupListener {
 public:
  int device = 0;
  std::shared_ptr<OpenListener> open;
};

namespace {

/// In the handle's last bytes, which the net leaves free.
struct Trailer {
  uint64_t magic;
  uint32_t version;
  uint32_t mode;
};
constexpr uint64_t kTrailerMagic = 0x74656e6c6c6f4332;
constexpr uint32_t kTrailerVersion = 2;
constexpr size_t kTrailerAt = kHandleBytes - sizeof(Trailer);

/// Ranks of this node, as far as whoever launched them says so: torchrun, Open MPI, MPICH and Intel MPI,
/// Slurm.
int local_ranks() {
  for (const char* variable :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"})
    if (const char* text = std::getenv(variable))
      if (const int count = std::atoi(text); count > 0) return count;
  return 1;
}

class HostEngine final : public Engine {
 public:
  HostEngine(Net& net, Config config) : net_(net), config_(std::move(config)) {}

  Result<GroupListener*> listen(int device, void* memory, uint64_t /*communicator*/) override {
    auto listening = net_.listen(device, memory);
    if (!listening) return listening.error();
    auto listener = std::make_unique<GroupListener>();
    listener->device = device;
    listener->open = std::make_shared<OpenListener>(net_, *listening);
    auto* const tail = static_cast<std::byte*>(memory) + kTrailerAt;
    if (std::any_of(tail, tail + sizeof(Trailer), [](std::byte b) { return b != std::byte{0}; }))
      return Error{ErrorCode::kBadHandle, "the net's handle leaves no room for the engine's"};
    const Trailer trailer{kTrailerMagic, kTrailerVersion, uint32_t(config_.mode)};
    std::memcpy(tail, &trailer, sizeof trailer);
    const std::lock_guard lock(mutex_);
    listeners_.push_back(std::move(listener));
    return listeners_.back().get();
  }

  Result<Group*> connect(GroupListener* listener, std::span<void* const> handles, int rank) override {
    Group* const none = nullptr;
    if (rank < 0 || size_t(rank) >= handles.size())
      return Error{ErrorCode::kInvalidArgument, "a rank that is not among the handles"};
    Group::Setting setting;
    setting.device = listener->device;
    setting.rank = uint32_t(rank);
    setting.connect_bound = config_.connect_bound;
    for (size_t i = 0; i < handles.size(); ++i) {
      Handle handle;
      std::memcpy(handle.data(), handles[i], handle.size());
      Trailer trailer;
      std::memcpy(&trailer, handle.data() + kTrailerAt, sizeof trailer);
      // Everybody sees the same handles, so everybody decides alike.
      const bool ours = trailer.magic == kTrailerMagic && trailer.version == kTrailerVersion;
      if (!ours || trailer.mode != uint32_t(Mode::kAllReduce)) {
        R2_INFO("NET/R2CCL: no CollNet: rank %zu %s; NCCL continues without it", i,
                ours ? "does not run R2CC_MODE=3" : "has another version of R2CCL");
        return none;
      }
      setting.handles.push_back(handle);
    }
    setting.member.bytes_per_second = std::max(1, net_.properties(listener->device).speed_mbps) * 1e6 / 8;
    setting.member.reduce_bytes_per_second = measured_reduction_speed();
    setting.member.margin = config_.collnet_margin / 100.0;
    if (auto made = listen_further(setting); !made) return made.error();
    setting.algorithm = config_.algorithm;
    PlanAgreement::Settings agreement = PlanAgreement::Settings::from(config_);
    agreement.name = "CollNet group on " + net_.properties(listener->device).name;
    auto listening = PlanAgreement::listen(agreement);
    if (!listening) return listening.error();
    setting.member.agreement = (*listening)->address();
    setting.make_agreement = [&](uint32_t number, std::span<const RankInfo> members) {
      agreement.nics = nics_used(members);
      return PlanAgreement::join(std::move(*listening), int(number), int(members.size()),
                                 members[0].agreement, agreement);
    };
    auto group = Group::connect(net_, listener->open, std::move(setting));
    if (!group) return group.error();
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(*group));
    return groups_.back().get();
  }

  PlanAgreement* agreement(Group* group) const override { return &group->agreement(); }
  Speeds speeds(const Group* group) const override { return group->speeds(); }
  NodeCapacity capacity(const Group* group) const override { return group->capacity(); }
  bool reduces(DataType type, Reduction reduction) const override {
    return reduction_of(type, reduction) != nullptr;
  }
  Result<Registration*> reg(Group* group, void* data, size_t bytes) override {
    return group->reg(data, bytes);
  }
  Result<void> dereg(Group* group, Registration* registration) override { return group->dereg(registration); }

  Result<Operation*> all_reduce(Group* group, const void* sent, void* received, size_t count, DataType type,
                                Reduction reduction, Registration* sent_registration,
                                Registration* received_registration) override {
    return begin(group, Collective::kAllReduce, sent, received, count, type, reduction, sent_registration,
                 received_registration);
  }
  Result<Operation*> all_gather(Group* group, const void* sent, void* received, size_t count, DataType type,
                                Registration* sent_registration,
                                Registration* received_registration) override {
    return begin(group, Collective::kAllGather, sent, received, count, type, Reduction::kSum,
                 sent_registration, received_registration);
  }
  Result<Operation*> reduce_scatter(Group* group, const void* sent, void* received, size_t count,
                                    DataType type, Reduction reduction, Registration* sent_registration,
                                    Registration* received_registration) override {
    return begin(group, Collective::kReduceScatter, sent, received, count, type, reduction, sent_registration,
                 received_registration);
  }
  Result<TestOutcome> test(Operation* operation) override { return operation->group->test(operation); }

  Result<void> close(Group* group) override {
    std::unique_ptr<Group> closing;
    const std::lock_guard lock(mutex_);
    for (auto& held : groups_)
      if (held.get() == group) closing = std::move(held);
    std::erase(groups_, nullptr);
    return {};
  }
  Result<void> close(GroupListener* listener) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [listener](const auto& held) { return held.get() == listener; });
    return {};
  }

 private:
  Result<Operation*> begin(Group* group, Collective collective, const void* sent, void* received,
                           size_t count, DataType type, Reduction reduction, Registration* sent_registration,
                           Registration* received_registration) {
    if (collective != Collective::kAllGather && !reduces(type, reduction))
      return Error{ErrorCode::kInvalidArgument, "the host engine does not have this reduction"};
    return group->begin(collective, sent, received, count, type, reduction, sent_registration,
                        received_registration);
  }

  /// The group's part of the node's NICs, the first one being NCCL's choice.
  Result<void> listen_further(Group::Setting& setting) {
    const int nics = net_.devices();
    const int wanted = config_.collnet_nics > 0 ? config_.collnet_nics : std::max(1, nics / local_ranks());
    for (int i = 1; i < std::min({nics, wanted, int(kMostFurtherNics) + 1}); ++i) {
      FurtherNic nic;
      nic.device = (setting.device + i) % nics;
      auto listening = net_.listen(nic.device, nic.handle.data());
      if (!listening) return listening.error();
      nic.listener = std::make_shared<OpenListener>(net_, *listening);
      setting.further.push_back(std::move(nic));
    }
    return {};
  }

  Net& net_;
  const Config config_;
  std::mutex mutex_;  // guards the following
  std::vector<std::unique_ptr<GroupListener>> listeners_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace

// A group's channels take a socket each, up to 512 for a plan, and those of earlier plans stay.
constexpr rlim_t kFiles = 65536;

Result<Engine*> Engine::acquire(Net& net) {
  static std::mutex mutex;
  static HostEngine* instance = nullptr;
  const std::lock_guard lock(mutex);
  if (!instance) {
    auto config = Config::from_environment();
    if (!config) return config.error();
    raise_file_limit(kFiles);
    instance = std::make_unique<HostEngine>(net, std::move(*config)).release();  // as long as the Net
  }
  return static_cast<Engine*>(instance);
}

}  // namespace r2ccl::collective
