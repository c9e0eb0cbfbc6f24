// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/lockstep.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace r2ccl::collective {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

template <typename F>
void for_each_bit(uint64_t bits, F f) {
  for (; bits != 0; bits &= bits - 1) f(static_cast<uint16_t>(std::countr_zero(bits)));
}

constexpr uint64_t bit(uint16_t number) { return uint64_t{1} << number; }

}  // namespace

uint16_t Lockstep::add_port(double capacity) {
  ports_.push_back(capacity);
  return static_cast<uint16_t>(ports_.size() - 1);
}

uint16_t Lockstep::add_flow(const Flow& flow) {
  flows_.push_back(flow);
  return static_cast<uint16_t>(flows_.size() - 1);
}

/// Progressive filling: the port that is full first fixes the rates of its connections.
const std::vector<double>& Lockstep::rates() {
  const auto [at, added] = rates_.try_emplace(sending_);
  std::vector<double>& rates = at->second;
  if (!added) return rates;
  rates.assign(flows_.size(), 0);
  std::vector<double> left = ports_, weight(ports_.size());
  uint64_t open = sending_;
  while (open != 0) {
    std::fill(weight.begin(), weight.end(), 0);
    double level = kForever;
    for_each_bit(open, [&](uint16_t i) {
      for (const Use& use : flows_[i].ports) weight[use.port] += flows_[i].weight * use.connections;
      if (flows_[i].most > 0) level = std::min(level, flows_[i].most / flows_[i].weight);
    });
    for (size_t port = 0; port < left.size(); ++port)
      if (weight[port] > 0) level = std::min(level, left[port] / weight[port]);
    const double full = level * (1 + 1e-9);
    uint64_t fixed = 0;
    for_each_bit(open, [&](uint16_t i) {
      bool is = flows_[i].most > 0 && flows_[i].most / flows_[i].weight <= full;
      for (const Use& use : flows_[i].ports) is = is || left[use.port] <= full * weight[use.port];
      if (is) fixed |= bit(i);
    });
    if (fixed == 0) break;  // numbers that cannot be told from 0: what is left never ends
    for_each_bit(fixed, [&](uint16_t i) {
      rates[i] = level * flows_[i].weight;
      for (const Use& use : flows_[i].ports)
        left[use.port] = std::max(0.0, left[use.port] - rates[i] * use.connections);
    });
    open &= ~fixed;
  }
  return rates;
}

bool Lockstep::waits(const Lane& lane, const std::array<After, 2>& after) const {
  for (const After& wait : after) {
    if (wait.lane == kNoLane || lane.op < wait.first || lane.op >= wait.last) continue;
    const uint64_t ops = flows_[wait.lane / 2].ops;
    const auto op = static_cast<uint64_t>(static_cast<int64_t>(lane.op) - wait.back);
    if (lanes_[wait.lane].done <= lane.segment * ops + op) return true;
  }
  return false;
}

void Lockstep::move_on(uint16_t number) {
  Lane& lane = lanes_[number];
  if (++lane.op == flows_[number / 2].ops) lane.op = 0, ++lane.segment;
  ready_ |= bit(number);
}

void Lockstep::done(uint16_t number) {
  ++lanes_[number].done;
  ready_ |= lanes_[number].dependents;
}

void Lockstep::sent(uint16_t flow) {
  states_[flow].arrivals.push(now_ + latency_);
  travelling_ |= bit(flow);
  move_on(send_lane(flow));
  if (back_ > 0) {
    states_[flow].known.push(now_ + latency_ + back_);
  } else {
    done(send_lane(flow));
  }
}

void Lockstep::taken(uint16_t flow) {
  State& state = states_[flow];
  --state.arrived;
  move_on(receive_lane(flow));
  done(receive_lane(flow));
  if (back_ > 0) {
    state.freed.push(now_ + back_);
    travelling_ |= bit(flow);
  } else {
    freed(flow);
  }
}

void Lockstep::freed(uint16_t flow) {
  --states_[flow].outstanding;
  ready_ |= bit(send_lane(flow));
}

/// Starts the lane's next operation, if nothing holds it back.
void Lockstep::look_at(uint16_t number) {
  const auto i = static_cast<uint16_t>(number / 2);
  const Flow& flow = flows_[i];
  State& state = states_[i];
  const Lane& lane = lanes_[number];
  if (lane.segment == flow.segments) return;
  if (number % 2 == 0) {
    if ((sending_ & bit(i)) != 0 || state.outstanding >= flow.credits || waits(lane, flow.send_after)) return;
    ++state.outstanding;
    state.remaining = flow.chunk + std::exchange(state.debt, 0);
    sending_ |= bit(i);
    return;
  }
  if ((adding_ & bit(i)) != 0 || state.arrived == 0 || waits(lane, flow.receive_after)) return;
  if (flow.addition > 0 && lane.op < flow.added) {
    double& free = adder_free_[flow.adder];
    free = std::max(free, now_) + flow.addition;
    state.added_at = free;
    adding_ |= bit(i);
    return;
  }
  taken(i);
}

double Lockstep::next_moment(const std::vector<double>& rates) const {
  double next = kForever;
  for_each_bit(sending_, [&](uint16_t i) {
    if (rates[i] > 0) next = std::min(next, now_ + states_[i].remaining / rates[i]);
  });
  for_each_bit(travelling_, [&](uint16_t i) {
    for (const Moments* moments : {&states_[i].arrivals, &states_[i].known, &states_[i].freed})
      if (moments->size > 0) next = std::min(next, moments->next());
  });
  for_each_bit(adding_, [&](uint16_t i) { next = std::min(next, states_[i].added_at); });
  return next;
}

double Lockstep::run() {
  now_ = back_;  // receives are known
  adder_free_.fill(0);
  sending_ = adding_ = travelling_ = ready_ = 0;
  lanes_.assign(2 * flows_.size(), {});
  states_.assign(flows_.size(), {});
  rates_.clear();
  for (uint16_t i = 0; i < flows_.size(); ++i) {
    if (flows_.size() > kMostFlows || flows_[i].credits > kMostCredits) return kForever;
    for (const After& wait : flows_[i].send_after)
      if (wait.lane != kNoLane) lanes_[wait.lane].dependents |= bit(send_lane(i));
    for (const After& wait : flows_[i].receive_after)
      if (wait.lane != kNoLane) lanes_[wait.lane].dependents |= bit(receive_lane(i));
    ready_ |= bit(send_lane(i));
  }
  for (;;) {
    while (ready_ != 0) {
      const auto lane = static_cast<uint16_t>(std::countr_zero(ready_));
      ready_ &= ~bit(lane);
      look_at(lane);
    }
    if ((sending_ | adding_ | travelling_) == 0) break;
    const std::vector<double>& rate = rates();
    const double next = next_moment(rate);
    if (next == kForever) return kForever;
    const double before = std::exchange(now_, next);
    for_each_bit(sending_, [&](uint16_t i) {
      State& state = states_[i];
      const double ends = before + (state.remaining - kSameMoment * flows_[i].chunk) / rate[i];
      state.remaining -= rate[i] * (next - before);
      if (!(ends <= next)) return;
      state.debt = std::max(0.0, state.remaining);
      sending_ &= ~bit(i);
      sent(i);
    });
    for_each_bit(travelling_, [&](uint16_t i) {
      State& state = states_[i];
      const auto each = [&](Moments& moments, auto then) {
        for (; moments.size > 0 && moments.next() <= now_; moments.pop()) then();
      };
      each(state.arrivals, [&] { ++state.arrived, ready_ |= bit(receive_lane(i)); });
      each(state.known, [&] { done(send_lane(i)); });
      each(state.freed, [&] { freed(i); });
      if (state.arrivals.size + state.known.size + state.freed.size == 0) travelling_ &= ~bit(i);
    });
    for_each_bit(adding_, [&](uint16_t i) {
      if (states_[i].added_at > now_) return;
      adding_ &= ~bit(i);
      taken(i);
    });
  }
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    if (lanes_[lane].segment != flows_[lane / 2].segments) return kForever;
  return now_;
}

}  // namespace r2ccl::collective
