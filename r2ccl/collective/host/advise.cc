// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/advise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/predictor.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

/// What a step costs besides its bytes: two completions, a post, and the wait for somebody's turn to poll.
constexpr double kLatencySeconds = 80e-6;
/// A node that carries nothing at all is not slow but gone; until the core says so it counts as this.
constexpr double kLeastCapacity = 0.01;
/// Predictions are not better than that.
constexpr double kLeastGain = 0.03;
/// A node with less than this counts as degraded.
constexpr double kHealthy = 0.97;
/// By about what predictions are too low: if several nodes are degraded and one has lost half of its NICs or
/// more, and there are few pieces; …
constexpr double kSeveralLeaves = 1.12, kAboutHalf = 0.55;
/// … and if all nodes but one are leaves, and it is not known which NICs they have lost, so that the planner
/// cannot count them: NICs of the one owner whose rails no leaf has are idle.
constexpr double kOneOwner = 1.45;
/// What predictions may be too low by, and the latency, in parts of the time of a piece, up to which those for
/// one degraded node are not.
constexpr double kDefaultMargin = 1.08, kShortLatency = 0.1;
constexpr uint32_t kMostSegments = 64;
/// Smaller chunks cost more in messages than they save in fill.
constexpr uint64_t kLeastChunk = 128 << 10;
// NCCL's: COLLNET_GROUP_NSUBS, whose chunks are one call, and a channel's least part.
constexpr uint64_t kMostPieceChannels = 8;
constexpr uint64_t kLeastPerChannel = 64 << 10;

/// How long `pieces` operations take one behind the other, each after `plan`, as the simulated ports of
/// advise_time_test show it. Besides their own time there are one fill, and the time of one operation if
/// there are several: where the stream begins and ends, operations beside each other share the ports. Rings
/// hide all other fills, since a port always has chunks of other operations to send. Other schedules, in
/// which data goes there and back, hide as much as the plan says, if that is less. Those that queue take all
/// latencies of one operation first; where only so many operations in flight are the limit, each of the
/// others follows one that is done.
double stream_seconds(const Candidate& plan, uint64_t pieces, uint32_t outstanding) {
  const auto in_flight = static_cast<uint32_t>(std::clamp<uint64_t>(pieces, 1, outstanding));
  const double beside = std::min(in_flight, plan.beside), n = static_cast<double>(pieces);
  const double busy = std::max(plan.transfer_s, plan.reduction_s);
  const double steps = plan.steps_s * plan.beside / beside;
  if (!queues(plan.algorithm) || pieces == 1) {
    const double each = std::max(busy, steps), seconds = (pieces > 1 ? n + 1 : n) * each + plan.fill_s;
    const bool rings = plan.algorithm == Algorithm::kRing || plan.algorithm == Algorithm::kUnequalRing;
    return rings ? seconds : std::max(seconds, n * each + plan.fill_s * (1 + (n - 1) / (in_flight * beside)));
  }
  const auto [each, each_alone] = queued_seconds(plan, in_flight, static_cast<uint32_t>(beside));
  return std::max({(beside + 1) * busy + std::max(plan.fill_s, plan.latencies_s) + (n - beside) * each,
                   busy + plan.latencies_s + (n - in_flight) * each_alone,
                   pieces <= in_flight ? 0 : n * busy + plan.fill_s * (1 + (n - 1) / (in_flight * beside))});
}

std::string text(const char* format, double a, double b = 0) {
  char line[160];
  std::snprintf(line, sizeof line, format, a, b);
  return line;
}

/// Job::most_ends of a group of that many NICs per node: at least 1, as 0 is no limit.
uint32_t most_ends_of(size_t rails) {
  return std::max(1u, kMostChannels / static_cast<uint32_t>(std::max<size_t>(1, rails)));
}

}  // namespace

void set_stream(Job& job, uint32_t outstanding, size_t rails) {
  job.outstanding = outstanding;
  job.beside = std::min(outstanding, kMostSlots);
  job.most_ends = most_ends_of(rails);
}

Job job_of(std::span<const double> capacities, uint64_t bytes, uint32_t outstanding, const Speeds& speeds,
           std::span<const double> nics) {
  Job job;
  for (const double capacity : capacities) job.capacities.push_back(std::max(capacity, kLeastCapacity));
  job.bytes = bytes;
  job.bytes_per_second = speeds.bytes_per_second;
  job.reduce_bytes_per_second = speeds.reduce_bytes_per_second;
  job.latency_s = job.back_s = kLatencySeconds;
  set_stream(job, outstanding, speeds.rails);
  if (nics.size() == capacities.size() * speeds.rails) job.nics.assign(nics.begin(), nics.end());
  if (speeds.rails > 1) job.least_chunk_bytes = speeds.rails * kLeastMessage * kLeastChunkTenths / 10;
  job.direct = false;
  const uint64_t chunks = bytes / kLeastChunk / std::max<uint64_t>(1, capacities.size());
  while (job.most_segments > std::clamp<uint64_t>(chunks, 1, kMostSegments)) job.most_segments /= 2;
  return job;
}

uint64_t piece_of_operation(uint64_t bytes, uint64_t step_bytes) {
  const uint64_t channels = std::clamp<uint64_t>(bytes / kLeastPerChannel, 1, kMostPieceChannels);
  uint64_t chunk = step_bytes;
  const auto halve_below = [&](uint64_t chunks, uint64_t least) {
    while (bytes / (channels * chunk) < chunks && chunk > least) chunk /= 2;
  };
  halve_below(64, 128 << 10);
  halve_below(8, 64 << 10);
  halve_below(1, 32 << 10);
  return channels * chunk;
}

uint64_t planned_bytes(uint64_t bytes) {
  if (bytes <= 4) return bytes;
  const uint64_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

uint32_t slots_for(size_t lanes, size_t rails) {
  return beside_within(kMostSlots, static_cast<uint32_t>(lanes), most_ends_of(rails));
}

size_t window_for(const Speeds& speeds, size_t rails) {
  const size_t queued = std::max(size_t{1} << 20, rails << 18);
  return queued + static_cast<size_t>(3 * kLatencySeconds * speeds.bytes_per_second);
}

uint32_t outstanding_for(uint64_t bytes) {
  return bytes >= kLargestPiece / 8 && bytes <= kLargestPiece ? kPiecesInFlight : 1;
}

namespace {

size_t degraded_of(std::span<const double> capacities) {
  const double most = *std::max_element(capacities.begin(), capacities.end());
  return static_cast<size_t>(
      std::count_if(capacities.begin(), capacities.end(), [&](double c) { return c < kHealthy * most; }));
}

/// How much longer the plan is predicted to take because neighbours lack common rails.
double predicted_slow_hops(const Job& job, const Candidate& plan) {
  if (plan.narrow <= 1) return 1;
  Candidate swift = plan;
  swift.narrow = 1;
  return plan.seconds / predict(job, swift, plan.segments).seconds;
}

double too_low_by(const Job& job, const Candidate& plan, std::span<const double> nics) {
  const std::span<const double> capacities = job.capacities;
  const size_t nodes = capacities.size(), degraded = degraded_of(capacities);
  if (degraded < 2) return 1;
  const auto [least, most] = std::minmax_element(capacities.begin(), capacities.end());
  const bool half = *least < kAboutHalf * *most;
  const double few_pieces = half ? std::max(1.0, kSeveralLeaves / predicted_slow_hops(job, plan)) : 1;
  if (plan.rails > 0) return few_pieces * plan.allowance;
  // The planner plans by capacities alone: all have lost the same NICs, or two nodes have none in common.
  if (!nics.empty() && nodes <= kMostNodesByRails)
    return few_pieces * rails_need(build(job, plan), nics, nics.size() / nodes);
  const size_t leaves = plan.algorithm == Algorithm::kFourStage ? plan.leaves : degraded;
  return leaves + 1 == nodes ? kOneOwner : few_pieces;
}

}  // namespace

double margin_of(std::span<const double> capacities, uint64_t piece, const Speeds& speeds) {
  const bool exact =
      degraded_of(capacities) == 1 &&
      kLatencySeconds * speeds.bytes_per_second <= kShortLatency * static_cast<double>(piece);
  return exact ? 1 : kDefaultMargin;
}

double ring_seconds(std::span<const double> capacities, uint64_t bytes, const Speeds& speeds) {
  const double least = std::max(*std::min_element(capacities.begin(), capacities.end()), kLeastCapacity);
  return ring_volume(capacities.size()) / least * static_cast<double>(bytes) / speeds.bytes_per_second +
         2 * (static_cast<double>(capacities.size()) - 1) * kLatencySeconds;
}

bool any_degraded(std::span<const double> capacities) {
  return std::any_of(capacities.begin(), capacities.end(), [](double c) { return !(c > kHealthy); });
}

EngineAdvice advise(std::span<const double> capacities, uint64_t bytes, const Speeds& speeds,
                    std::span<const double> nics, double engine_pace) {
  EngineAdvice advice;
  if (capacities.size() < 2 || !any_degraded(capacities)) {
    advice.why = "all nodes have their full capacity: NCCL's ring";
    return advice;
  }
  const uint64_t piece = piece_of_operation(bytes);
  const uint64_t pieces = (bytes + piece - 1) / piece, planned_for = planned_bytes(piece);
  const Job job = job_of(capacities, planned_for, outstanding_for(planned_for), speeds, nics);
  advice.ring_seconds = ring_seconds(capacities, bytes, speeds);
  if (bytes < kSmallOperation) {
    advice.predicted_seconds = advice.engine_seconds = advice.ring_seconds;
    advice.why = "less than " + std::to_string(kSmallOperation >> 10) + " KiB: NCCL's ring";
    return advice;
  }
  auto planned = plan(job);
  if (!planned) {
    advice.why = planned.error().message;
    return advice;
  }
  const Candidate& best = planned->choice();
  advice.predicted_seconds = stream_seconds(best, pieces, job.outstanding);
  const bool ring = best.algorithm == Algorithm::kRing;
  const double margin = speeds.margin > 0 ? speeds.margin : margin_of(capacities, piece, speeds);
  const double most = advice.ring_seconds * (1 - kLeastGain) / margin;
  // What costs time to find out only matters where the engine would be taken without it.
  const double at_pace = advice.predicted_seconds / engine_pace;
  const double too_low = !ring && at_pace < most ? too_low_by(job, best, nics) : 1;
  advice.engine_seconds = margin * too_low * at_pace;
  advice.engine = !ring && advice.engine_seconds < advice.ring_seconds * (1 - kLeastGain);
  const bool additions = best.reduction_s > std::max(best.transfer_s, best.steps_s);
  const std::string times = text("%.3g ms, NCCL's ring under Balance %.3g ms", advice.engine_seconds * 1e3,
                                 advice.ring_seconds * 1e3);
  advice.why = std::string(name(best.algorithm)) + " on the host would take " + times;
  if (advice.engine) return advice;
  if (!ring && advice.predicted_seconds < advice.ring_seconds)
    advice.why += text(", R2CC_COLLNET_MARGIN=%.0f included", margin * 100) +
                  (std::isinf(too_low) ? ", and two nodes have lost all rails in common"
                   : too_low > 1       ? text(", and %.0f %% for several degraded nodes", too_low * 100 - 100)
                                       : "");
  if (!ring && engine_pace < 1)
    return advice.why +=
           text(": it takes %.2f times as long as predicted, for lack of CPUs", 1 / engine_pace),
           advice;
  advice.why += additions ? text(": the CPU adds %.3g GB/s only", speeds.reduce_bytes_per_second / 1e9)
                : ring    ? ": the engine's ring is no better than NCCL's"
                          : ": too little is gained";
  return advice;
}

}  // namespace r2ccl::collective
