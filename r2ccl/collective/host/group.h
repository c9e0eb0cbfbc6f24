// SPDX-License-Identifier: Apache-2.0
// One CollNet communicator: its channels, its executor, and the plan of each operation. See engine.h.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/engine.h"
#include "r2ccl/collective/host/engine_judge.h"
#include "r2ccl/collective/host/executor.h"
#include "r2ccl/collective/host/plan_agreement.h"
#include "r2ccl/collective/host/program.h"
#include "r2ccl/collective/host/striped_transport.h"
#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {

/// A net listener, which the group goes on needing when NCCL has closed its own.
struct OpenListener {
  OpenListener(Net& n, Listener* l) : net(n), listener(l) {}
  ~OpenListener() { static_cast<void>(net.close(listener)); }
  OpenListener(const OpenListener&) = delete;
  OpenListener& operator=(const OpenListener&) = delete;
  Net& net;
  Listener* listener;
};

/// A further NIC that the group may use, and where others reach this rank on it.
struct FurtherNic {
  int device = 0;
  std::shared_ptr<OpenListener> listener;
  Handle handle{};
};
inline constexpr size_t kMostFurtherNics = 7;
/// Longest message of a group of several NICs: so that the NICs have something to do beside each other.
inline constexpr size_t kStripedMessageBytes = 64 << 10;

/// What every rank tells all others at connect(), so that all plan with the same numbers.
struct RankInfo {
  uint32_t version = 0;
  uint32_t rank = 0;
  double bytes_per_second = 0;         ///< of one NIC, nominal
  double reduce_bytes_per_second = 0;  ///< of its additions, measured
  double margin = 1;                   ///< R2CC_COLLNET_MARGIN; 0: the default
  std::array<char, 32> algorithm{};    ///< R2CC_ALGORITHM, which all must have alike
  PlanAgreement::Address agreement{};
  std::array<NicAddress, 1 + kMostFurtherNics> addresses{};  ///< of the first NIC and the further ones
  uint32_t further = 0;  ///< NICs besides the first; the group uses as many as every rank has
  std::array<Handle, kMostFurtherNics> further_handles{};
};

/// As many as every rank has.
size_t nics_used(std::span<const RankInfo> members);

class Group {
 public:
  /// Where capacities come from: in production make_agreement(), in tests whatever they like.
  using MakeAgreement =
      std::function<Result<std::unique_ptr<PlanAgreement>>(uint32_t rank, std::span<const RankInfo> members)>;
  struct Setting {
    int device = 0;
    uint32_t rank = 0;
    std::vector<Handle> handles;
    std::chrono::milliseconds connect_bound{30000};
    RankInfo member;  ///< this rank's; `algorithm`, `further` and its handles are filled in
    std::vector<FurtherNic> further;
    ExecutorLimits limits;
    std::string algorithm;  ///< the schedule of every AllReduce (Algorithm's names); empty: the planner's choice
    MakeAgreement make_agreement;
  };

  /// Blocks until all ranks are connected as the ring, and have told each other who they are.
  static Result<std::unique_ptr<Group>> connect(Net& net, std::shared_ptr<OpenListener> listener,
                                                Setting setting);
  ~Group();

  Result<Registration*> reg(void* data, size_t bytes);
  Result<void> dereg(Registration* registration);
  /// nullptr: not now.
  Result<Operation*> begin(Collective collective, const void* sent, void* received, size_t count, DataType type,
                           Reduction reduction, Registration* sent_registration,
                           Registration* received_registration);
  Result<TestOutcome> test(Operation* operation);
  /// The same on all ranks.
  const Speeds& speeds() const { return speeds_; }
  /// What this node can carry now, and its NICs in the group's order. Any thread.
  NodeCapacity capacity() const;
  PlanAgreement& agreement() { return *agreement_; }
  uint32_t ranks() const { return static_cast<uint32_t>(setting_.handles.size()); }
  const Executor::Counters& counters() const { return executor_.counters(); }

 private:
  Group(Net& net, std::shared_ptr<OpenListener> listener, Setting setting);
  Result<void> meet();
  Result<void> widen();
  void watch_links();
  void tell_plan(const View& view);
  void tell_plan(size_t nic, double known);
  Result<void> poll();
  uint64_t added_ns() const { return static_cast<uint64_t>(counters().reducing.count()); }
  double seen_rate() const;
  static void warn(const EnginePace::Yield& yield);
  std::shared_ptr<Program> program(const View& view, Collective collective, uint64_t bytes);
  Schedule allreduce_schedule(const View& view, uint64_t bytes);
  std::shared_ptr<Program> make_program(const View& view, Collective collective, uint64_t bytes);
  Result<std::pair<size_t, StagingMemory>> scratch(size_t bytes);
  Result<bool> has_view();
  Result<Work> memory_of(Collective collective, Work::Memory sent, Work::Memory received, size_t block,
                         Operation& operation);
  Result<void> wait_for(const std::function<bool()>& over, const char* what);

  Net& net_;
  const std::shared_ptr<OpenListener> listener_;
  const Setting setting_;
  std::vector<RankInfo> members_;
  Speeds speeds_;
  const std::unique_ptr<GroupPlan> plan_;  // what the net knows of this group's plans; nullptr: it need not
  StripedTransport transport_;
  Executor executor_;
  EngineJudge judge_;  // which the agreement's thread looks at
  std::unique_ptr<PlanAgreement> agreement_;
  std::unique_ptr<LinkWatch> link_watch_;  // ends before the agreement that it tells
  uint64_t told_epoch_ = 0;
  uint64_t operations_ = 0;                  // begun
  ViewPointer next_view_;                    // of the operation that is about to begin
  std::map<std::tuple<uint64_t, Collective, uint64_t>, std::shared_ptr<Program>> programs_;  // epoch, size
  std::vector<std::unique_ptr<Operation>> open_;
  std::vector<std::pair<size_t, StagingMemory>> scratch_;  // not in use; the number is its size
  std::optional<Error> error_;
};

class Operation {
 public:
  Group* group = nullptr;
  Executor::Run* run = nullptr;
  size_t bytes = 0;  ///< received
  std::pair<size_t, StagingMemory> scratch{};  ///< ReduceScatter: sums on their way to others
};

}  // namespace r2ccl::collective
