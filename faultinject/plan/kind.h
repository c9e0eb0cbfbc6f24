// SPDX-License-Identifier: Apache-2.0
// What a kind of fault is, as the file of that kind in faultinject/faults declares it. Plans, verdicts,
// reports, the fault matrix and the scripts read it from here; `r2bench list --faults` prints it. Known to
// both sides of the board: the preloaded library makes faults from it, and knows no plans.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace faultinject {

class Fault;
struct FaultEntry;
struct FaultSpec;

// What a fault takes from its target while it acts.
enum class Takes {
  kNothing,
  kPort,        // nothing travels on the NIC any more
  kQueuePairs,  // single queue pairs, or some of the traffic: their NIC goes on for all else
  kSpeed,       // the NIC is slower, or its completions are late
};

// When a fault is over.
enum class Ends {
  kWhenHealed,
  kAfterStrikes,  // once it has struck `count` times; healing it then undoes nothing
  kAfterItsTime,  // comes and goes by itself, each time an outage of its own; see FaultKind::lasts
  kNeverForJob,   // what it strikes does not come back to processes that have it; healing lets new ones have
                  // it
};

// What a fault does to a path that it strikes.
enum class Harm {
  kBreaks,    // whatever is on its way is gone: traffic has to move
  kMayBreak,  // one call or one completion goes wrong, or the fault is short: traffic may have to move
  kHarmless,  // it is slower
  kNone,      // nothing at all: traffic must not move
};

// What there must be for the fault to have something to strike.
enum class Strikes {
  kAnything,       // the NIC, its port or its queue pairs: they are always there
  kSetUp,          // a buffer that is registered, or a queue pair that is connected
  kWork,           // work that is posted, polled or completed
  kMessages,       // the same, with payload: what goes over the wire before the first message is smaller
  kReceives,       // a receive that completes
  kTwoQueuePairs,  // sends on two queue pairs at the same time
};

// Can it be made sure that nothing arrives any more over a path that it struck?
enum class Fence {
  kPossible,   // by the driver, or by the kernel, which stops the device
  kUnstopped,  // the driver answers for a device that goes on, and no kernel says when it has stopped
  kNoAnswer,   // calls to the driver do not return
};

// One way to write the fault in a plan. Each is a row of the fault matrix.
struct Example {
  const char* suffix = "";      // the row is called KIND and this, e.g. "_silent"
  const char* parameters = "";  // what stands in the plan beside `kind`, e.g. "events: false, query: false"
  Harm harm = Harm::kBreaks;
  // It does not strike what is under way but the next call or completion of its sort: so many messages later
  // its effect may come at the latest.
  int messages_late = 0;
  Strikes strikes = Strikes::kAnything;
  Fence fence = Fence::kPossible;
  bool no_more_set_up = false;  // nothing can be registered or connected there for the rest of the job
};

// A parameter that one kind has for itself. Its value is a number: ns, bytes, an amount, or which of `words`.
struct Parameter {
  enum class Type { kTime, kNumber, kBytes, kChoice };
  const char* key = "";
  Type type = Type::kNumber;
  uint64_t usual = 0;  // where it is left out
  uint64_t least = 0;
  std::vector<const char*> words = {};
};
inline Parameter own_time(const char* key, std::chrono::nanoseconds usual,
                          std::chrono::nanoseconds least = {}) {
  return {key, Parameter::Type::kTime, uint64_t(usual.count()), uint64_t(least.count())};
}
inline Parameter own_number(const char* key, uint64_t usual, uint64_t least = 0) {
  return {key, Parameter::Type::kNumber, usual, least};
}
inline Parameter own_bytes(const char* key, uint64_t usual) { return {key, Parameter::Type::kBytes, usual}; }
inline Parameter own_choice(const char* key, std::vector<const char*> words, uint64_t usual = 0) {
  return {key, Parameter::Type::kChoice, usual, 0, std::move(words)};
}
constexpr size_t kMostOwn = 8;  // parameters of its own that a kind may have
using OwnValues = std::array<uint64_t, kMostOwn>;

// The parameters that a plan must have: one of `keys`, as in the example.
struct Need {
  std::vector<const char*> keys;
  const char* example = "";
};

// What is wrong about a fault whose parameters are each right. No key: nothing.
struct Complaint {
  const char* key = nullptr;
  const char* message = "";
};

struct FaultKind {
  const char* name;     // "port_flap"
  const char* what;     // one line: "the link goes down and comes up again, `count` times"
  const char* past;     // the NIC "had a flapping link"
  const char* present;  // the NIC "has a flapping link"
  Takes takes = Takes::kNothing;
  Ends ends = Ends::kWhenHealed;
  bool whole_device = false;      // its target names no port
  bool all_until_healed = false;  // with `qp: all` it strikes until it is healed, whatever `ends` says
  bool opcode_chooses = false;    // `opcode` tells by which sends a queue pair is chosen, not what is struck
  bool outside = false;  // a change of the machine: the injector only triggers it, others carry it out
  std::vector<const char*> shared = {};  // parameters that several kinds have (plan/parameters.cc)
  std::vector<Parameter> own = {};       // and those that it has alone, in the order of FaultEntry::own
  std::vector<Need> needs = {};
  uint64_t count = 1;  // where `count` is left out
  int error = 0;       // where `errno` is left out
  std::vector<Example> examples = {{}};
  Complaint (*check)(const FaultSpec&) = nullptr;
  // How long it lasts by itself (kAfterItsTime); 0: until it is healed.
  std::chrono::nanoseconds (*lasts)(const FaultSpec&) = nullptr;
  // The fault at work in one context. nullptr outside the preloaded library.
  std::unique_ptr<Fault> (*make)(FaultEntry&) = nullptr;

  bool takes_parameter(std::string_view key) const;
  // Traffic has to leave what it strikes.
  bool moves_traffic() const { return takes == Takes::kPort || takes == Takes::kQueuePairs; }
};

// All kinds, in the order of their files' names.
const std::vector<FaultKind>& fault_kinds();
const FaultKind* find_fault_kind(std::string_view name);  // nullptr: there is none
const FaultKind& fault_kind(std::string_view name);       // throws std::invalid_argument where there is none
std::vector<std::string> fault_kind_names();

const char* to_string(Takes takes);
const char* to_string(Ends ends);
const char* to_string(Harm harm);

// For declarations: what only the preloaded library has.
#ifdef FAULTINJECT_LIBRARY
#define IN_LIBRARY(value) (value)
#else
#define IN_LIBRARY(value) nullptr
#endif

}  // namespace faultinject
