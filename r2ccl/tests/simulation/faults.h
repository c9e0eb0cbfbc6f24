// SPDX-License-Identifier: Apache-2.0
// The faults of a plan: when each happens, what it strikes, what it does to NICs, TCP and processes, and what
// has happened so far.
#pragma once

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "r2ccl/tests/simulation/job.h"
#include "r2ccl/tests/simulation/nic.h"

namespace r2ccl::simulation {

/// What a fault of the control connection takes beyond its own time: an end that says nothing learns after
/// 2 s that nothing gets through (control::Silence), and gives the next connection one second before it tries
/// again.
constexpr Time kControlBound = 3 * kSecond;
constexpr bool is_of_control(Fault::Kind kind) {
  return (kind >= Fault::Kind::kTcpCut && kind <= Fault::Kind::kTcpSwallow) || kind == Fault::Kind::kTcpMute;
}

class Faults {
 public:
  Faults(const Plan& plan, Fabric& fabric, Job& job, Findings& findings);

  // --- what faults follow
  void received();  ///< one message
  void event(const trace::Event& event, int process);

  // --- what has happened
  /// That kind of fault has struck that NIC (numbers of NICs go over all processes).
  bool has_struck(int nic, Fault::Kind kind) const { return applied_.contains({nic, kind}); }
  /// … or any NIC.
  bool has_happened(Fault::Kind kind) const;
  /// What has become of each fault of the plan.
  std::vector<Fate> fates() const;
  int strikes(int nic) const { return strikes_[size_t(nic)]; }
  /// Since when no path is left; 0: some is.
  Time hopeless_since() const { return hopeless_since_; }
  /// The last fault has ended then.
  Time disturbed_until() const { return disturbed_until_; }
  /// For so long drivers have hung while buffers were registered, which has R2CC_REGISTER_MS.
  Time hung_in_set_up() const { return hung_in_set_up_; }
  /// How much of the time since then no fault has taken that keeps an end, a driver, or the control
  /// connection.
  Time undisturbed_since(Time since) const;

 private:
  void happen(size_t number, const trace::Event& event);
  void hopeless();
  void note(const Fault& fault);
  bool apply(const Fault& fault, uint32_t pair);
  bool apply_to_nic(const Fault& fault, uint32_t pair);
  int* to_lose(Nic& nic, Fault::Kind kind) const;
  bool take_device(const Fault& fault);
  bool cut_rail(const Fault& fault);
  void apply_to_control(const Fault& fault);
  void apply_to_process(const Fault& fault);
  const Path* path_of(const Fault& fault, const trace::Event& event, int channel) const;

  const Plan& plan_;
  Fabric& fabric_;
  Job& job_;
  Findings& findings_;
  int received_ = 0;
  std::vector<int> seen_;  // events, of each fault's
  std::vector<Fate> fates_;
  std::vector<int> struck_nic_;  // of each fault: the NIC that it has struck; −1: none yet
  std::set<std::pair<int, Fault::Kind>> applied_;  // NIC, over all processes
  std::array<int, 8> strikes_{};                   // faults, of each NIC
  std::set<std::pair<Time, Time>> kept_;           // when ends, drivers or the control connection stood still
  Time hopeless_since_ = 0, disturbed_until_ = 0, hung_in_set_up_ = 0;
};

}  // namespace r2ccl::simulation
