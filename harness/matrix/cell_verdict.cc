// SPDX-License-Identifier: Apache-2.0
#include "harness/matrix/cell_verdict.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "harness/matrix/cell_scenario.h"

namespace r2bench::matrix {
namespace {

using faultinject::Harm;
using r2ccl::trace::EventType;

/// An error must have been reported so soon after the fault: the core's bounds for a fence and for a kernel
/// that stops a device (R2CC_FENCE_MS, 0.5 s; R2CC_REMOVAL_MS, here 1 s), and what a busy machine adds.
constexpr double kErrorBoundMs = 500 + 1000 + 4500;

/// The host engine's messages of an operation are of 64 KiB, those of its set-up of at most 1 KiB.
constexpr uint32_t kLeastOfOperation = 4096;

std::string ms(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", value);
  return text;
}
double ms_between(uint64_t from_ns, uint64_t to_ns) { return (double(to_ns) - double(from_ns)) / 1e6; }

/// Deliveries at a node up to that time. Node 1 is the receiver of the messages in question.
size_t delivered(const JobRecord& job, uint64_t until_ns, uint16_t node = 1) {
  return size_t(
      std::count_if(job.record.deliveries.begin(), job.record.deliveries.end(), [&](const Delivery& d) {
        return job.record.streams[d.stream].rx_node == node && d.time_ns <= until_ns;
      }));
}

template <typename Matches>
std::optional<uint64_t> first_event(const JobRecord& job, Matches matches) {
  std::optional<uint64_t> first;
  for (const RankEvent& event : job.trace)
    if (matches(event) && (!first || event.event.time_ns < *first)) first = event.event.time_ns;
  return first;
}

const Firing* firing_of(const Scenario& scenario, const JobRecord& job, const std::string& name) {
  for (const Firing& firing : job.firings)
    if (firing.fault < scenario.faults.size() && scenario.faults[firing.fault].name == name) return &firing;
  return nullptr;
}

/// Where the host engine carries the operation many messages are under way at a time: a moment lasts until
/// the operation that is open at `from_ns` has ended at both ends (with `late`, until the one after it has).
/// Empty: `time` is within.
std::string not_in_operation(const JobRecord& job, uint64_t from_ns, uint64_t time, int late) {
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    int left = late > 0 ? 2 : 1;
    const bool over = std::any_of(job.trace.begin(), job.trace.end(), [&](const RankEvent& e) {
      return e.rank == rank && e.event.type == EventType::kIterationDone && e.event.time_ns > from_ns &&
             e.event.time_ns <= time && --left == 0;
    });
    if (!over) return "";
  }
  return "the operation had ended";
}

/// One job of one cell, and what a moment of it is told by. Each `not_…` says why `time` is not within its
/// moment; empty: it is. `late`: effects that come with the next call may follow the moment by so many
/// messages.
class Moments {
 public:
  Moments(const Cell& cell, const Scenario& scenario, const JobRecord& job)
      : cell_(cell),
        scenario_(scenario),
        job_(job),
        engine_(scenario.workload.collnet == CollNet::kForce),
        message_(message_of(cell.moment, cell.op, engine_)) {}

  std::string not_in(uint64_t time, int late) const {
    switch (cell_.moment) {
      case Moment::kConnect:
        return not_in_set_up(time);
      case Moment::kFirstMessage:
      case Moment::kMidMessage:
      case Moment::kLastSegment:
        return not_in_message(time, late);
      case Moment::kReplay:
        return not_in_replay(time, late);
      case Moment::kFailback:
        return not_in_failback(time, late);
      case Moment::kClose:
        return not_in_close(time);
    }
    return "";
  }

 private:
  std::string not_in_set_up(uint64_t time) const {
    const auto opening =
        first_event(job_, [](const RankEvent& e) { return e.event.type == EventType::kPathOpening; });
    if (!opening || time < *opening) return "no path was being opened yet";
    size_t up = 0;
    for (const RankEvent& e : job_.trace)
      up += e.event.type == EventType::kChannelUp && e.event.time_ns < time;
    const auto begun =
        first_event(job_, [](const RankEvent& e) { return e.event.type == EventType::kIteration; });
    if (begun && time >= *begun) return "the first operation had begun";
    if (up >= 4) return "every channel was up";
    return "";
  }

  std::string not_in_message(uint64_t time, int late) const {
    const Firing* clock = firing_of(scenario_, job_, kClockFault);
    const std::string message = "message " + std::to_string(message_);
    if (!clock || clock->t0_ns == 0) return message + " was never posted";
    if (time < clock->t0_ns) return message + " was not posted yet";
    if (engine_) {
      const bool set_up = std::all_of(
          job_.record.deliveries.begin(), job_.record.deliveries.end(),
          [&](const Delivery& d) { return d.bytes >= kLeastOfOperation || d.time_ns < clock->t0_ns; });
      if (!set_up) return "the group's set-up had more messages than were counted";
      return not_in_operation(job_, clock->t0_ns, time, late);
    }
    const size_t there = delivered(job_, time);
    if (there < size_t(message_) + size_t(late)) return "";
    return message + " had arrived (" + std::to_string(there) + " were there)";
  }

  std::string not_in_replay(uint64_t time, int late) const {
    const Firing* provoker = firing_of(scenario_, job_, kProvokerFault);
    if (!provoker || provoker->t0_ns == 0) return "no migration was provoked";
    // Both ends lost a queue pair to send with: whichever replays first.
    const RankEvent* replay = nullptr;
    for (const RankEvent& e : job_.trace)
      if (e.event.type == EventType::kReplayed && e.event.a > 0 && e.event.time_ns >= provoker->t0_ns &&
          (!replay || e.event.time_ns < replay->event.time_ns))
        replay = &e;
    if (!replay) return "nothing was replayed";
    if (engine_) {  // several channels migrate at once, some with nothing to replay
      const auto first = first_event(job_, [&](const RankEvent& e) {
        return e.event.type == EventType::kReplayed && e.event.time_ns >= provoker->t0_ns;
      });
      return time < *first ? "no replay had been posted" : not_in_operation(job_, *first, time, late);
    }
    if (time < replay->event.time_ns) return "the replay had not been posted";
    const auto receiver = uint16_t(replay->rank == 0 ? 1 : 0);
    if (delivered(job_, time, receiver) > delivered(job_, replay->event.time_ns, receiver) + size_t(late))
      return "the replay had arrived";
    return "";
  }

  std::string not_in_failback(uint64_t time, int late) const {
    const auto planned = first_event(
        job_, [](const RankEvent& e) { return e.event.type == EventType::kFenceStarted && e.event.c != 0; });
    if (!planned) return "no failback was begun";
    if (time < *planned) return "the failback had not begun";
    if (engine_) return not_in_operation(job_, *planned, time, late);
    if (delivered(job_, time) > delivered(job_, *planned) + 1 + size_t(late)) return "the failback was over";
    return "";
  }

  std::string not_in_close(uint64_t time) const {
    const auto closing =
        first_event(job_, [](const RankEvent& e) { return e.event.type == EventType::kChannelClosing; });
    return !closing || time < *closing ? "no end was closing" : "";
  }

  const Cell& cell_;
  const Scenario& scenario_;
  const JobRecord& job_;
  bool engine_;
  int message_;
};

/// What was seen of the cell's own faults.
struct Struck {
  int within = 0;           ///< struck within the cell's moment
  uint64_t first_t0 = 0;    ///< of those
  std::string missed = "";  ///< why one was not within it
};

Struck struck_by(const Cell& cell, const Scenario& scenario, const JobRecord& job) {
  const Moments moments(cell, scenario, job);
  Struck seen;
  std::string never_fired;
  for (const Firing& firing : job.firings) {
    const auto& spec = scenario.faults[firing.fault];
    if (spec.name.rfind(kCellFault, 0) != 0) continue;
    if (firing.triggered_ns == 0) {
      never_fired = spec.name + " was never fired";
      continue;
    }
    if (firing.t0_ns == 0) {
      seen.missed = spec.name + " was fired and found nothing to strike";
      continue;
    }
    std::string why = moments.not_in(firing.triggered_ns, 0);
    if (why.empty()) why = moments.not_in(firing.t0_ns, cell.fault->declared.messages_late);
    if (!why.empty()) {
      seen.missed = spec.name + " came at the wrong moment: " + why;
      continue;
    }
    ++seen.within;
    seen.first_t0 = seen.first_t0 == 0 ? firing.t0_ns : std::min(seen.first_t0, firing.t0_ns);
  }
  // Where one end's fault keeps the other end from ever connecting, or the other end may have taken its
  // queue pairs down already, one of the two is enough.
  const bool one_is_enough = cell.moment == Moment::kConnect || cell.moment == Moment::kClose;
  if (one_is_enough && seen.within > 0) seen.missed.clear();
  if (!never_fired.empty()) seen.missed = never_fired;
  return seen;
}

CellResult counts_of(const JobRecord& job) {
  CellResult result;
  result.outcome = r2bench::name(job.outcome);
  result.wrong = job.correctness.wrong_elements + job.correctness.size_errors;
  result.lost = job.correctness.lost;
  result.duplicated = job.correctness.duplicated;
  result.checked = job.correctness.checked_elements;
  result.seconds = ms_between(job.start_ns, job.end_ns) / 1e3;
  for (const RankEvent& event : job.trace) {
    if (event.event.type == EventType::kMigrationStarted) ++result.migrations;
    if (event.event.type == EventType::kFenceStarted && event.event.c != 0) --result.migrations;
    if (event.event.type == EventType::kReplayed) result.replayed += event.event.a;
    if (event.event.type == EventType::kDuplicateDropped) ++result.duplicated;
  }
  return result;
}

/// Wrong data has no excuse, whatever was struck or missed; nor has a hang. nullopt: neither.
std::optional<std::string> inexcusable(const CellResult& result, const JobRecord& job) {
  if (result.wrong != 0) return std::to_string(result.wrong) + " elements were wrong";
  if (result.lost != 0) return std::to_string(result.lost) + " messages were lost";
  if (result.duplicated != 0) return std::to_string(result.duplicated) + " segments came twice";
  if (job.outcome == Outcome::kHang || job.outcome == Outcome::kKilled) return job.error;
  return std::nullopt;
}

/// Why an error that was to be expected is not as it should be; empty: it is.
std::string unexplained(const Expectation& wanted, const CellResult& result, const JobRecord& job) {
  if (result.error_ms > kErrorBoundMs)
    return "its error came " + ms(result.error_ms) + " after the fault: " + job.error;
  // Words of the core: the workload's own, around them, name the NIC of its channel in any case.
  if (std::none_of(wanted.words.begin(), wanted.words.end(),
                   [&](const std::string& words) { return job.error.find(words) != std::string::npos; }))
    return "its error does not say why (" + wanted.reason + "): " + job.error;
  return "";
}

/// Why a job that ended well is not as it should be; empty: it is.
std::string incomplete(const Cell& cell, const Scenario& scenario, const CellResult& result,
                       const JobRecord& job) {
  uint64_t ended = 0;
  for (const RankResult& rank : job.ranks) ended += rank.iterations;
  const uint64_t all = uint64_t(scenario.workload.iters) * uint64_t(scenario.fabric.ranks());
  if (ended != all || result.checked == 0)
    return std::to_string(ended) + " of " + std::to_string(all) + " operations ended, and " +
           std::to_string(result.checked) + " elements were compared";
  const bool in_traffic = cell.moment != Moment::kConnect && cell.moment != Moment::kClose;
  if (cell.fault->declared.harm == Harm::kBreaks && in_traffic && result.migrations == 0)
    return "the path was broken, and nothing migrated";
  // The provoker breaks what is on node 0's NIC 0: each end of each channel may migrate once.
  const bool provokes = cell.moment == Moment::kReplay || cell.moment == Moment::kFailback;
  const auto provoked =
      provokes
          ? size_t(std::count_if(job.trace.begin(), job.trace.end(),
                                 [](const RankEvent& e) { return e.event.type == EventType::kChannelUp; }))
          : size_t{0};
  if (cell.fault->declared.harm == Harm::kNone && result.migrations > provoked)
    return std::to_string(result.migrations) + " channel ends migrated although nothing was broken";
  return "";
}

}  // namespace

const char* name(CellVerdict verdict) {
  // clang-format off
  switch (verdict) {
    case CellVerdict::kPass: return "pass";
    case CellVerdict::kFail: return "fail";
    case CellVerdict::kMissed: return "missed";
    case CellVerdict::kEmpty: return "empty";
  }
  // clang-format on
  return "unknown";
}

CellResult judge(const Cell& cell, const Scenario& scenario, const JobRecord& job) {
  const Expectation wanted = expected(cell, scenario.workload.collnet == CollNet::kForce);
  CellResult result = counts_of(job);
  result.excuse = wanted.reason;
  const auto verdict = [&](CellVerdict is, const std::string& why) {
    result.verdict = is;
    result.why = why;
    return result;
  };
  if (const auto why = inexcusable(result, job)) return verdict(CellVerdict::kFail, *why);
  if (job.outcome == Outcome::kCancelled) return verdict(CellVerdict::kMissed, "cancelled");
  if (job.trace_lost > 0) return verdict(CellVerdict::kMissed, "events of the trace were lost");

  const Struck strikes = struck_by(cell, scenario, job);
  result.struck = strikes.within;
  const bool ended_well = job.outcome == Outcome::kOk;
  // An error that nobody expects is a failure even when the fault missed its moment.
  if (!ended_well && wanted.outcome == Expected::kSurvives)
    return verdict(CellVerdict::kFail, "the job ended in an error: " + job.error);
  if (!strikes.missed.empty()) return verdict(CellVerdict::kMissed, strikes.missed);

  if (!ended_well) result.error_ms = ms_between(strikes.first_t0, job.error_ns);
  const std::string why =
      ended_well ? incomplete(cell, scenario, result, job) : unexplained(wanted, result, job);
  return why.empty() ? verdict(CellVerdict::kPass, ended_well ? "" : job.error)
                     : verdict(CellVerdict::kFail, why);
}

}  // namespace r2bench::matrix
