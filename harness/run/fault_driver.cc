// SPDX-License-Identifier: Apache-2.0
#include "harness/run/fault_driver.h"

#include <algorithm>

#include "faultinject/control/board.h"
#include "harness/fabric/device_fabric.h"
#include "harness/measure/restored.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

static_assert(kMostFaults <= faultinject::kMaxFaults);

using faultinject::Trigger;
using r2ccl::kNsPerMs;

// A round is long enough to measure in: open time up to the window in which the rate is to be back
// (evaluate_faults.cc), or operations at the rate that is left for it, and some more for the window itself.
constexpr uint64_t kSettleNs = 300 * kNsPerMs;
constexpr uint64_t kSettleSlowNs = 1050 * kNsPerMs;  // of a NIC that is slow or late
constexpr uint64_t kSettleIterations = 8;
constexpr uint64_t kSteadyNs = 250 * kNsPerMs;
constexpr uint64_t kSteadyIterations = 12;      // more than measure/restored.h wants
constexpr uint64_t kLeastSteadyIterations = 3;  // where twelve take longer than a phase may last
// And no phase of it lasts longer than this (beside the faults' own durations), whatever the plugin does; or
// than two of the scenario's stalls, where its time passes more slowly.
constexpr uint64_t kPhaseBoundNs = 30'000 * kNsPerMs;
constexpr size_t kCarryingDeliveries = 4;
// 'at: {iter: N}' means during iteration N: within this share of an operation's time from its begin.
constexpr double kStrikeWithin = 0.6;
// Operations shorter than this are over before we can act; there the injector's own trigger is the better
// one.
constexpr uint64_t kShortOperationNs = 6 * kNsPerMs;

bool by_iteration(const Trigger& trigger) {
  return trigger.kind == Trigger::Kind::kEvent && trigger.event == "iteration" && trigger.value;
}

std::string where(const Scenario& scenario, const Firing& firing) {
  if (firing.rank < 0) {
    const auto& spec = scenario.faults[firing.fault];
    return spec.target.text + " " + spec.kind->name;
  }
  const RankFault& fault = rank_fault_of(scenario, firing);
  return node_name(fault.node) + "/rank" + std::to_string(fault.local_rank) + " " + name(fault.kind);
}

}  // namespace

FaultDriver::FaultDriver(const Scenario& scenario, size_t repeats, uint64_t seed,
                         faultinject::FaultBoard& board, std::vector<RankLink>& ranks,
                         const Collector& collector, Note note)
    : scenario_(scenario),
      repeats_(std::max<size_t>(repeats, 1)),
      random_(seed),
      board_(board),
      collector_(collector),
      note_(std::move(note)),
      rank_faults_(scenario, ranks, collector) {}

const char* FaultDriver::phase_name() const {
  // clang-format off
  switch (phase_) {
    case Phase::kIdle: return "running";
    case Phase::kSteady: return "running";
    case Phase::kArmed: return "armed";
    case Phase::kSettling: return "fault";
    case Phase::kCarrying: return "healing";
    case Phase::kDone: return "running";
  }
  // clang-format on
  return "running";
}

void FaultDriver::move(Phase phase, uint64_t now_ns) {
  phase_ = phase;
  phase_since_ns_ = now_ns;
  phase_iterations_ = collector_.ended_by_all();
}

void FaultDriver::arm_first() {
  const uint64_t now = r2ccl::now_ns();
  steady_from_ns_ = 0;  // the analysis begins at the first iteration
  if (scenario_.faults.empty() && scenario_.rank_faults.empty()) return move(Phase::kDone, now);
  board_.restart_clock();
  arm_round(now);
  arm_pending(now);
  move(Phase::kArmed, now);
}

/// The earliest iteration and time of the scenario's faults: later rounds keep the distances from there.
FaultDriver::Round FaultDriver::new_round(uint64_t now_ns) {
  Round round;
  round.now_ns = now_ns;
  round.phase_ns = random_phase_ns();
  round.iteration = collector_.begun_by_any() + 2;
  for (const auto& spec : scenario_.faults) {
    if (by_iteration(spec.trigger))
      round.base_iteration = std::min(round.base_iteration, *spec.trigger.value);
    if (spec.trigger.kind == Trigger::Kind::kTime)
      round.base_time = std::min<int64_t>(round.base_time, spec.trigger.after.count());
    if (spec.trigger.kind == Trigger::Kind::kNow) round.base_time = 0;
  }
  for (const RankFault& fault : scenario_.rank_faults) {
    if (fault.at_iter) round.base_iteration = std::min(round.base_iteration, uint64_t(*fault.at_iter));
    if (fault.at_time) round.base_time = std::min<int64_t>(round.base_time, fault.at_time->count());
  }
  return round;
}

void FaultDriver::arm_round(uint64_t now_ns) {
  round_begin_ = firings_.size();
  due_.clear();
  pending_.clear();
  rank_faults_.begin_round();
  const Round round = new_round(now_ns);
  for (size_t i = 0; i < scenario_.faults.size(); ++i) arm_injected(i, round);
  for (size_t i = 0; i < scenario_.rank_faults.size(); ++i) plan_rank_fault(i, round);
}

Firing FaultDriver::firing_of(size_t fault, uint64_t now_ns) const {
  Firing firing;
  firing.fault = fault;
  firing.repetition = repetition_;
  firing.armed_ns = now_ns;
  firing.before_from_ns = steady_from_ns_;
  return firing;
}

void FaultDriver::arm_injected(size_t i, const Round& round) {
  const bool first = repetition_ == 0;
  faultinject::FaultSpec spec = scenario_.faults[i];
  firings_.push_back(firing_of(i, round.now_ns));
  firings_.back().nics = nics_of(spec.target, scenario_.fabric);
  if (by_iteration(spec.trigger)) {
    if (!first) spec.trigger.value = round.iteration + (*spec.trigger.value - round.base_iteration);
    pending_.push_back({firings_.size() - 1, spec, *spec.trigger.value});
    return;
  }
  if (waits_for_pending(spec.trigger)) {  // the board must know the other one first
    pending_.push_back({firings_.size() - 1, spec, 0});
    return;
  }
  const bool timed = spec.trigger.kind == Trigger::Kind::kTime;
  if (!first && (timed || spec.trigger.kind == Trigger::Kind::kNow)) {
    const int64_t offset = timed ? spec.trigger.after.count() - round.base_time : 0;
    spec.trigger = Trigger{};
    firings_.back().board_id = board_.arm(spec);
    due_.push_back({firings_.back().board_id, round.now_ns + round.phase_ns + uint64_t(offset)});
  } else {
    firings_.back().board_id = board_.arm(spec);
  }
}

void FaultDriver::plan_rank_fault(size_t i, const Round& round) {
  const bool first = repetition_ == 0;
  const RankFault& fault = scenario_.rank_faults[i];
  Firing firing = firing_of(scenario_.faults.size() + i, round.now_ns);
  firing.rank = fault.node * scenario_.fabric.ranks_per_node + fault.local_rank;
  RankFaults::Due due;
  if (fault.at_iter)
    due.iteration = first ? uint64_t(*fault.at_iter)
                          : round.iteration + (uint64_t(*fault.at_iter) - round.base_iteration);
  else if (!first)
    due.time_ns = round.now_ns + round.phase_ns + uint64_t(fault.at_time->count() - round.base_time);
  rank_faults_.plan(firings_.size(), firing, due);
  firings_.push_back(firing);
}

bool FaultDriver::waits_for_pending(const Trigger& trigger) const {
  return trigger.kind == Trigger::Kind::kAfter &&
         std::any_of(pending_.begin(), pending_.end(), [&](const Pending& p) {
           return p.spec.name == trigger.fault && firings_[p.firing].board_id == 0;
         });
}

uint64_t FaultDriver::random_phase_ns() {
  return uint64_t(
      std::uniform_real_distribution<double>(0, kStrikeWithin * double(collector_.operation_ns()))(random_));
}

void FaultDriver::arm_pending(uint64_t now_ns) {
  for (Pending& pending : pending_) {
    Firing& firing = firings_[pending.firing];
    auto& trigger = pending.spec.trigger;
    if (trigger.kind == Trigger::Kind::kAfter) {
      if (waits_for_pending(trigger)) continue;
      firing.board_id = board_.arm(pending.spec);
      firing.armed_ns = now_ns;
      continue;
    }
    const uint64_t operation_ns = collector_.operation_ns();
    const bool near = collector_.begun_by_any() + 3 >= pending.iteration;
    // Ranks that count operations themselves fire it at the very begin; a command's are known here alone.
    const bool ranks_count = scenario_.workload.engine != Engine::kExec;
    // Later iterations meet its trigger again.
    const bool anew = pending.spec.repeat > 1 && pending.spec.every.count() == 0;
    if (ranks_count && near &&
        (trigger.phase_up_to.count() > 0 || anew || (operation_ns > 0 && operation_ns < kShortOperationNs))) {
      firing.board_id = board_.arm(pending.spec);  // the scenario's own phase stands
    } else if (collector_.begun_by_all() > pending.iteration) {
      trigger = Trigger{};
      firing.board_id = board_.arm(pending.spec);
      due_.push_back({firing.board_id, now_ns + random_phase_ns()});
    }
    if (firing.board_id != 0) firing.armed_ns = now_ns;
  }
  std::erase_if(pending_, [&](const Pending& p) { return firings_[p.firing].board_id != 0; });
}

void FaultDriver::fire_due(uint64_t now_ns) {
  for (const Due& due : due_)
    if (now_ns >= due.at_ns) board_.fire(due.board_id);
  std::erase_if(due_, [&](const Due& due) { return now_ns >= due.at_ns; });
}

void FaultDriver::run_rank_faults(uint64_t now_ns) {
  rank_faults_.run(now_ns, repetition_ == 0, done(), firings_);
}

std::vector<Firing> FaultDriver::firings() const {
  std::vector<Firing> result = firings_;
  for (Firing& firing : result) {
    if (firing.board_id == 0) continue;
    const faultinject::FaultState state = board_.state(firing.board_id);
    firing.triggered_ns = state.triggered_ns;
    firing.t0_ns = state.t0_ns;
    firing.healed_ns = state.healed_ns;
    firing.rounds = state.rounds;
    firing.recent_ns = state.recent_ns;
  }
  return result;
}

bool FaultDriver::all_fired() const {
  const auto all = firings();
  return std::all_of(all.begin() + long(round_begin_), all.end(),
                     [](const Firing& firing) { return firing.t0_ns != 0; });
}

/// Faults that heal by themselves have done so, and the job has run on for long enough to be measured.
bool FaultDriver::round_over(uint64_t now_ns) const {
  const auto all = firings();
  uint64_t last_ns = phase_since_ns_, settle_ns = kSettleNs;
  for (size_t i = round_begin_; i < all.size(); ++i) {
    const bool of_rank = all[i].rank >= 0;
    const bool heals = of_rank ? rank_fault_info(rank_fault_of(scenario_, all[i]).kind).lasts
                               : scenario_.faults[all[i].fault].duration.has_value();
    if (heals && all[i].healed_ns == 0) return false;
    last_ns = std::max(last_ns, all[i].healed_ns);
    if (!of_rank && scenario_.faults[all[i].fault].kind->takes == faultinject::Takes::kSpeed)
      settle_ns = kSettleSlowNs;
  }
  return now_ns >= last_ns + settle_ns &&
         collector_.ended_by_all() >= phase_iterations_ + kSettleIterations &&
         collector_.open_ns(phase_since_ns_) >= settle_ns;
}

bool FaultDriver::all_healed() const {
  const auto all = firings();
  return std::all_of(all.begin() + long(round_begin_), all.end(), [](const Firing& firing) {
    return firing.rank >= 0 || (firing.t0_ns != 0 && firing.healed_ns != 0);
  });
}

void FaultDriver::heal_round(uint64_t now_ns) {
  for (size_t i = round_begin_; i < firings_.size(); ++i)
    if (firings_[i].board_id != 0 && board_.state(firings_[i].board_id).healed_ns == 0)
      board_.heal(firings_[i].board_id);
  healed_at_ns_ = now_ns;
  note_(now_ns, "healed", "round " + std::to_string(repetition_ + 1));
}

bool FaultDriver::carries_again() const {
  for (size_t i = round_begin_; i < firings_.size(); ++i)
    for (const NicId& nic : firings_[i].nics)
      // A NIC on which no channel has its home never carried anything.
      if (collector_.deliveries_on(nic, healed_at_ns_) < kCarryingDeliveries &&
          int(nic.nic) < (scenario_.workload.channels > 0 ? scenario_.workload.channels
                                                          : scenario_.fabric.nics_per_node))
        return false;
  return true;
}

bool FaultDriver::everybody_home(uint64_t now_ns) const {
  std::string why;
  return home_since(collector_.events(), now_ns, why).has_value();
}

/// When the last fault of the round that heals by itself will have done so; not before the phase's begin.
uint64_t FaultDriver::own_healing_ns() const {
  const auto all = firings();
  uint64_t last_ns = phase_since_ns_;
  for (size_t i = round_begin_; i < all.size(); ++i) {
    const auto duration = all[i].rank >= 0
                              ? rank_fault_of(scenario_, all[i]).duration
                              : scenario_.faults[all[i].fault].duration.value_or(std::chrono::nanoseconds(0));
    if (all[i].t0_ns != 0) last_ns = std::max(last_ns, all[i].t0_ns + uint64_t(duration.count()));
  }
  return last_ns;
}

void FaultDriver::tick(uint64_t now_ns) {
  if (phase_ == Phase::kIdle) return;
  if (phase_ == Phase::kDone) return run_rank_faults(now_ns);  // it gave up, and a rank may still be stopped
  arm_pending(now_ns);
  fire_due(now_ns);
  run_rank_faults(now_ns);
  const auto all = firings();
  for (size_t i = round_begin_; i < all.size(); ++i)
    if (all[i].t0_ns != 0 && std::find(noted_.begin(), noted_.end(), i) == noted_.end()) {
      noted_.push_back(i);
      note_(all[i].t0_ns, "fault", where(scenario_, all[i]));
    }
  advance_phase(now_ns);
}

void FaultDriver::give_up(uint64_t now_ns, const std::string& why) {
  gave_up_ = why;
  note_(now_ns, "gave_up", why);
  move(Phase::kDone, now_ns);
}

void FaultDriver::advance_phase(uint64_t now_ns) {
  const std::string round = "round " + std::to_string(repetition_ + 1);
  const uint64_t bound_ns = std::max(kPhaseBoundNs, 2 * uint64_t(scenario_.timeouts.stall.count()));
  const bool too_long = now_ns > phase_since_ns_ + bound_ns;
  switch (phase_) {
    case Phase::kArmed:
      if (all_fired()) move(Phase::kSettling, now_ns);
      // A first round may lie far ahead, but within the planned iterations; a later one was due at once.
      else if (repetition_ == 0 && scenario_.workload.engine != Engine::kExec &&
               collector_.ended_by_all() > uint64_t(scenario_.workload.iters))
        give_up(now_ns, "a fault had not struck by the last planned iteration");
      else if (repetition_ > 0 && too_long)
        give_up(now_ns, "a fault of " + round + " found nothing to strike");
      break;
    case Phase::kSettling:
      if (round_over(now_ns)) {
        // The last round's faults stay; but where they heal by themselves, what comes back then is measured,
        // too.
        if (last_round() && (repeats_ == 1 || !all_healed())) return move(Phase::kDone, now_ns);
        heal_round(now_ns);
        move(Phase::kCarrying, now_ns);
      } else if (now_ns > own_healing_ns() + bound_ns) {
        give_up(now_ns, "the job did not go on after " + round);
      }
      break;
    case Phase::kCarrying:
      // A channel that comes back late would take part in the next round's rate before its fault. Some never
      // do.
      if (carries_again() && (everybody_home(now_ns) || now_ns > phase_since_ns_ + bound_ns / 2)) {
        steady_from_ns_ = now_ns;
        move(Phase::kSteady, now_ns);
      } else if (too_long && last_round()) {
        move(Phase::kDone, now_ns);
      } else if (too_long) {
        give_up(now_ns, "the target carried no traffic within " +
                            std::to_string(bound_ns / (1000 * kNsPerMs)) + " s of its healing in " + round);
      }
      break;
    case Phase::kSteady:
      if (is_steady(now_ns) || (too_long && steady_iterations() >= kLeastSteadyIterations)) {
        if (last_round()) return move(Phase::kDone, now_ns);
        ++repetition_;
        arm_round(now_ns);
        move(Phase::kArmed, now_ns);
      } else if (too_long && last_round()) {
        move(Phase::kDone, now_ns);
      } else if (too_long) {
        give_up(now_ns, "the job stood still before round " + std::to_string(repetition_ + 2));
      }
      break;
    case Phase::kIdle:
    case Phase::kDone:
      break;
  }
}

uint64_t FaultDriver::steady_iterations() const { return collector_.ended_by_all() - phase_iterations_; }

/// Long enough, and for enough operations, to know the rate that has come back, which is the rate before the
/// next round's faults.
bool FaultDriver::is_steady(uint64_t now_ns) const {
  return now_ns >= phase_since_ns_ + kSteadyNs && steady_iterations() >= kSteadyIterations;
}

}  // namespace r2bench
