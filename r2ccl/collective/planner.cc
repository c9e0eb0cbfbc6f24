// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "r2ccl/collective/predictor.h"
#include "r2ccl/collective/rail_load.h"
#include "r2ccl/collective/rail_plans.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

std::string number(double value, const char* format = "%.3g") {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string nodes_in_words(const Job& job) {
  const double best = *std::max_element(job.capacities.begin(), job.capacities.end());
  std::string text;
  size_t degraded = 0;
  for (size_t i = 0; i < job.capacities.size(); ++i) {
    if (job.capacities[i] >= best * 0.99) continue;
    if (++degraded <= 4) {
      text += (text.empty() ? "node " : ", node ") + std::to_string(i) + " at " +
              number(100 * job.capacities[i] / best) + " %";
    }
  }
  if (degraded > 4) text += " and " + std::to_string(degraded - 4) + " more";
  return degraded == 0 ? "all nodes of the same capacity" : text;
}

/// What takes the time. Where that is more than a port or the additions need: the chunks or the channels, if
/// most of the rest would be saved without them, else latency.
const char* limit_of(const Job& job, const Candidate& best) {
  constexpr double kNearly = 1.05;
  const double steps = std::max(best.steps_s, best.queued_s),
               busy = std::max(best.transfer_s, best.reduction_s);
  if (best.reduction_s > best.transfer_s && 2 * best.reduction_s > steps) return "the additions";
  if (best.transfer_s < job.latency_s) return "latency";
  if (steps <= busy * kNearly) return "the busiest port";
  if (best.steps_s >= best.queued_s) return "latency";
  const auto saves_most = [&](const Candidate& other, uint32_t beside) {
    return queued_seconds(other, job.outstanding, beside).most() < (steps + busy) / 2;
  };
  Candidate all_nics = best;
  all_nics.in_turn = 1;
  if (saves_most(all_nics, best.beside)) return "chunks that have no message for every NIC";
  if (saves_most(best, job.outstanding)) return "operations that wait for each other's channels";
  return "latency";
}

std::string reason(const Job& job, const Plan& plan) {
  constexpr double kMoreThanPorts = 1.01;
  const Candidate& best = plan.choice();
  const Candidate& ring = plan.candidates[0];
  std::string text = "With " + nodes_in_words(job) + ", " + name(best.algorithm);
  if (best.algorithm == Algorithm::kRing) {
    const bool faster = std::any_of(
        plan.candidates.begin(), plan.candidates.end(),
        [&](const Candidate& other) { return other.eligible && other.seconds < best.seconds * (1 - 1e-9); });
    text += best.steps_s > best.transfer_s ? " waits for latencies" : " is as fast as its slowest port";
    text += faster ? ", and what is faster gains too little"
                   : ", and no other schedule that may be taken is faster";
  } else {
    text += " takes " + number(100 * (1 - best.seconds / ring.seconds)) + " % less time than the ring (" +
            number(ring.seconds / best.seconds, "%.2f") + " ×)";
    if (best.algorithm == Algorithm::kDoubleTree && ring.rails <= kMoreThanPorts)
      text += ": " + std::string("latency decides, and a tree is log2(p) deep");
    if (best.algorithm == Algorithm::kMix || best.algorithm == Algorithm::kFourStage) {
      text += std::string(": its leaves (") + (best.parts.empty() ? "the weakest" : "degraded") +
              " nodes) send and receive the data once, a ring's nodes " +
              number(ring_volume(job.capacities.size())) + " times";
    }
    if (best.algorithm == Algorithm::kDirect)
      text += ": each node sends its data to the owners of the chunks, and the weakest nodes own the least";
  }
  if (ring.rails > kMoreThanPorts)
    text += ". Nodes have lost different NICs: the busiest one needs " + number(best.rails, "%.2f") +
            " × what its node's NICs need together, in a ring " + number(ring.rails, "%.2f") + " ×";
  return text + ". It is limited by " + limit_of(job, best) + ", and takes " +
         number(best.seconds / plan.bound_s, "%.3f") + " × the lower bound.";
}

/// What a less simple algorithm must gain. In a stream each further lane costs something that is not
/// predicted: messages of its own, and turns of the thread that sends them.
double gain_of(const Job& job) { return job.outstanding > 1 ? 1e-2 : 1e-3; }
/// Direct has the most lanes.
constexpr double kDirectGain = 1e-2;
/// What twice as many segments must gain: half of the above. A mix with one leaf needs more: its chunks are
/// the smallest, and while one of its parts fills its pipeline, the others use the ports.
double segments_gain_of(const Job& job, const Candidate& of) {
  constexpr double kOfMix = 1.2e-2;
  return job.outstanding > 1 && of.algorithm == Algorithm::kMix && of.leaves < 2 ? kOfMix : gain_of(job) / 2;
}

/// In a stream a schedule that needs more than one and a half times Job::most_ends is compared as if it took
/// so many times as long: the thread looks at all of them in each of its turns. Eight processes with eight
/// NICs each, one of them lost, took longer with the mix of which 3 % less was predicted than with the
/// unequal ring (mode3_channels_512 and _192 in results/). With gain_of() such a schedule must gain 4 %.
constexpr double kManyEnds = 1.03;
double cost_of_ends(const Job& job, const Candidate& of) {
  const bool many = job.outstanding > 1 && job.most_ends > 0 && 2 * of.lanes * of.beside > 3 * job.most_ends;
  return many ? kManyEnds : 1;
}

bool has_direct_chunks(const Job& job, uint32_t segments) {
  return job.bytes >= kLeastDirectChunk * job.capacities.size() * kBuilderDepth * segments;
}
/// Direct is for single operations of degraded nodes: in a stream other operations use the ports during a
/// latency.
bool may_take(const Job& job, const Candidate& candidate) {
  if (candidate.algorithm != Algorithm::kDirect) return true;
  const auto [least, most] = std::minmax_element(job.capacities.begin(), job.capacities.end());
  return job.direct && job.outstanding < 2 && *least < *most * (1 - kSameLevel) &&
         (job.most_ends == 0 || candidate.lanes <= job.most_ends) &&
         has_direct_chunks(job, candidate.segments);
}

double compared(const Job& job, const Candidate& of) {
  return of.seconds * of.allowance * cost_of_ends(job, of);
}

/// Predictions of an operation that is alone, of whose candidates only the least times are known as yet: in
/// their order, until the next one is slower for certain.
std::vector<Candidate> contenders(const Job& job, std::vector<Candidate> least) {
  std::stable_sort(least.begin(), least.end(), [&](const Candidate& a, const Candidate& b) {
    return compared(job, a) < compared(job, b);
  });
  std::vector<Candidate> whole;
  double best = INFINITY;
  for (const Candidate& of : least) {
    if (compared(job, of) > best * (1 + gain_of(job))) break;
    whole.push_back(predict(job, of, of.segments));
    best = std::min(best, compared(job, whole.back()));
  }
  return whole;
}

/// What is to be predicted of an algorithm: those of `shapes` (rail_plans.h); if it has none, four-stage with
/// each number of leaves, and of the others what capacities say.
std::vector<Candidate> shapes_of(Algorithm algorithm, const Job& job, const std::vector<Candidate>& shapes) {
  std::vector<Candidate> result;
  std::copy_if(shapes.begin(), shapes.end(), std::back_inserter(result),
               [&](const Candidate& shape) { return shape.algorithm == algorithm; });
  if (!result.empty()) return result;
  Candidate shape;
  shape.algorithm = algorithm;
  if (algorithm != Algorithm::kFourStage) return {shape};
  std::vector<double> sorted = job.capacities;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t leaves = 1; leaves < sorted.size(); ++leaves) {
    // Only between nodes that differ: else which is a leaf would be chance.
    shape.leaves = leaves;
    if (sorted[leaves] > sorted[leaves - 1] || (leaves == 1 && sorted.front() >= sorted.back()))
      result.push_back(shape);
  }
  return result;
}

/// The fastest of an algorithm's candidates: each number of segments that is a power of two below the most,
/// each of its shapes.
Candidate best_of(Algorithm algorithm, const Job& job, const std::vector<Candidate>& shapes) {
  const bool alone = job.outstanding < 2;
  std::vector<Candidate> all;
  const auto consider = [&](uint32_t k, const Candidate& shape) {
    const Candidate candidate = predict(job, shape, k, alone);
    const double chunk = candidate.least_chunk * static_cast<double>(job.bytes);
    if (k > 1 && chunk > 0 && chunk < static_cast<double>(job.least_chunk_bytes)) return;
    all.push_back(candidate);
  };
  const std::vector<Candidate> tried = shapes_of(algorithm, job, shapes);
  for (uint32_t k = job.most_segments;; k /= 2) {
    for (const Candidate& shape : tried) consider(k, shape);
    if (k == 1) break;
  }
  if (alone) all = contenders(job, std::move(all));
  // Fill counts in full here: it is what more segments reduce.
  const auto seconds = [&](const Candidate& of) {
    if (alone) return compared(job, of);
    return of.allowance * cost_of_ends(job, of) *
           (std::max({of.transfer_s, of.reduction_s, of.steps_s, of.queued_s}) +
            of.fill_s / (static_cast<double>(job.outstanding) * of.beside));
  };
  const auto faster = [&](const Candidate& a, const Candidate& b) {
    return seconds(a) < seconds(b) * (1 - 1e-9);
  };
  Candidate best = *std::min_element(all.begin(), all.end(), faster);
  // No more segments than gain something.
  const double enough = seconds(best) * (1 + segments_gain_of(job, best));
  for (const Candidate& candidate : all)
    if (seconds(candidate) < enough && (candidate.segments < best.segments || faster(candidate, best)))
      best = candidate;
  return best;
}

Candidate best_direct(Job job, const std::vector<Candidate>& shapes) {
  while (job.most_segments > 1 && !has_direct_chunks(job, job.most_segments)) job.most_segments /= 2;
  return best_of(Algorithm::kDirect, job, shapes);
}

void choose(const Job& job, Plan& plan) {
  plan.chosen = 0;
  for (size_t i = 1; i < plan.candidates.size(); ++i) {
    // What comes first in the list is the simpler one and stays where another gains nothing.
    Candidate& other = plan.candidates[i];
    other.eligible = may_take(job, other);
    const double gain = other.algorithm == Algorithm::kDirect ? kDirectGain : gain_of(job);
    if (other.eligible && compared(job, other) < compared(job, plan.choice()) * (1 - gain)) plan.chosen = i;
  }
}

/// Limits are counted node by node (rail_load.h). Can the traffic of the choice be divided among the rails so
/// that no NIC needs more? Then the choice has what it needs; else its shape has.
bool rails_are_right(const Job& job, Candidate& choice, std::vector<Candidate>& shapes) {
  constexpr double kRight = 1.01;
  const size_t nodes = job.capacities.size();
  if (choice.rails <= 0 || !choice.has_common_rails() || nodes > kMostNodesByRails) return true;
  Candidate flat = choice;
  flat.segments = 1;
  const double need = rails_need(build(job, flat), job.nics, job.nics.size() / nodes);
  if (need <= choice.rails * kRight) {
    if (need > choice.rails) {
      flat.rails = need;
      choice = predict(job, flat, choice.segments);
    }
    return true;
  }
  for (Candidate& shape : shapes)
    if (shape.algorithm == choice.algorithm && shape.parts == choice.parts && shape.order == choice.order)
      shape.rails = need;
  return false;
}

}  // namespace

bool Candidate::has_common_rails() const { return rails < RailLimits::kNoCommonRail; }

const char* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kUnequalRing:
      return "unequal_ring";
    case Algorithm::kDoubleTree:
      return "double_tree";
    case Algorithm::kR2cclAllReduce:
      return "r2ccl_allreduce";
    case Algorithm::kFourStage:
      return "four_stage";
    case Algorithm::kMix:
      return "mix";
    case Algorithm::kDirect:
      return "direct";
  }
  return "";
}

Result<Plan> plan(const Job& job) {
  if (job.capacities.size() < 2) return Error{ErrorCode::kInvalidArgument, "a plan needs at least two nodes"};
  for (const double capacity : job.capacities) {
    if (!(capacity > 0) || !std::isfinite(capacity)) {
      return Error{ErrorCode::kInvalidArgument,
                   "every capacity must be above 0: leave out nodes that carry no traffic"};
    }
  }
  if (!(job.bytes_per_second > 0) || job.most_segments == 0) {
    return Error{ErrorCode::kInvalidArgument, "the rate and the number of segments must be above 0"};
  }
  Plan plan;
  plan.bound_s = allreduce_bound(job.capacities) * static_cast<double>(job.bytes) / job.bytes_per_second;
  std::vector<Candidate> shapes = shapes_by_rails(job);
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kUnequalRing, Algorithm::kDoubleTree,
                                    Algorithm::kR2cclAllReduce, Algorithm::kFourStage, Algorithm::kMix})
    plan.candidates.push_back(best_of(algorithm, job, shapes));
  if (job.capacities.size() <= kMostDirectNodes) plan.candidates.push_back(best_direct(job, shapes));
  choose(job, plan);
  while (!rails_are_right(job, plan.candidates[plan.chosen], shapes)) {
    Candidate& chosen = plan.candidates[plan.chosen];
    chosen = chosen.algorithm == Algorithm::kDirect ? best_direct(job, shapes)
                                                    : best_of(chosen.algorithm, job, shapes);
    choose(job, plan);
  }
  if (!shapes.empty() && !plan.choice().has_common_rails()) {
    // Whatever is done: Balance finds a way, which none of the limits knows.
    Job unknown = job;
    unknown.nics.clear();
    return collective::plan(unknown);
  }
  plan.why = reason(job, plan);
  return plan;
}

const Candidate* candidate_of(const Plan& plan, std::string_view algorithm) {
  for (const Candidate& candidate : plan.candidates)
    if (algorithm == name(candidate.algorithm)) return &candidate;
  return nullptr;
}

Schedule build(const Job& job, const Candidate& candidate) {
  const auto nodes = static_cast<uint32_t>(job.capacities.size());
  const Ranks order = candidate.order.empty() ? natural_order(nodes) : candidate.order;
  switch (candidate.algorithm) {
    case Algorithm::kRing:
      break;
    case Algorithm::kUnequalRing:
      return unequal_ring_allreduce(order, unequal_ring(job.capacities).in_order(order), candidate.segments);
    case Algorithm::kDoubleTree:
      return double_tree_allreduce(nodes, candidate.segments);
    case Algorithm::kR2cclAllReduce:
      return r2ccl_allreduce(nodes, r2ccl_rings(job.capacities, candidate.segments).rings,
                             candidate.segments);
    case Algorithm::kFourStage: {
      if (!candidate.parts.empty()) {
        const MixPart& only = candidate.parts.front();
        return four_stage_allreduce(only.owners, only.leaves, candidate.segments);
      }
      const Ranks weakest = by_capacity(job.capacities);
      Ranks owners(weakest.begin() + candidate.leaves, weakest.end());
      std::sort(owners.begin(), owners.end());
      return four_stage_allreduce(owners, Ranks(weakest.begin(), weakest.begin() + candidate.leaves),
                                  candidate.segments);
    }
    case Algorithm::kMix:
      return mix_allreduce(nodes,
                           candidate.parts.empty() ? mix_fractions(job.capacities).parts : candidate.parts,
                           candidate.segments);
    case Algorithm::kDirect:
      return direct_allreduce(direct_shares(job.capacities).shares, candidate.segments, kBuilderDepth);
  }
  return ring_allreduce(order, candidate.segments, kBuilderDepth);
}

}  // namespace r2ccl::collective
