// SPDX-License-Identifier: Apache-2.0
// How long operations take that queue for the ports, and chunks for the NICs.
#include <algorithm>

#include "r2ccl/collective/predictor.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

/// Mean value analysis of a closed network (Reiser and Lavenberg, JACM 1980): the time for each of
/// `customers` that go around between `stations`, where they need `busy` in all at each, and elsewhere, where
/// they spend `away` without being in each other's way.
double closed_network(double busy, double stations, double away, uint32_t customers) {
  if (!(stations * busy + away > 0)) return 0;
  double queue = 0, each = 0;
  for (uint32_t n = 1; n <= customers; ++n) {
    const double at_stations = stations * busy * (1 + queue);
    each = (at_stations + away) / n;
    queue = at_stations / (each * stations);
  }
  return each;
}

}  // namespace

double messages_in_turn(const Job& job, double chunk) {
  // Messages are one and a half times as large as the least one, on average.
  constexpr double kMessage = 1.5 * kLeastMessage, kOfEachNic = 1.5 * 10 / kLeastChunkTenths;
  const double all = kOfEachNic * static_cast<double>(job.least_chunk_bytes);
  if (all <= 0 || job.bytes == 0) return 1;
  return std::clamp(all / (chunk * static_cast<double>(job.bytes)), 1.0, std::max(1.0, all / kMessage));
}

Queued queued_seconds(const Candidate& candidate, uint32_t in_flight, uint32_t beside) {
  const double busy = std::max(candidate.transfer_s, candidate.reduction_s);
  return {closed_network(busy, candidate.in_turn, candidate.waits_s, beside),
          closed_network(busy, candidate.in_turn, candidate.latencies_s, in_flight)};
}

}  // namespace r2ccl::collective
