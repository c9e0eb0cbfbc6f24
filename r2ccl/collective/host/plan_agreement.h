// Which capacities every rank of a Group goes by, for each operation: the same on all of them, whatever fails
// meanwhile. A rank says what its node can carry; the coordinator proposes, all answer how far they have
// begun (and begin nothing beyond a stated point until they hear), and the new capacities hold from an
// operation number on that nobody has begun. The rules are a pure state machine (collective/agreement.h); this
// carries its messages over authenticated control connections, on a thread that sleeps while nothing changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/channel/net.h"

namespace r2ccl::collective {

/// What is counted: a plan holds from an operation number on in each of them.
enum class Sequence : uint8_t {
  kEngine,  ///< operations of the Group, by all_reduce() and its kin
  kTuner,   ///< collectives that NCCL asks the tuner about, of the communicator
};
inline constexpr int kSequences = 2;

struct View {
  uint64_t epoch = 0;              ///< 0: from the beginning, all healthy
  std::vector<double> capacities;  ///< of each rank's node, relative to its nominal one: 0 … 1
};

class PlanAgreement {
 public:
  static constexpr size_t kAddressBytes = 64;
  /// Before the group exists: where peers reach this rank's agreement, to be put into the listen handle.
  class Listener;
  virtual ~PlanAgreement() = default;

  /// The capacities of operation `number` of `sequence`, which is about to begin on this rank; numbers are
  /// asked for in order, and one that has been answered has begun. Empty: not decided yet, ask again. Any
  /// thread, one at a time per sequence; costs one atomic while nothing changes.
  virtual std::optional<std::shared_ptr<const View>> view_for(Sequence sequence, uint64_t number) = 0;
  /// What this rank's node can carry now; any thread, cheap, may be called often. A change large enough leads to
  /// a proposal.
  virtual void set_capacity(double relative) = 0;
  /// Is an agreement under way, or has one been tried in vain? For the log and the trace.
  virtual bool settled() const = 0;
};

}  // namespace r2ccl::collective
