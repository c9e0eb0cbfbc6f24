// SPDX-License-Identifier: Apache-2.0
// The sending end decides which paths there are, and which of them carry: it opens them (openings.cc),
// chooses one when none carries (searching.cc), spreads its traffic over several (lanes.cc, in mode 2) or
// moves to a NIC with less to carry (spreading.cc, in mode 1), and comes home (sender_paths.cc). All of it is
// the service thread's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "r2ccl/balance/lane_plan.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/opening.h"
#include "r2ccl/protocol/spread_move.h"
#include "r2ccl/protocol/wishes.h"

namespace r2ccl {

class SenderPaths : public Channel {
 public:
  bool add_to(NicLoad& load, const Tick& tick) const override;
  int standbys() const override;
  bool is_away() const override;
  bool in_demand(uint64_t now) const override { return activity_.moved_within(Activity::kDemandNs, now); }

 protected:
  SenderPaths(ProcessContext& context, MigrationEnd& end, int home_nic, control::Stream stream,
              const control::Token& token);
  /// The path preferred for the tiniest messages; 0: the active path.
  uint32_t for_tiny() const { return for_tiny_; }

 private:
  // --- for Channel
  void step_paths(const Tick& tick) override { step_opening(tick); }
  void half_made(PathHalf& half, const Tick& tick) override;
  void on_opened(const wire::Opened& opened, const Tick& tick) override;
  void on_proved(uint32_t id, const Tick& tick) override;
  bool is_opening(uint32_t id) const override { return opening_.is(id); }
  uint32_t opening_over(int nic) const override {
    return opening_.under_way() && opening_.local() == nic ? opening_.path() : 0;
  }
  void opening_failed(const std::string& why, const Tick& tick) override;
  void open_no_more() override { opening_.end(); }
  bool peer_owes_path() const override { return opening_.waits_for_peer(); }
  void dropped(uint32_t id, uint64_t now) override { wishes_.dropped(id, now); }
  void rails_changed(const Tick& tick) override { retries_.standby_hint(tick.now); }
  bool is_for_move(uint32_t id) const override { return spread_move_.has(id); }
  void carried(bool first, const Tick& tick) override;
  void come_home(const Tick& tick) override;
  void step_spread(const Tick& tick) override;
  void step_balance(const Tick& tick) override;
  void choose(const Tick& tick) override;
  void search(const Tick& tick) override;
  bool looks_soon(const Tick& tick) const override;

  /// What is asked in each turn: is a standby path due, or something else soon?
  struct Near;

  // --- opening
  struct RailChoice;
  std::optional<Rail> candidate(Purpose purpose, uint64_t now) const;
  void start_opening(Purpose purpose, const Rail& rail, const Tick& tick);
  void begin_opening(const Tick& tick);
  void step_opening(const Tick& tick);
  void connected(Path& path, const Tick& tick);
  void opening_succeeded(const Tick& tick);

  // --- choosing
  class SearchActions;
  CallSight see_call(int nic, const JobPtr& job) const;
  CallSight fence_call() const;
  CallSight opening_call() const;
  void no_path_works();

  // --- home
  bool home_may_work(const Tick& tick) const;

  // --- mode 1
  TrafficSight see_traffic(uint64_t now) const;
  std::optional<int> less_loaded(const NicLoad& load, const Tick& tick) const;
  struct MoveHost;
  void step_move(Path& path, const Tick& tick);
  void end_move(const Tick& tick);
  void move_failed(int nic, const Tick& tick);

  // --- mode 2
  /// The path on which the tiniest messages travel; nullptr where none carries.
  virtual const Path* path_of_tiny() const = 0;
  /// One over that NIC on which they may travel; nullptr where none carries, or too small a share.
  virtual const Path* lane_for_tiny(int nic) const = 0;
  void spread_tiny(std::span<const balance::LaneShare> parts, const Tick& tick, Owned);
  struct LaneHost;
  void add_lanes(const Tick& tick);
  void start_lane(Path& path);
  void rest_lanes(const Tick& tick);
  bool rest_lane(Path& lane);
  void apply_shares(const Tick& tick);

  Opening opening_;
  OpeningRetries retries_;
  bool resources_told_ = false;  // the log knows that there are not enough
  SpreadMove spread_move_;
  balance::LanePlan lane_plan_;
  uint32_t for_tiny_ = 0;
  Wishes wishes_{retries_, rails_, failback_, spread_move_};
};

}  // namespace r2ccl
