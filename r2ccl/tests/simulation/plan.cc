// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/plan.h"

#include <algorithm>
#include <iterator>

#include "r2ccl/tests/simulation/aims.h"

namespace r2ccl::simulation {

using Kind = Fault::Kind;

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {
      "port_down",      "port_silent", "deaf",        "cut_rail", "pair_error",   "pair_error_silent",
      "freeze",         "driver_slow", "driver_hang", "remove",   "pretend",      "lose_completion",
      "lose_immediate", "lose_line",   "late",        "slow",     "tcp_cut",      "tcp_half_open",
      "tcp_drop",       "tcp_hold",    "tcp_swallow", "stop",     "refuse_posts", "pause",
      "tcp_mute"};
  return kNames[size_t(kind)];
}

bool spares(Kind kind) {
  return kind == Kind::kPairError || kind == Kind::kPairErrorSilent || kind == Kind::kLoseCompletion ||
         kind == Kind::kLoseImmediate || kind == Kind::kLoseLine || kind == Kind::kLate ||
         kind == Kind::kSlow || kind == Kind::kRefusePosts;
}

static constexpr const char* kTargets[] = {"NIC", "its place at the peer", "active path", "lane",
                                           "the event's path"};

std::string Fault::label() const {
  return std::string(name(kind)) + (is_of_nic(kind) ? std::string(" of ") + kTargets[size_t(target)] : "") +
         (event == trace::EventType::kNone ? "" : " at " + std::string(trace::name(event)));
}

std::string Fault::words() const {
  std::string text = name(kind);
  text += std::string(" of ") + kTargets[size_t(target)] + " " + std::to_string(nic) + "/" +
          std::to_string(other) + (channel >= 0 ? " of channel " + std::to_string(channel) : "") + " after ";
  if (event == trace::EventType::kNone)
    text += std::to_string(after_messages) + " messages";
  else
    text += "event " + std::string(trace::name(event)) + " number " + std::to_string(after_messages) +
            " of process " + std::to_string(by);
  return text + " and " + std::to_string(delay / kMicrosecond) + " us, for " +
         std::to_string(lasts / kMicrosecond) + " us";
}

int Plan::messages() const {
  int sum = 0;
  for (const Line& line : channels) sum += line.messages;
  return sum;
}

std::string Plan::words() const {
  std::string text = "seed " + std::to_string(seed) + ": mode " + std::to_string(mode) + ", " +
                     std::to_string(nics) + " NICs each, spared " + std::to_string(spared[0]) + " and " +
                     std::to_string(spared[1]) + (hopeless ? ", hopeless" : "") +
                     (scarce >= 0 ? ", epoll of process " + std::to_string(scarce) + " is full" : "") +
                     (aim ? std::string(", aim '") + aim->name + "'" : "") +
                     (abandons ? ", abandons a connect" : "") + (stops_late ? ", NICs stop late" : "") + "\n";
  for (const Line& line : channels)
    text += "  channel " + std::to_string(line.sender) + " -> " + std::to_string(1 - line.sender) +
            ", NICs " + std::to_string(line.sender_nic) + " -> " + std::to_string(line.receiver_nic) + ", " +
            std::to_string(line.messages) + " messages of up to " + std::to_string(line.most_bytes) +
            " bytes, pause " + std::to_string(line.pause / kMicrosecond) + " us\n";
  for (const Fault& fault : faults) text += "  " + fault.words() + "\n";
  return text;
}

static Fault random_fault(const Plan& plan, Random& random) {
  Fault fault{};
  fault.kind = Kind(random.below(uint64_t(Kind::kRefusePosts)));
  fault.after_messages = int(random.below(uint64_t(plan.messages() - 20)));
  fault.delay = random.skewed(kMicrosecond, 20 * kMillisecond);
  fault.lasts = random.skewed(kMillisecond, kSecond);
  const int process = int(random.below(2));
  int nic = int(random.below(uint64_t(plan.nics)));
  if (!spares(fault.kind) && nic == plan.spared[process]) nic = (nic + 1) % plan.nics;
  fault.nic = process * plan.nics + nic;
  switch (fault.kind) {
    case Kind::kCutRail:
      fault.other = (1 - process) * plan.nics + int(random.below(uint64_t(plan.nics)));
      break;
    case Kind::kDriverSlow:
      fault.lasts = std::min<Time>(fault.lasts, 400 * kMillisecond);
      break;
    case Kind::kDriverHang:
      fault.lasts = random.between(600, 8000) * kMillisecond;
      break;
    case Kind::kRemove:
    case Kind::kPretend:
      fault.lasts = std::min<Time>(fault.lasts, 400 * kMillisecond);
      break;
    case Kind::kLoseCompletion:
    case Kind::kLoseImmediate:
    case Kind::kLoseLine:
      fault.other = int(random.between(1, 2));
      break;
    case Kind::kTcpHalfOpen:
      fault.other = int(random.between(1, 2));
      fault.lasts = 0;
      break;
    case Kind::kTcpCut:
    case Kind::kTcpSwallow:
    case Kind::kPairError:
    case Kind::kPairErrorSilent:
      fault.lasts = 0;
      break;
    case Kind::kTcpDrop:
    case Kind::kTcpHold:
      fault.lasts = random.skewed(kMillisecond, 2500 * kMillisecond);
      break;
    case Kind::kStop:
      fault.nic = process;
      fault.lasts = random.skewed(kMillisecond, 3 * kSecond);
      break;
    default:
      break;
  }
  return fault;
}

static Plan::Line random_channel(const Plan& plan, int number, Random& random) {
  Plan::Line line;
  line.sender = number < 2 ? number : int(random.below(2));
  line.sender_nic = int(random.below(uint64_t(plan.nics)));
  line.receiver_nic = random.chance(80) ? line.sender_nic : int(random.below(uint64_t(plan.nics)));
  line.messages = int(random.between(50, 70));
  constexpr uint32_t kMost[] = {8, 8192, kSlotBytes, kSlotBytes};  // copied up to half a slot
  line.most_bytes = kMost[random.below(std::size(kMost))];
  line.pause = random.chance(30) ? random.skewed(100 * kMicrosecond, 50 * kMillisecond) : 0;
  return line;
}

std::string too_small(const Plan& plan) {
  int messages = 0;
  for (const Plan::Line& line : plan.channels) messages += line.messages + line.later_messages;
  if (plan.channels.size() < 4) return "a history has only " + std::to_string(plan.channels.size()) + " channels";
  if (plan.nics < 3) return "a history has only " + std::to_string(plan.nics) + " NICs";
  if (messages < 200) return "a history has only " + std::to_string(messages) + " messages";
  if (plan.faults.size() < 3) return "a history has only " + std::to_string(plan.faults.size()) + " faults";
  return "";
}

Plan plan_of(uint64_t seed) {
  Random random(Random(seed).next());
  Plan plan;
  plan.seed = seed;
  plan.stops_late =
      seed * 0x9e3779b97f4a7c15 >> 29 & 1;  // not from `random`: seeds that were wrong stay what they are
  plan.mode = random.chance(25) ? 2 : 1;
  plan.nics = int(random.between(3, 4));
  for (int& nic : plan.spared) nic = int(random.below(uint64_t(plan.nics)));
  const int channels = int(random.between(4, 6));
  for (int i = 0; i < channels; ++i) plan.channels.push_back(random_channel(plan, i, random));
  plan.hopeless = random.chance(5);
  const int faults = int(random.between(3, 6));
  for (int i = 0; i < faults; ++i) plan.faults.push_back(random_fault(plan, random));
  Random more(random.next());
  if (more.chance(10)) plan.scarce = int(more.below(2));
  plan.abandons = !plan.hopeless && more.chance(5);
  plan.aim = aim_of(seed, more);
  if (plan.aim) plan.aim->make(plan, more);
  return plan;
}

}  // namespace r2ccl::simulation
