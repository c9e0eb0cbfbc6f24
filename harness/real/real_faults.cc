// SPDX-License-Identifier: Apache-2.0
#include "harness/real/real_faults.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "harness/real/shell.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using faultinject::FaultSpec;
using faultinject::FaultState;

constexpr std::chrono::seconds kFinishLimit{120};

/// A qdisc that somebody put there cannot be put back as it was.
void check_qdisc(const FaultSpec& fault, const NicPlace& place) {
  if (fault.kind->takes != faultinject::Takes::kSpeed) return;
  const std::string show = "tc qdisc show dev " + place.interface + " root";
  const ShellResult result = run_shell(show, std::chrono::seconds(10));
  if (result.exit_code != 0) throw FabricError("real_tc: `" + show + "` failed: " + result.output);
  if (result.output.find(" 0: ") == std::string::npos && !result.output.empty())
    throw FabricError(
        "real_tc cannot be made on " + place.in_words() + ": it already has a queueing discipline (" +
        result.output.substr(0, result.output.find('\n')) + "), which would be lost; tc qdisc del dev " +
        place.interface + " root, or leave out fabric.nic_rate and fabric.latency");
}

/// What would cut off the user, or the job itself.
void check_lifelines(const FaultSpec& fault, const NicPlace& place, const MachinePlaces& machine) {
  if (place.interface.empty()) return;
  for (const Lifeline& line : machine.lifelines)
    if (carries(place.interface, line.interface, machine.sys))
      throw FabricError(std::string(fault.kind->name) + " is refused on " + place.in_words() + ": " +
                        line.what + "; " + line.mend);
}

/// Else the rule is set, and the card forwards past it.
void check_bluefield(const FaultSpec& fault, const NicPlace& place, const std::string& sys) {
  if (std::string_view(fault.kind->name) == "real_ovs_drop" && bluefield_mode(place, sys) == "NIC")
    throw FabricError(
        "real_ovs_drop has no effect on " + place.in_words() +
        ": this BlueField is in NIC mode, where OVS on its Arm side does not forward; DPU mode: "
        "mstconfig -d " +
        place.pci +
        " set INTERNAL_CPU_MODEL=1 INTERNAL_CPU_OFFLOAD_ENGINE=0, "
        "then a power cycle; or inject the fault: blackhole");
}

}  // namespace

std::vector<FaultSpec> real_faults_of(const Scenario& scenario) {
  std::vector<FaultSpec> real;
  std::copy_if(scenario.faults.begin(), scenario.faults.end(), std::back_inserter(real),
               [](const FaultSpec& fault) { return fault.kind->outside; });
  return real;
}

bool has_real_faults(const Scenario& scenario) { return !real_faults_of(scenario).empty(); }

void check_real_faults(const Scenario& scenario, const std::string& fabric, bool allowed, bool root) {
  for (const FaultSpec& fault : real_faults_of(scenario)) {
    const std::string kind = fault.kind->name;
    if (fabric == "vhca" || fabric == "none")
      throw FabricError(
          kind + " changes a real NIC or its switch, and the fabric " + fabric +
          " has none; choose --fabric verbs or rxe, or inject the fault: port_down, throttle …");
    if (!allowed)
      throw FabricError("fault '" + fault.name + "' changes this machine (" +
                        sample_change(fault).in_words() + "); to permit it: --allow-real-faults");
    if (!root) throw FabricError(kind + " changes the machine: run as root");
  }
}

RealFaults::RealFaults(const std::vector<FaultSpec>& faults, const Fabric& fabric, const NodesHere& nodes,
                       const Devices& devices, const std::string& guard_program, Note note,
                       const MachinePlaces& machine)
    : note_(std::move(note)) {
  for (const FaultSpec& fault : faults) {
    for (int node = nodes.first; node < nodes.first + nodes.count; ++node) {
      if (!faultinject::pattern_matches(fault.target.node, node_name(node))) continue;
      const std::vector<std::string> names = devices(node);
      for (int nic = 0; nic < fabric.nics_per_node; ++nic) {
        if (!faultinject::matches(fault.target, node_name(node), uint32_t(nic))) continue;
        if (size_t(nic) >= names.size())
          throw FabricError(node_name(node) + " has no device nic" + std::to_string(nic));
        const NicPlace place = place_of(node, nic, names[size_t(nic)], machine.sys);
        check_lifelines(fault, place, machine);
        check_bluefield(fault, place, machine.sys);
        try {
          const Kept kept = place.interface.empty() ? Kept{} : keep(place.interface);
          plans_[fault.name].push_back({place, change_for(fault, place, kept, machine.sys)});
        } catch (const RealFaultError& error) {
          throw FabricError(error.what());
        }
        check_qdisc(fault, place);
      }
    }
  }
  try {
    guard_ = std::make_unique<GuardLink>(guard_program, machine.undo_folder);
  } catch (const RealFaultError& error) {
    throw FabricError(error.what());
  }
}

RealFaults::~RealFaults() = default;

std::vector<std::string> RealFaults::in_words() const {
  std::vector<std::string> all;
  for (const auto& [name, plan] : plans_)
    for (const Planned& planned : plan) all.push_back(planned.change.in_words());
  return all;
}

void RealFaults::adopt(faultinject::BoardHost& board) {
  for (; adopted_ < board.armed(); ++adopted_) {
    const uint32_t id = adopted_ + 1;
    const auto plan = plans_.find(board.spec(id).name);
    if (!board.spec(id).kind->outside || plan == plans_.end()) continue;
    for (const Planned& planned : plan->second) live_.push_back({id, &planned, State::kAsItWas, 0});
  }
}

void RealFaults::hear(faultinject::BoardHost& board) {
  for (const GuardAnswer& answer : guard_->answers()) {
    if (answer.id == 0 || answer.id > live_.size()) continue;
    Live& live = live_[answer.id - 1];
    const NicPlace& place = live.planned->place;
    const auto report = [&](faultinject::Effect effect) {
      board.report(live.board_id, answer.time_ns, uint32_t(place.node), uint32_t(place.nic), effect,
                   live.rounds - 1);
    };
    if (answer.undone) {
      live.state = State::kAsItWas;
      if (answer.ok) report(faultinject::Effect::kPutBack);
      note_(answer.time_ns, answer.ok ? "put_back" : "put_back_failed",
            place.in_words() + ": " + answer.said +
                (answer.ok ? "" : "; by hand: " + live.planned->change.in_words()));
    } else {
      live.state = State::kApplied;
      if (answer.ok) report(live.planned->change.effect);
      note_(answer.time_ns, answer.ok ? "real_fault" : "real_fault_failed",
            place.in_words() + ": " + answer.said);
    }
  }
  if (guard_->takeovers() > told_takeovers_ && !guard_->lost()) {
    told_takeovers_ = guard_->takeovers();
    note_(r2ccl::now_ns(), "guard_replaced",
          "the process that reverts real faults was killed; process " + std::to_string(guard_->pid()) +
              " has taken over its list of changes");
  }
  if (guard_->lost() && !told_lost_) {
    told_lost_ = true;
    std::string changes;
    for (const std::string& text : in_words()) changes += "; " + text;
    note_(r2ccl::now_ns(), "guard_lost",
          "the processes that put real faults back were killed one after the other; `r2bench doctor` as root "
          "puts back what they have left" +
              changes);
  }
}

bool RealFaults::busy() const {
  return std::any_of(live_.begin(), live_.end(),
                     [](const Live& live) { return live.state != State::kAsItWas; });
}

void RealFaults::finish(faultinject::BoardHost& board) {
  const auto deadline = std::chrono::steady_clock::now() + kFinishLimit;
  while (busy() && !guard_->lost() && std::chrono::steady_clock::now() < deadline) {
    hear(board);
    for (size_t i = 0; i < live_.size(); ++i) {
      if (live_[i].state != State::kApplied) continue;
      live_[i].state = State::kUndoing;
      guard_->undo(i + 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RealFaults::tick(faultinject::BoardHost& board) {
  adopt(board);
  hear(board);
  for (size_t i = 0; i < live_.size(); ++i) {
    Live& live = live_[i];
    const FaultState state = board.state(live.board_id);
    const bool wanted = state.phase == FaultState::Phase::kFired;
    if (live.state == State::kAsItWas && wanted && live.rounds < state.rounds) {
      live.rounds = state.rounds;
      live.state = State::kApplying;
      guard_->apply(i + 1, live.planned->change);
    } else if (live.state == State::kApplied && (!wanted || live.rounds < state.rounds)) {
      live.state = State::kUndoing;
      guard_->undo(i + 1);
    }
  }
}

}  // namespace r2bench
