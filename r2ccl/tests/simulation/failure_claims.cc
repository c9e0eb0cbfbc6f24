// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/failure_claims.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "r2ccl/health/failure_log.h"
#include "r2ccl/tests/simulation/system.h"

namespace r2ccl::simulation {
namespace {

using trace::DetectedBy;
using Event = trace::EventType;

constexpr Time kSoon = 10 * kMillisecond;

std::string in_ms(Time ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", double(ns) / 1e6);
  return text;
}

/// What follows `what` in `text`, up to one of `until`; empty: it is not there.
std::string behind(const std::string& text, const char* what, const char* until) {
  const size_t at = text.find(what);
  if (at == std::string::npos) return "";
  const size_t from = at + std::char_traits<char>::length(what);
  return text.substr(from, text.find_first_of(until, from) - from);
}

}  // namespace

void FailureClaims::line(const std::string& text, int process) {
  unsigned channel = 0;
  int nic = -1, node = -1;
  char by[16];
  constexpr char kLeft[] =
      "NET/R2CCL: channel %u: NIC sim%d of node%*d to NIC sim%*d of node%*d failed, detected by %15[a-z]";
  constexpr char kTold[] =
      "NET/R2CCL: channel %u: node%*d reports that NIC sim%*d of node%*d to NIC sim%*d of node%*d failed "
      "(detected by %15[a-z]";
  if (std::sscanf(text.c_str(), kLeft, &channel, &nic, by) == 3)
    said_[{process, channel}] = {by, false, nic};
  else if (std::sscanf(text.c_str(), kTold, &channel, by) == 2)
    said_[{process, channel}] = {by, true, -1};
  else if (std::sscanf(text.c_str(), "NET/R2CCL: NIC sim%d of node%d to NIC", &nic, &node) == 2)
    check_failure(text, process);
  check_outage(text, process);
  check_driver(text, process);
  check_flushes(text, process);
}

void FailureClaims::event(const trace::Event& event, int process) {
  const Number channel(process, event.channel);
  switch (event.type) {
    case Event::kFenceStarted: {
      check_detector(event, process);
      fences_[channel] = {event.b, scheduler().now()};
      const auto it = said_.find(channel);
      if (it == said_.end()) return;
      left(it->second, event, process);
      said_.erase(it);
      return;
    }
    case Event::kFenceDone:
      return check_fence(event, process);
    case Event::kReplayed:
      for (auto& [nic, failure] : failures_)
        if (nic.first == process && failure.under_way.contains(event.channel)) failure.segments += event.a;
      return;
    case Event::kMigrationDone:
      return went_on(channel);
    case Event::kChannelClosing:
    case Event::kChannelFailed:
      for (auto& [nic, failure] : failures_)
        if (nic.first == process) failure.under_way.erase(event.channel);
      return;
    default:
      return;
  }
}

void FailureClaims::left(const Said& said, const trace::Event& event, int process) {
  check_said(said.by, event, process, said.of_peer);
  if (said.of_peer) return;
  const Time now = scheduler().now();
  for (auto& [nic, failure] : failures_)  // it cannot be under way twice
    if (nic.first == process) failure.under_way.erase(event.channel);
  Failure& failure = failures_.try_emplace({process, said.nic}, Failure{said.by, now, now}).first->second;
  if (failure.told && failure.went_on == 0 && failure.under_way.empty() &&
      now - failure.last >= FailureLog::kSettled)
    failure = {"", now, now};  // it has ended without a line, or has not yet
  failure.under_way[event.channel] = failure.last = now;
}

void FailureClaims::went_on(const Number& channel) {
  const Time now = scheduler().now();
  went_on_at_[channel] = now;
  for (auto& [nic, failure] : failures_) {
    const auto it =
        nic.first == channel.first ? failure.under_way.find(channel.second) : failure.under_way.end();
    if (it == failure.under_way.end()) continue;
    failure.longest = std::max(failure.longest, now - it->second);
    failure.last = now;
    ++failure.went_on;
    failure.under_way.erase(it);
  }
}

// What the trace says, and what the channel's own line has said.
void FailureClaims::check_said(const std::string& by, const trace::Event& event, int process, bool of_peer) {
  ++findings_.verdict.claims.detectors;
  if (!of_peer) {
    if (by != trace::name(DetectedBy(event.a)))
      findings_.violate("the log says 'detected by " + by + "', and the trace '" +
                        std::string(trace::name(DetectedBy(event.a))) + "'");
    return;
  }
  const int channel = job_.channel_of(process, event.channel);
  if (channel < 0) return;
  const bool sender = job_.sender(size_t(channel)).process == process;
  const auto it = left_.find({{size_t(channel), !sender}, uint32_t(event.b)});
  if (it != left_.end() && by != trace::name(it->second))
    findings_.violate("the log says that the peer has detected it by " + by + ", and it was by " +
                      std::string(trace::name(it->second)));
}

void FailureClaims::check_detector(const trace::Event& event, int process) {
  const int channel = job_.channel_of(process, event.channel);
  if (channel < 0) return;
  const bool sender = job_.sender(size_t(channel)).process == process;
  const End& end = sender ? job_.sender(size_t(channel)) : job_.receiver(size_t(channel));
  const auto by = DetectedBy(event.a);
  left_[{{size_t(channel), sender}, uint32_t(event.b)}] = by;
  end.comm->for_each_path([&](const Path& path) {
    if (path.id() == event.b && path.data && !is_true(event, end, path))
      findings_.violate("a failure of path " + std::to_string(path.id()) + " of channel " +
                        std::to_string(channel) + " was not detected by '" + std::string(trace::name(by)) +
                        "' at its " + (sender ? "sender" : "receiver"));
  });
}

// An event of it was read, or its driver does not do what it is asked.
bool FailureClaims::nic_has_told(int nic) const {
  return fabric_.told.events.contains(nic) || faults_.has_struck(nic, Fault::Kind::kDriverHang) ||
         faults_.has_struck(nic, Fault::Kind::kDriverSlow);
}

bool FailureClaims::peer_has_left(const End& other, uint32_t id) const {
  if (!other.comm || other.stage != Stage::kTraffic) return true;
  bool keeps = false;
  other.comm->for_each_path([&](const Path& path) {
    keeps =
        keeps || (path.id() == id && (path.carries() || path.state == PathState::kStandby) && !path.failure);
  });
  return !keeps;
}

// Then it may leave what was marked failed in the migration before, whatever has been read since.
bool FailureClaims::has_just_gone_on(const Number& channel) const {
  const auto it = went_on_at_.find(channel);
  return it != went_on_at_.end() && scheduler().now() - it->second < kSoon;
}

bool FailureClaims::is_true(const trace::Event& event, const End& end, const Path& path) const {
  const int local = end.process * plan_.nics + path.local_nic();
  const int remote = (1 - end.process) * plan_.nics + path.remote_nic();
  const bool has_error = fabric_.told.has_error(path.data.number());
  switch (DetectedBy(event.a)) {
    case DetectedBy::kNone:
      return event.c != 0;  // planned
    case DetectedBy::kCompletion:
      return has_error;
    case DetectedBy::kEvent:
      return nic_has_told(local);
    case DetectedBy::kWatchdog:
      return has_just_gone_on({end.process, event.channel}) ||
             (!has_error && !fabric_.told.down.contains(local));
    case DetectedBy::kPeer:
      return nic_has_told(remote) ||
             peer_has_left(end.sender ? job_.receiver(end.channel) : job_.sender(end.channel), path.id());
  }
  return false;
}

// One line for all channels that have left a NIC.
void FailureClaims::check_failure(const std::string& text, int process) {
  const size_t by_at = text.find(" by ", text.rfind(" (", text.find("); ")));
  if (by_at == std::string::npos) return;
  const int nic = text[text.find("NIC sim") + 7] - '0';
  const auto it = failures_.find({process, nic});
  if (it == failures_.end()) return findings_.violate("the log says of a NIC that nobody left: " + text);
  Failure& failure = it->second;
  ++findings_.verdict.claims.failures;
  const std::string by = text.substr(by_at + 4, text.find(')', by_at) - by_at - 4);
  if (!failure.by.empty() && by != failure.by)
    findings_.violate("the log says that NIC " + std::to_string(nic) + " was found by " + by + ", not by " +
                      failure.by);
  const std::string search = behind(text, "without a path after ", " ");
  if (!search.empty()) {
    ++findings_.verdict.claims.searches;
    if (search != in_ms(scheduler().now() - failure.began))
      findings_.violate("the log says another time of search than " +
                        in_ms(scheduler().now() - failure.began) + " ms: " + text);
    failure.told = true;
    return;
  }
  std::string after = behind(text, " migrated after ", " ");
  if (after.empty()) after = behind(text, " migrated, the last after ", " ");
  const int count = after.empty() ? 0 : std::atoi(text.c_str() + text.find("); ") + 3);
  const size_t again = text.find(" retransmitted"), segments = text.rfind("; ", again);
  if (count != failure.went_on ||
      (count > 0 && (after != in_ms(failure.longest) ||
                     uint64_t(std::atoll(text.c_str() + segments + 2)) != failure.segments)))
    findings_.violate("the log says another time or number than " + std::to_string(failure.went_on) +
                      " channels after " + in_ms(failure.longest) + " ms, " +
                      std::to_string(failure.segments) + " segments: " + text);
  failures_.erase(it);
}

// The conversation of an end has broken when it closed a connection, or never for it.
void FailureClaims::check_outage(const std::string& text, int process) {
  const std::string after = behind(text, "had broken, and is restored after ", " ");
  if (after.empty()) return;
  ++findings_.verdict.claims.outages;
  const Time took = Time(std::atoll(after.c_str())) * kMicrosecond, now = scheduler().now();
  const auto& closed = kernel().closed_at[size_t(process)];
  if (took > 0 && std::none_of(closed.begin(), closed.end(),
                               [&](Time at) { return took <= now - at && now - at - took < kMicrosecond; }))
    findings_.violate("the log says another time: " + text);
}

void FailureClaims::check_driver(const std::string& text, int process) {
  const size_t at = text.find(" has not returned from ");
  const size_t nic_at = at == std::string::npos ? at : text.rfind("NIC sim", at);
  if (nic_at == std::string::npos || text.find("the NIC is not used") == std::string::npos) return;
  ++findings_.verdict.claims.drivers;
  const Nic& nic = *fabric_.nics[size_t(process * plan_.nics + text[nic_at + 7] - '0')];
  const Time said = Time(std::atoll(text.c_str() + text.find(" for ", at) + 5)) * kMillisecond;
  if (nic.under_way.empty() || said > scheduler().now() - nic.under_way.front())
    findings_.violate("the log says that a driver has kept a call for longer than it has: " + text);
}

// For how long a NIC has not flushed: since the fence began, at most.
void FailureClaims::check_flushes(const std::string& text, int process) {
  const std::string silence = behind(text, ": no flushes for ", " ");
  unsigned channel = 0;
  if (silence.empty() || std::sscanf(text.c_str(), "NET/R2CCL: channel %u", &channel) != 1) return;
  const auto it = fences_.find({process, channel});
  if (it != fences_.end() &&
      Time(std::atoll(silence.c_str())) * kMillisecond > scheduler().now() - it->second.second)
    findings_.violate("the log says of a fence that it has lasted for longer than it has: " + text);
}

// A fence that began here, and what the trace says of its time.
void FailureClaims::check_fence(const trace::Event& event, int process) {
  const auto it = fences_.find({process, event.channel});
  if (it == fences_.end() || it->second.first != event.a) return;
  const Time took = scheduler().now() - it->second.second;
  // In mode 2 ends may disagree, and one begins again, without an event.
  if (event.b > took / kMicrosecond || (event.b < took / kMicrosecond && plan_.mode == 1))
    findings_.violate("the trace says that a fence took " + std::to_string(event.b) + " us, and it took " +
                      std::to_string(took / kMicrosecond));
  fences_.erase(it);
}

}  // namespace r2ccl::simulation
