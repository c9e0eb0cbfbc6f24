// SPDX-License-Identifier: Apache-2.0
#include "harness/report/story.h"

#include <algorithm>

#include "faultinject/plan/kind.h"
#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/judge/messages.h"

namespace r2bench {
namespace {

std::string since(uint64_t from_ns, uint64_t to_ns) {
  return "+ " + milliseconds((static_cast<double>(to_ns) - static_cast<double>(from_ns)) * 1e-6);
}

std::string at_second(const ModeResult& mode, uint64_t time_ns) {
  return "at " +
         fixed((static_cast<double>(time_ns) - static_cast<double>(mode.timeline.start_ns)) * 1e-9, 2) + " s";
}

std::string noticed(const std::string& by) {
  if (by == "completion") return "detected by an error completion";
  if (by == "event") return "detected by an event of the NIC";
  if (by == "watchdog") return "detected by the watchdog: no progress, and a probe without an answer";
  if (by == "peer") return "detected by the peer";
  return "detected";
}

/// "iteration 60: " when the first firing was bound to an iteration.
std::string iteration_of(const Scenario& scenario, const FaultSample& sample) {
  if (sample.repetition > 0) return "";
  if (sample.fault < scenario.faults.size()) {
    const faultinject::Trigger& trigger = scenario.faults[sample.fault].trigger;
    if (trigger.event == "iteration" && trigger.value)
      return "iteration " + std::to_string(*trigger.value) + ": ";
    return "";
  }
  const size_t own = sample.fault - scenario.faults.size();
  if (own < scenario.rank_faults.size() && scenario.rank_faults[own].at_iter) {
    return "iteration " + std::to_string(*scenario.rank_faults[own].at_iter) + ": ";
  }
  return "";
}

constexpr size_t kStrikesTold = 4;  // of a fault that repeats by itself

class Teller {
 public:
  Teller(const Scenario& scenario, const ModeResult& mode, std::vector<StoryLine>& lines)
      : scenario_(scenario), mode_(mode), lines_(lines) {}

  void tell() {
    // In order of time, whatever the scenario lists first; those that never were come last.
    std::vector<const FaultSample*> told;
    for (const FaultSample& sample : mode_.faults)
      if (sample.repetition == 0 && sample.strike < kStrikesTold) told.push_back(&sample);
    std::stable_sort(told.begin(), told.end(), [](const FaultSample* a, const FaultSample* b) {
      return a->witnessed != b->witnessed ? a->witnessed : a->t0_ns < b->t0_ns;
    });
    for (const FaultSample* sample : told) tell_fault(*sample);
    if (mode_.faults.size() > told.size()) {
      say("", "… and " + std::to_string(mode_.faults.size() - told.size()) +
                  " more faults like it (see the table)");
    }
    tell_end();
  }

 private:
  void say(std::string when, std::string text, Tone tone = Tone::kPlain) {
    lines_.push_back({mode_.mode, std::move(when), std::move(text), tone});
  }

  void tell_fault(const FaultSample& sample) {
    if (!sample.witnessed) {
      say("", sample.kind + " on " + sample.target + " was planned, but was never seen to take effect",
          Tone::kBad);
      return;
    }
    last_t0_ = sample.t0_ns;
    say(at_second(mode_, sample.t0_ns),
        iteration_of(scenario_, sample) + sample.target + " " + meaning_of_kind(sample.kind) + " (" +
            sample.kind + ")",
        Tone::kBad);
    const bool of_rank =
        sample.fault >= scenario_.faults.size();  // then no NIC was struck, and nothing is to recover
    if (!of_rank && !sample.sampled && !sample.why_not_sampled.empty())
      say("", "no sample: " + sample.why_not_sampled);
    if (sample.detected_ns) say(since(sample.t0_ns, *sample.detected_ns), noticed(sample.detected_by));
    if (sample.migrated_ns)
      say(since(sample.t0_ns, *sample.migrated_ns),
          "the last affected channel had delivered over another NIC");
    const bool healed = sample.healed_ns && mode_.outcome == Outcome::kOk;
    const auto tell_heal = [&] {
      say(since(sample.t0_ns, *sample.healed_ns), sample.target + (of_rank ? " continued" : " was healed"));
    };
    if (healed && sample.recovered_after_heal) tell_heal();
    tell_recovery(sample);
    if (healed && !sample.recovered_after_heal) tell_heal();
  }

  /// Whether there was anything to recover from: somebody left the NIC, the NICs can carry less than before,
  /// a stream stalled, or the rate was missing for longer than an operation is uneven.
  static bool was_disturbed(const FaultSample& sample) {
    return sample.detected_ns || sample.limit < sample.limit_before ||
           sample.blackout_ms.value_or(0) > sample.window_ms ||
           sample.recover_ms.value_or(0) > sample.window_ms;
  }

  void tell_recovery(const FaultSample& sample) {
    if (sample.recovered_ns && sample.recovered_after_heal)
      return say(since(sample.t0_ns, *sample.recovered_ns), "continued, but only after the fault was healed",
                 Tone::kBad);
    if (sample.recovered_ns && was_disturbed(sample) &&
        (sample.detected_ns || sample.recover_ms.value_or(0) > 0))
      return say(since(sample.t0_ns, *sample.recovered_ns),
                 "continued at the rate that the remaining NICs can carry", Tone::kGood);
    if (sample.recovered_ns && sample.before_gbps > 0 && sample.after_gbps > 0)
      return say("", "the rate went from " + short_number(sample.before_gbps) + " to " +
                         short_number(sample.after_gbps) + " Gbit/s; the remaining NICs carry " +
                         short_number(sample.limit * sample.before_gbps) + " at best");
    if (!sample.why_no_rate_before.empty())
      return say("", "no sample of its recovery: " + sample.why_no_rate_before);
    if (!sample.recovered_ns && sample.sampled && sample.before_gbps <= 0 && mode_.outcome == Outcome::kOk)
      return say("",
                 "a channel stalled for " + short_number(sample.blackout_ms.value_or(0)) +
                     " ms; the rate before is not known, so no return to it was seen",
                 Tone::kBad);
    if (!sample.recovered_ns && sample.sampled && mode_.outcome == Outcome::kOk)
      say("", "never returned to the rate that the remaining NICs can carry", Tone::kBad);
  }

  void tell_end() {
    const uint64_t end = mode_.timeline.end_ns;
    const std::string when = last_t0_ != 0 && end > last_t0_ ? since(last_t0_, end) : "";
    const std::string progress =
        std::to_string(mode_.row.iterations) +
        (scenario_.workload.iters > 0 ? " of " + std::to_string(scenario_.workload.iters) : "") +
        " iterations";
    switch (mode_.outcome) {
      case Outcome::kOk:
        tell_success();
        return;
      case Outcome::kError:
        say(when, "the job ended in an error after " + progress + ": " + mode_.error, Tone::kBad);
        return;
      case Outcome::kHang:
        say(when, "the job hung after " + progress + " and was ended: " + mode_.error, Tone::kBad);
        return;
      case Outcome::kKilled:
        say(when, "a rank died after " + progress + ": " + mode_.error, Tone::kBad);
        return;
      case Outcome::kCancelled:
        say("",
            "the run was cut short after " + progress +
                (mode_.error.empty() || mode_.error == "cancelled" ? "" : ": " + mode_.error),
            Tone::kBad);
        return;
    }
  }

  void tell_success() {
    const Correctness& c = mode_.correctness;
    std::string text = "finished all " + std::to_string(mode_.row.iterations) + " iterations";
    if (mode_.count("migrations") == 0 && !mode_.faults.empty()) text += " without a migration";
    if (c.exact() && c.checked_elements > 0) {
      text += "; every element right";
      if (lost_known(scenario_, c).by != MessagesBy::kNothing) text += ", nothing lost";
      if (duplicated_known(scenario_, c).by != MessagesBy::kNothing) text += ", nothing twice";
    } else if (!c.exact()) {
      text += "; " + std::to_string(c.wrong_elements) + " elements WRONG, " + std::to_string(c.lost) +
              " messages lost, " + std::to_string(c.duplicated) + " arrived twice";
    } else if (scenario_.workload.engine == Engine::kExec) {
      say("", text + "; every command ended with exit status 0; " +
                  (scenario_.workload.exec.nccl_tests
                       ? "the table of nccl-tests has no compared element"
                       : "r2bench compared no data, and does not know whether the command did"));
      return;
    } else {
      text += "; the data was not compared";
    }
    say("", text, c.exact() && c.checked_elements > 0 ? Tone::kGood : Tone::kBad);
  }

  const Scenario& scenario_;
  const ModeResult& mode_;
  std::vector<StoryLine>& lines_;
  uint64_t last_t0_ = 0;
};

std::string counted(int count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace

std::vector<StoryLine> tell(const Scenario& scenario, const RunResult& result) {
  std::vector<StoryLine> lines;
  for (const ModeResult& mode : result.modes) Teller(scenario, mode, lines).tell();
  return lines;
}

namespace {

/// ", infiniband, 2 ports each, MTU 2048": what is not as usual.
std::string unusual_ports(const VirtualPorts& ports) {
  const VirtualPorts usual;
  std::string text;
  if (ports.link != usual.link) text += std::string(", ") + name(ports.link);
  if (ports.per_nic != usual.per_nic) text += ", " + counted(ports.per_nic, "port") + " each";
  if (ports.mtu != usual.mtu) text += ", MTU " + std::to_string(ports.mtu);
  return text;
}

std::string operation_in_words(const Workload& work) {
  return std::string(name(work.op)) + " of " + faultinject::format_bytes(work.bytes) + " " +
         name(work.dtype) + " × " + std::to_string(work.iters) +
         (work.groups == Groups::kLocalRank ? " among equal local ranks" : "");
}

/// Of devices that the fabric makes; those of verbs have whatever rate they have.
std::string rate_that_is_set(const Fabric& fabric) {
  if (fabric.kind != FabricKind::kVhca && fabric.kind != FabricKind::kRxe) return "";
  return " of " + faultinject::format_rate(fabric.nic_rate_bits_per_s) +
         (fabric.nic_rate_bits_per_s == 0 ? " rate" : "");
}

}  // namespace

std::string command_in_words(const ExecSettings& exec) {
  const bool shell =
      exec.arguments.size() == 3 && exec.arguments[0] == "/bin/sh" && exec.arguments[1] == "-c";
  if (shell) return exec.arguments[2];
  std::string text;
  for (const std::string& word : exec.arguments) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string headline(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  const Workload& work = scenario.workload;
  return counted(fabric.nodes, "node") + " × " + counted(fabric.ranks_per_node, "rank") + " × " +
         counted(fabric.nics_per_node, "NIC") + rate_that_is_set(fabric) + " (" + name(fabric.kind) +
         unusual_ports(fabric.ports) + (fabric.topology ? ", " + in_words(*fabric.topology) : "") + ") · " +
         (work.engine == Engine::kExec ? command_in_words(work.exec) : operation_in_words(work));
}

std::string meaning_of_kind(const std::string& kind, Tense tense) {
  if (const faultinject::FaultKind* declared = faultinject::find_fault_kind(kind))
    return tense == Tense::kPast ? declared->past : declared->present;
  if (const RankFaultInfo* declared = find_rank_fault_kind(kind))
    return tense == Tense::kPast ? declared->past : declared->present;
  return kind;
}

}  // namespace r2bench
