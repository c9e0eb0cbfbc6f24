// SPDX-License-Identifier: Apache-2.0
// Breadth-first exploration of a finite model, one state at a time: every reachable state once, the shortest
// way to the first that breaks a property, and the proof that no run goes on for ever. Knows nothing of what
// it explores.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace r2ccl::model {

/// 128 bits of a state's canonical bytes. Two different states with one fingerprint would be taken for one:
/// with 10^8 states the odds are below 10^-22.
struct Fingerprint {
  uint64_t low = 0, high = 0;
  bool operator==(const Fingerprint&) const = default;
};

inline Fingerprint fingerprint(const uint8_t* bytes, size_t count) {
  const auto mix = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
  };
  Fingerprint f{0x243f6a8885a308d3, 0x13198a2e03707344};
  for (size_t at = 0; at < count; at += 8) {
    uint64_t word = 0;
    if (at + 8 <= count)
      std::memcpy(&word, bytes + at, 8);
    else
      std::memcpy(&word, bytes + at, count - at);
    f.low = mix(f.low ^ word, 0x9e3779b97f4a7c15);
    f.high = mix(f.high + word, 0xd1342543de82ef95) ^ f.low;
  }
  f.low = mix(f.low ^ count, 0xa0761d6478bd642f);
  return f;
}

/// Set of fingerprints, each with the number of its state.
class Seen {
 public:
  /// The number of the state, and whether it is new (then it gets `next`).
  std::pair<uint32_t, bool> insert(const Fingerprint& f, uint32_t next) {
    if ((count_ + 1) * 3 > slots_.size() * 2) grow();
    Slot& slot = slots_[place(slots_, f)];
    if (slot.used != 0) return {slot.number, false};
    slot = {f, next, 1};
    ++count_;
    return {next, true};
  }
  /// That fingerprint is inserted soon: its place is fetched from memory meanwhile.
  void prefetch(const Fingerprint& f) const { __builtin_prefetch(&slots_[f.low & (slots_.size() - 1)]); }

 private:
  struct Slot {
    Fingerprint f;
    uint32_t number = 0;
    uint32_t used = 0;
  };
  static size_t place(const std::vector<Slot>& slots, const Fingerprint& f) {
    size_t at = f.low & (slots.size() - 1);
    while (slots[at].used != 0 && !(slots[at].f == f)) at = (at + 1) & (slots.size() - 1);
    return at;
  }
  void grow() {
    std::vector<Slot> larger(slots_.size() * 2);
    for (const Slot& slot : slots_)
      if (slot.used != 0) larger[place(larger, slot.f)] = slot;
    slots_.swap(larger);
  }
  std::vector<Slot> slots_ = std::vector<Slot>(1 << 12);
  size_t count_ = 0;
};

struct Outcome {
  uint64_t states = 0;
  uint64_t steps = 0;  ///< taken, to new states or to known ones
  uint64_t ends = 0;   ///< states after which nothing happens any more
  uint32_t longest = 0;
  double seconds = 0;
  bool complete = false;           ///< everything that is reachable was seen
  std::string violation;           ///< empty: every property holds
  std::vector<std::string> trace;  ///< the shortest way to the violation
};

/// Explores `Model`, which has
///   using State;  State initial() const;
///   size_t expand(const State&, std::vector<State>& next) const;
///       the state after each step, in the same order every time, with `violation` (a const char*) set where
///       the step breaks a property. Returns how many of the steps happen by themselves, that is, are no
///       faults; faults may stay away for ever.
///   size_t bytes(const State&, uint8_t* out) const;   the canonical form, at most kMaxBytes
///   const char* at_end(const State&) const;   what is wrong when nothing happens any more, or nullptr
///   std::string words(const State&) const;    the step that led to it
/// and stops at the first violation or after `limit` states.
template <typename Model>
Outcome explore(const Model& model, uint64_t limit) {
  using State = typename Model::State;
  struct Parent {
    uint32_t state;
    uint32_t step;
  };
  const auto started = std::chrono::steady_clock::now();
  Outcome outcome;
  Seen seen;
  std::vector<Parent> parents;
  std::vector<uint32_t> targets;      // of all steps, one state after the other …
  std::vector<uint64_t> first_of{0};  // … and where those of a state begin
  uint8_t buffer[Model::kMaxBytes];

  std::vector<State> successors;
  std::vector<Fingerprint> fingerprints;  // of the successors

  const auto tell = [&](uint32_t last) {  // the way to a state; returns it
    std::vector<uint32_t> way;
    for (uint32_t at = last; at != 0; at = parents[at].state) way.push_back(parents[at].step);
    State state = model.initial();
    std::vector<State> all;
    while (!way.empty()) {
      all.clear();
      model.expand(state, all);
      state = all[way.back()];
      way.pop_back();
      outcome.trace.push_back(model.words(state));
    }
    return state;
  };

  std::vector<State> layer, next_layer;
  layer.push_back(model.initial());
  parents.push_back({0, 0});
  seen.insert(fingerprint(buffer, model.bytes(layer[0], buffer)), 0);
  uint32_t number = 0;  // of the state that is expanded: breadth first, so in the order of discovery
  while (!layer.empty() && outcome.violation.empty() && parents.size() < limit) {
    next_layer.clear();
    for (const State& state : layer) {
      successors.clear();
      const size_t own = model.expand(state, successors);
      outcome.steps += successors.size();
      fingerprints.clear();
      for (const State& next : successors) {
        if (next.violation) break;
        fingerprints.push_back(fingerprint(buffer, model.bytes(next, buffer)));
        seen.prefetch(fingerprints.back());
      }
      const State* broken = nullptr;
      for (size_t step = 0; step < successors.size() && !broken; ++step) {
        State& next = successors[step];
        if (next.violation) {
          broken = &next;
          break;
        }
        const auto [id, is_new] = seen.insert(fingerprints[step], uint32_t(parents.size()));
        targets.push_back(id);
        if (!is_new) continue;
        parents.push_back({number, uint32_t(step)});
        next_layer.push_back(next);
      }
      first_of.push_back(targets.size());
      if (broken) {
        outcome.violation = broken->violation;
        tell(number);
        outcome.trace.push_back(model.words(*broken));
        break;
      }
      if (own == 0) {
        ++outcome.ends;
        if (const char* wrong = model.at_end(state)) {
          outcome.violation = wrong;
          tell(number);
          break;
        }
      }
      ++number;
    }
    if (outcome.violation.empty()) ++outcome.longest;
    layer.swap(next_layer);
  }
  outcome.states = parents.size();
  outcome.complete = outcome.violation.empty() && layer.empty();

  if (outcome.complete) {  // states without a step are taken away until none is left, or a cycle
    std::vector<uint32_t> out(parents.size());
    std::vector<uint64_t> in_first(parents.size() + 1);
    for (const uint32_t target : targets) ++in_first[target + 1];
    for (size_t i = 0; i < parents.size(); ++i) in_first[i + 1] += in_first[i];
    std::vector<uint32_t> sources(targets.size());
    {
      std::vector<uint64_t> at(in_first.begin(), in_first.end() - 1);
      for (uint32_t state = 0; state < parents.size(); ++state)
        for (uint64_t i = first_of[state]; i < first_of[state + 1]; ++i) sources[at[targets[i]]++] = state;
    }
    std::vector<uint32_t> ready;
    for (uint32_t state = 0; state < parents.size(); ++state)
      if ((out[state] = uint32_t(first_of[state + 1] - first_of[state])) == 0) ready.push_back(state);
    uint64_t taken = 0;
    while (!ready.empty()) {
      const uint32_t state = ready.back();
      ready.pop_back();
      ++taken;
      for (uint64_t i = in_first[state]; i < in_first[state + 1]; ++i)
        if (--out[sources[i]] == 0) ready.push_back(sources[i]);
    }
    if (taken != parents.size()) {
      outcome.violation = "a run that goes on for ever";
      for (uint32_t state = 0; state < parents.size(); ++state)
        if (out[state] != 0) {
          tell(state);
          break;
        }
    }
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return outcome;
}

}  // namespace r2ccl::model
