// SPDX-License-Identifier: Apache-2.0
// The host engine: AllReduce and its kin among the nodes of a communicator, after a schedule of
// r2ccl/collective, on channels of the core, with additions on the CPU. What the CollNet shims of
// r2ccl/plugin see of it. The calls have the meaning of NCCL's CollNet interface, without its versions.
//
// One Group is one CollNet communicator: one rank per node, all on NIC `device` of their node; that NIC is
// the home of its traffic, and Balance moves it as it moves any other. Operations of a Group are begun in the
// same order on all its nodes, and up to kMaxOperations of them are open at a time. They advance inside
// all_reduce() and test(): there is no thread of its own for data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/service/net.h"

namespace r2ccl::collective {

class Group;
class PlanAgreement;
class GroupListener;
class Operation;  ///< one collective call, from its beginning to the test that says done

/// As in NCCL, 2.24 and later (float8 types last).
enum class DataType : uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};
inline constexpr int kDataTypes = 12;
/// Of one element.
constexpr size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

/// kSum also carries avg and premulsum: NCCL scales before and after.
enum class Reduction : uint8_t { kSum, kProd, kMax, kMin };

inline constexpr int kMaxOperations = 64;                      ///< open at a time in a Group
inline constexpr size_t kMaxOperationBytes = size_t{1} << 30;  ///< maxCollBytes: sizes of test are still int

class Engine {
 public:
  /// The process's engine over `net`, made on the first call.
  static Result<Engine*> acquire(Net& net);
  virtual ~Engine() = default;

  /// Starts to listen on `device` and fills `handle` (kHandleBytes) for all ranks of the group.
  /// `communicator` is NCCL's number of it (commId), 0 where its interface does not say (before v11).
  virtual Result<GroupListener*> listen(int device, void* handle, uint64_t communicator) = 0;
  /// Joins the group of `handles.size()` ranks as rank `rank`; all of them call it. Blocks until everybody
  /// has everybody that the first plan needs, or R2CC_CONNECT_MS is over (error). nullptr: not with these
  /// ranks (modes differ, mode below 3): NCCL goes on without CollNet.
  virtual Result<Group*> connect(GroupListener* listener, std::span<void* const> handles, int rank) = 0;
  /// For the tuner: by which capacities the group plans, and what its ranks have agreed on of their speeds
  /// (advise.h). As long as the group.
  virtual PlanAgreement* agreement(Group* /*group*/) const { return nullptr; }
  virtual Speeds speeds(const Group* /*group*/) const { return {}; }
  /// What this node can carry now; any thread.
  virtual NodeCapacity capacity(const Group* /*group*/) const { return {}; }
  virtual bool reduces(DataType type, Reduction reduction) const = 0;
  virtual Result<Registration*> reg(Group* group, void* data, size_t bytes) = 0;
  virtual Result<void> dereg(Group* group, Registration* registration) = 0;

  /// `sent` and `received` hold `count` elements each; may be the same address. nullptr: not now, call again.
  /// What lies in the tail beyond the user's data may be anything.
  virtual Result<Operation*> all_reduce(Group* group, const void* sent, void* received, size_t count,
                                        DataType type, Reduction reduction, Registration* sent_registration,
                                        Registration* received_registration) = 0;
  /// `sent`: `count` elements of this rank; `received`: `count` of each rank, in the order of ranks.
  virtual Result<Operation*> all_gather(Group* group, const void* sent, void* received, size_t count,
                                        DataType type, Registration* sent_registration,
                                        Registration* received_registration) = 0;
  /// `sent`: `count` elements for each rank; `received`: the sum of what all have for this one.
  virtual Result<Operation*> reduce_scatter(Group* group, const void* sent, void* received, size_t count,
                                            DataType type, Reduction reduction,
                                            Registration* sent_registration,
                                            Registration* received_registration) = 0;
  /// Advances the group. The operation is gone once `done` is reported; `bytes` is what it received. Errors
  /// are those of Net::test.
  virtual Result<TestOutcome> test(Operation* operation) = 0;
  virtual Result<void> close(Group* group) = 0;
  virtual Result<void> close(GroupListener* listener) = 0;
};

}  // namespace r2ccl::collective
