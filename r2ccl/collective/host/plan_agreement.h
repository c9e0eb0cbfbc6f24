// SPDX-License-Identifier: Apache-2.0
// Which capacities every rank of a Group goes by, for each operation: the same on all of them, whatever fails
// meanwhile. The rules are a pure state machine (collective/agreement.h); this carries its messages over
// authenticated control connections between rank 0 and all ranks, on a thread that sleeps while nothing
// changes. It never answers with a view that another rank may not have for the same operation.
//
//   auto listener = std::move(PlanAgreement::listen(PlanAgreement::Settings::from(config)).value());
//   handle.agreement = listener->address();        // into the listen handle, for all ranks
//   auto agreement = PlanAgreement::join(std::move(listener), rank, ranks, bytes_of_rank_0).value();
//   agreement->set_capacity(capacity);             // whenever the node's capacity is looked at
//   auto view = agreement->view_for(Sequence::kEngine, number);
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "r2ccl/base/config.h"
#include "r2ccl/base/result.h"
#include "r2ccl/collective/agreement.h"
#include "r2ccl/control/interface.h"

namespace r2ccl::collective {

/// Counts the operations of a sequence where the agreement does not: NCCL's tuner, perhaps in several
/// processes of the node. Called by the agreement's thread, which must not be kept waiting.
class OperationCounter {
 public:
  virtual ~OperationCounter() = default;
  /// From now on no operation at or beyond the returned number begins on this node, until resume(). `ahead`:
  /// how many may still begin. Nothing: it is not known how far all of the node have come.
  virtual std::optional<uint64_t> hold(uint64_t ahead) = 0;
  /// `view` holds from operation `from` on (kNever, or no view: the old one goes on).
  virtual void resume(uint64_t from, const ViewPointer& view) = 0;
  /// There will be no decision: whoever waits gets this error.
  virtual void fail(const Error& error) = 0;
  /// The group's engine has this pace. Returns that of the slowest one of the communicator's groups on this
  /// node: only one of them decides for the tuners.
  virtual CapacityCode engine_pace(CapacityCode own) { return own; }
};

class PlanAgreement {
 public:
  static constexpr size_t kAddressBytes = 64;
  using Address = std::array<std::byte, kAddressBytes>;

  struct Settings {
    control::InterfaceWish interface;
    std::string name;  ///< for the log: which group this is
    size_t nics = 0;   ///< of each node in the group; the view has none where they do not fit (nics_told())
    /// A rank whose decision stays away for this long, because rank 0 cannot be reached, reports an error.
    std::chrono::milliseconds give_up{7000};
    /// A proposal that not everybody has answered within this is given up, and tried again later.
    std::chrono::milliseconds answer_within{1000};
    /// Changes of capacity within this become one proposal.
    std::chrono::milliseconds settle{10};

    /// Called by the agreement's thread for each view that is committed (the trace has it already). May be
    /// empty.
    std::function<void(const Decision&)> on_view;

    static Settings from(const Config& config);
  };

  /// Before the ranks are known: where peers would reach this rank's agreement.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// To be put into the listen handle.
    virtual Address address() const = 0;
  };
  static Result<std::unique_ptr<Listener>> listen(const Settings& settings);
  /// Joins `ranks` ranks as `rank`; returns at once. `rank_0`: the address of rank 0's listener.
  static Result<std::unique_ptr<PlanAgreement>> join(std::unique_ptr<Listener> listener, int rank, int ranks,
                                                     const Address& rank_0, const Settings& settings);

  /// Leaves the group; the other ranks keep the view that they have.
  virtual ~PlanAgreement() = default;

  /// The view of operation `number` of kEngine, which is about to begin on this rank; numbers are asked for
  /// in order, each until it is answered, and one that has been answered has begun. nullptr: not decided yet,
  /// ask again. kPeerGone: the decision does not come. One thread at a time; while nothing changes it costs a
  /// store, a load and a copy of the pointer.
  virtual Result<ViewPointer> view_for(uint64_t number) = 0;
  /// What this rank's node can carry now; any thread, cheap, may be called often. A change of 3 % or more, or
  /// of 8 % or more of a NIC, leads to a proposal.
  virtual void set_capacity(const NodeCapacity& capacity) = 0;
  /// `look` says it whenever the agreement looks, every kLookEvery, so that a change is also noticed while no
  /// operation begins. Called by the agreement's thread until the agreement ends.
  virtual void watch_capacity(std::function<NodeCapacity()> /*look*/) {}
  static constexpr std::chrono::milliseconds kLookEvery{50};
  /// What this rank's links carry: to rank 0 on each of the group's NICs, then to rank 1, …; kLinkUnknown:
  /// not known. Any thread, when that has changed. Rank 0 finds the NICs that are slow by the links of all
  /// (attribution.h); they count as changes of their capacity. Ignored where the view has no NICs.
  virtual void set_links(const LinkCodes& /*links*/) {}
  /// Links (indices as of set_links()) whose NIC has its full share again since this was last asked
  /// (links_tried()); until then what set_links() says of them is passed over. Any thread.
  virtual std::vector<size_t> take_tried() { return {}; }
  /// Operations of kTuner are counted by `counter` from now on; nullptr: by nobody, so that kTuner keeps the
  /// view that it has. `leads`: this group decides for the communicator's tuners (of several groups of a
  /// communicator one does; what rank 0 says counts).
  virtual void count_tuner(std::shared_ptr<OperationCounter> counter, bool leads) = 0;
  /// The group's within this process, for the trace.
  virtual uint32_t group_number() const { return 0; }
  /// Everybody has the newest view, and none is being agreed on. For the log and the trace.
  virtual bool settled() const = 0;
};

}  // namespace r2ccl::collective
