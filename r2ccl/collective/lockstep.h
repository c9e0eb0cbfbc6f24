// SPDX-License-Identifier: Apache-2.0
// How long one operation takes whose ranks are of a few kinds, and where all ranks of a kind do the same at
// the same time: one connection of each kind stands for all that are like it. As the flow simulator
// (harness/sim) has it: connections share ports by weighted max-min, send one chunk at a time, and wait for
// credits, for other operations of their rank, and for latencies. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace r2ccl::collective {

class Lockstep {
 public:
  static constexpr size_t kMostFlows = 32, kMostCredits = 8;
  static constexpr uint16_t kNoLane = 0xffff;
  /// Transfers that end within this part of their own time count as ending together. Nothing is gained: what
  /// was left is added to the next one. So lanes that have met at a port go on meeting there, as they do in
  /// the flow simulator.
  static constexpr double kSameMoment = 1e-2;

  /// Operations first … last − 1 of a segment wait until operation `op − back` of `lane` is done, of the same
  /// segment.
  struct After {
    uint16_t lane = kNoLane;
    uint32_t first = 0, last = 0;
    int32_t back = 0;
  };
  /// So many connections of this kind share the port.
  struct Use {
    uint16_t port = 0;
    double connections = 1;
  };
  /// Connections of one kind.
  struct Flow {
    std::vector<Use> ports;  ///< of both ends
    double weight = 1;       ///< of each connection
    double chunk = 0;        ///< seconds at capacity 1
    uint32_t segments = 1, ops = 1, credits = 1;
    uint32_t added = 0;   ///< so many first receives of a segment are additions, …
    double addition = 0;  ///< … each of so many seconds; an adder does one at a time
    uint16_t adder = 0;
    double most = 0;  ///< capacity that one connection can use; 0: all
    std::array<After, 2> send_after{}, receive_after{};
  };

  /// `back_s`: until a sender knows that a chunk has arrived, which its own waits need, and that one has been
  /// taken, so that its credit is free; and at first, that there are receives.
  explicit Lockstep(double latency_s, double back_s = 0) : latency_(latency_s), back_(back_s) {}
  /// Returns its number.
  uint16_t add_port(double capacity);
  /// Returns its number. Lanes are send_lane() and receive_lane() of flows; waits may name flows that are
  /// added later.
  uint16_t add_flow(const Flow& flow);
  static uint16_t send_lane(uint16_t flow) { return static_cast<uint16_t>(2 * flow); }
  static uint16_t receive_lane(uint16_t flow) { return static_cast<uint16_t>(2 * flow + 1); }
  Flow& flow(uint16_t number) { return flows_[number]; }

  /// Seconds until all operations are done; infinity if they wait for each other, or for more flows or
  /// credits than there may be.
  double run();

 private:
  struct Lane {
    uint64_t done = 0;  ///< operations, of all segments
    uint32_t op = 0, segment = 0;
    uint64_t dependents = 0;  ///< lanes that may wait for it
  };
  /// Moments in turn, of at most so many chunks as there are credits.
  struct Moments {
    std::array<double, kMostCredits> at{};
    uint32_t first = 0, size = 0;
    void push(double moment) { at[(first + size++) % at.size()] = moment; }
    double next() const { return at[first]; }
    void pop() { first = (first + 1) % static_cast<uint32_t>(at.size()), --size; }
  };
  struct State {
    double remaining = 0;  ///< of the chunk that is being sent
    double debt = 0;       ///< of earlier ones that kSameMoment let end too soon
    uint32_t outstanding = 0, arrived = 0;
    Moments arrivals, known,
        freed;            ///< of chunks at the receiver, and of their arrival and credit at the sender
    double added_at = 0;  ///< when the addition under way is done
  };

  bool waits(const Lane& lane, const std::array<After, 2>& after) const;
  void look_at(uint16_t lane);
  void move_on(uint16_t lane);
  void done(uint16_t lane);
  void sent(uint16_t flow);
  void taken(uint16_t flow);
  void freed(uint16_t flow);
  double next_moment(const std::vector<double>& rates) const;
  const std::vector<double>& rates();

  const double latency_, back_;
  std::vector<double> ports_;
  std::vector<Flow> flows_;
  std::vector<Lane> lanes_;
  std::vector<State> states_;
  uint64_t sending_ = 0, adding_ = 0, travelling_ = 0;  ///< flows; travelling: with Moments to come
  uint64_t ready_ = 0;                                  ///< lanes
  double now_ = 0;
  std::array<double, kMostFlows> adder_free_{};              ///< from then on
  std::unordered_map<uint64_t, std::vector<double>> rates_;  ///< by `sending_`
};

}  // namespace r2ccl::collective
