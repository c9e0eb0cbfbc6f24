// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/strike.h"

#include <algorithm>
#include <cerrno>

namespace r2bench::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSharp = 0.9;  ///< of the time that a fault prescribes: bursts and rounding are no deviation
constexpr int kBefore = 100;    ///< completions before the strike
constexpr std::chrono::seconds kEffect{20};  ///< a fault that shows nothing for so long shows nothing
constexpr std::chrono::milliseconds kStall{
    150};  ///< between two completions, when a fault of 300 ms is in the way

/// "SUCCESS+ RETRY_EXC_ERR WR_FLUSH_ERR+": runs of more than one are '+', so that timing does not show.
class Sequence {
 public:
  void add(const std::string& name) {
    if (!names_.empty() && names_.back() == name) {
      many_.back() = true;
    } else {
      names_.push_back(name);
      many_.push_back(false);
    }
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < names_.size(); ++i)
      text += (i > 0 ? " " : "") + names_[i] +
              (many_[i] || names_[i] == "SUCCESS" || names_[i] == "WR_FLUSH_ERR" ? "+" : "");
    return text;
  }

 private:
  std::vector<std::string> names_;
  std::vector<bool> many_;
};

double seconds_for(Endpoint& a, int completions, Sequence& sequence, int& outstanding) {
  const auto start = Clock::now();
  for (int i = 0; i < completions; ++i) {
    while (outstanding < kInFlight && a.post({.bytes = kMessageBytes}) == 0) ++outstanding;
    const ibv_wc completion = a.wait();
    --outstanding;
    sequence.add(status_name(completion.status));
    if (completion.status != IBV_WC_SUCCESS) break;
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Each kind once, sorted: which of two ports is told first is timing.
nlohmann::json kinds(std::vector<std::string> events) {
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
  return events;
}

std::string port_state(const Device& device) {
  const ibv_port_state state = device.port().state;
  return state == IBV_PORT_ACTIVE ? "ACTIVE"
         : state == IBV_PORT_DOWN ? "DOWN"
                                  : "state " + std::to_string(int(state));
}

}  // namespace

nlohmann::json what_a_program_sees(Device& device_a, Device& device_b, const StrikeOptions& options) {
  EndpointOptions of_a;
  of_a.timeout = options.timeout;
  of_a.retry = options.retry;
  Pair pair(device_a, device_b, of_a, of_a);
  device_a.events();
  device_b.events();
  Sequence sequence;
  int outstanding = 0;
  const double before = seconds_for(pair.a, kBefore, sequence, outstanding);
  options.strike();

  nlohmann::json seen;
  if (options.slowed_to.count() > 0) {
    Sequence skipped;
    seconds_for(pair.a, kInFlight, skipped, outstanding);  // those that were under way
    const double after = seconds_for(pair.a, kSlowedCompletions, sequence, outstanding);
    const double ratio = (after / kSlowedCompletions) / (before / kBefore);
    seen["slower"] =
        after >= kSharp * std::chrono::duration<double>(options.slowed_to).count() ? "yes" : "no";
    seen["slower_by"] = ratio;
    seen["completions"] = sequence.text();
  } else {
    const auto struck = Clock::now();
    bool failed = false;
    auto last = struck;
    Clock::duration longest{};
    while (!failed && Clock::now() - struck < kEffect) {
      while (outstanding < kInFlight && pair.a.post({.bytes = kMessageBytes}) == 0) ++outstanding;
      const auto completion = pair.a.poll(std::chrono::milliseconds(100));
      if (!completion) continue;
      --outstanding;
      longest = std::max(longest, Clock::now() - last);
      last = Clock::now();
      sequence.add(status_name(completion->status));
      failed = completion->status != IBV_WC_SUCCESS;
    }
    seen["first_error_ms"] =
        failed ? std::chrono::duration<double, std::milli>(Clock::now() - struck).count() : -1.0;
    while (outstanding > 0) {
      const auto completion = pair.a.poll(std::chrono::seconds(5));
      if (!completion) break;
      --outstanding;
      sequence.add(status_name(completion->status));
    }
    if (options.passes) seen["stalled"] = longest >= kStall ? "yes" : "no";
    seen["completions"] = sequence.text();
    seen["left_without_completion"] = outstanding == 0 ? "none" : "some";
    const int rc = pair.a.post({.bytes = kMessageBytes});
    const auto late = rc == 0 ? pair.a.poll(std::chrono::seconds(3)) : std::nullopt;
    seen["posted_after"] = rc != 0 ? errno_name(rc) : late ? status_name(late->status) : "no completion";
  }
  seen["state_a"] = state_name(pair.a.state());
  seen["port_a"] = port_state(device_a);
  seen["port_b"] = port_state(device_b);
  seen["events_a"] = kinds(device_a.events("", std::chrono::milliseconds(300)));
  seen["events_b"] = kinds(device_b.events("", std::chrono::milliseconds(300)));
  return seen;
}

}  // namespace r2bench::conformance
