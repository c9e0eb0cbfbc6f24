// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/balance/meter.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace r2ccl::balance {

Capacities::Capacities(std::span<const double> nominal) : count_(std::min(nominal.size(), kMaxNics)) {
  for (size_t nic = 0; nic < count_; ++nic) nics_[nic].nominal = nominal[nic];
}

Capacities::Span Capacities::since(const Nic& nic, const NicMeter::Reading& reading) {
  if (!nic.known || reading.last_done <= nic.from.last_done) return {};
  const uint64_t span = reading.last_done - nic.from.last_done;
  return {reading.bytes - nic.from.bytes, reading.work - nic.from.work,
          reading.completions - nic.from.completions,
          span - std::min(span, reading.idle_ns - nic.from.idle_ns), reading.depth - nic.from.depth};
}

/// What an interval has shown of each NIC; 0 where one did too little to tell.
struct Capacities::Interval {
  std::array<double, kMaxNics> carried{}, rate{}, busy{}, parts{}, depth{}, most{}, byte_waits{}, write_waits{};
  std::vector<double> rates, whole_rates, well_busy;  // of those that did enough
  double most_busy = 0, all_depths = 0, all_bytes = 0;

  bool comparable() const { return rates.size() >= 2; }
  double relative(size_t nic, double others, double whole_others) const {
    if (others <= 0 || rate[nic] <= 0) return 0;
    return std::min(1.0, std::max(rate[nic] / others, rate[nic] / parts[nic] / whole_others));
  }
};

/// A plan has each NIC carry its part of each chunk, so all NICs keep the pace of the slowest one, and by their rates
/// none is slow. But where that one always has a queue, the others have what they carry done soon: what is sent waits far
/// longer there. Each write must, and each byte: where completions are noticed late, a byte of a small write waits for
/// longer than one of a large write. What the others could carry is then not known; a byte's wait on one of them is at
/// least what it takes. What the NIC carries of that at most; 1: it is none that the others wait for.
double Capacities::bottleneck(const Interval& interval, size_t nic) const {
  if (interval.depth[nic] < kQueue || interval.busy[nic] < kBusiest * interval.most_busy) return 1;
  std::vector<double> bytes, writes;
  for (size_t i = 0; i < count_; ++i) {
    if (i == nic || interval.byte_waits[i] <= 0) continue;
    bytes.push_back(interval.byte_waits[i]);
    writes.push_back(interval.write_waits[i]);
  }
  if (bytes.empty()) return 1;
  const auto middle = [](std::vector<double>& of) {
    const auto it = of.begin() + std::ptrdiff_t(of.size() / 2);
    std::nth_element(of.begin(), it, of.end());
    return *it;
  };
  const double byte = middle(bytes);
  if (interval.byte_waits[nic] < kLongWaits * byte || interval.write_waits[nic] < kLongWaits * middle(writes)) return 1;
  return std::min(kBottleneck, byte * interval.depth[nic] / interval.byte_waits[nic]);
}

bool Capacities::take(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part,
                      uint64_t planned) {
  if (began_ == 0) began_ = now;
  if (!is_over(readings, now)) return false;
  const Interval interval = close(readings, now, part);
  began_ = now;
  const double by_plan = double(planned - std::exchange(planned_, planned));
  judge_all(interval, by_plan > interval.all_bytes / 2);
  return true;
}

bool Capacities::is_over(std::span<const NicMeter::Reading> readings, uint64_t now) {
  bool all = true;
  uint64_t busiest = 0;
  for (size_t nic = 0; nic < count_; ++nic) {
    if (!nics_[nic].known && readings[nic].last_done != 0) {
      nics_[nic].from = readings[nic];
      nics_[nic].known = true;
    }
    const Span span = since(nics_[nic], readings[nic]);
    if (span.writes == 0 && !readings[nic].open) continue;
    all = all && (span.writes >= kWrites || (span.writes > 0 && span.busy >= kLongWorkNs));
    busiest = std::max(busiest, span.busy);
  }
  return now - began_ >= kLongestNs || (all && busiest >= kIntervalNs);
}

Capacities::Interval Capacities::close(std::span<const NicMeter::Reading> readings, uint64_t now,
                                       std::span<const double> part) {
  Interval interval;
  for (size_t nic = 0; nic < count_; ++nic) {
    const Span span = since(nics_[nic], readings[nic]);
    nics_[nic].from = readings[nic];
    // What is under way since the last completion counts as well: one long write is work, too.
    const uint64_t waited =
        readings[nic].open && nics_[nic].known ? now - std::min(now, readings[nic].last_done) : 0;
    interval.busy[nic] = std::min(1.0, double(span.busy + waited) / double(now - began_));
    if (span.writes == 0 || span.busy < kIntervalNs / 10) continue;
    const double usual_cost = double(span.busy) * nics_[nic].nominal;
    interval.carried[nic] = double(span.bytes) / usual_cost;
    note_carried(nics_[nic], span);
    interval.parts[nic] = nic < part.size() ? std::clamp(part[nic], kLeastLevel, 1.0) : 1.0;
    interval.rates.push_back(interval.carried[nic]);
    interval.whole_rates.push_back(interval.carried[nic] / interval.parts[nic]);
    interval.rate[nic] = double(span.work) / usual_cost;
    interval.most_busy = std::max(interval.most_busy, interval.busy[nic]);
    const double each = double(span.busy) / double(span.writes);
    interval.most[nic] = each > 2 * kLatencyNs ? each / (each - kLatencyNs) : 2;
    interval.all_depths += interval.depth[nic] = double(span.depth) / double(span.writes);
    interval.byte_waits[nic] = interval.depth[nic] / interval.carried[nic];
    interval.write_waits[nic] = interval.depth[nic] * each;
    interval.all_bytes += double(span.bytes);
    if (!nics_[nic].gray) interval.well_busy.push_back(interval.busy[nic]);
  }
  return interval;
}

void Capacities::note_carried(Nic& nic, const Span& span) {
  nic.steady_bytes += span.bytes;
  nic.steady_busy += span.busy;
  if (++nic.steady < kSteadyIntervals) return;
  nic.most_carried =
      std::max(nic.most_carried, double(nic.steady_bytes) / (double(nic.steady_busy) * nic.nominal));
  nic.steady_bytes = nic.steady_busy = 0;
  nic.steady = 0;
}

void Capacities::judge_all(const Interval& interval, bool planned) {
  const double backlog = planned ? kPlannedBacklog : kBacklog;
  const bool comparable = interval.comparable();
  const double others = comparable ? usual(interval.rates) : 0;
  const double whole_others = comparable ? usual(interval.whole_rates) : 0;
  const double others_busy = interval.well_busy.empty() ? 0 : usual(interval.well_busy);
  const bool any_well = std::any_of(nics_.begin(), nics_.begin() + count_,
                                    [](const Nic& nic) { return nic.known && !nic.gray; });
  for (size_t nic = 0; nic < count_; ++nic) {
    double relative = nics_[nic].gray && any_well ? relative_to_well(interval, nic)
                                                  : interval.relative(nic, others, whole_others);
    const double others_depth =
        comparable ? (interval.all_depths - interval.depth[nic]) / double(interval.rates.size() - 1) : 0;
    const double queued = planned && for_plans_ ? bottleneck(interval, nic) : 1;
    if (relative > 0) relative = std::min(relative, queued);
    const bool kept_busy = queued < 1 || (interval.busy[nic] >= kBusiest * interval.most_busy &&
                                          interval.depth[nic] >= backlog * others_depth);
    if (comparable) count_unclear(nics_[nic], relative, kept_busy);
    if (relative > 0 ||
        nics_[nic].gray)  // one that is gray and gets next to nothing must not stay so for that
      judge(nics_[nic], relative, interval.most[nic],
            kept_busy ? weight(relative, others_depth > 0 ? interval.depth[nic] / others_depth : 0) : 0,
            interval.busy[nic], others_busy);
  }
}

double Capacities::relative_to_well(const Interval& interval, size_t nic) const {
  std::vector<double> well, well_whole;
  for (size_t i = 0; i < count_; ++i) {
    if (nics_[i].gray || interval.carried[i] <= 0 || interval.busy[i] < kComparable * interval.busy[nic])
      continue;
    well.push_back(interval.carried[i]);
    well_whole.push_back(interval.carried[i] / interval.parts[i]);
  }
  return well.empty() ? 0 : interval.relative(nic, usual(well), usual(well_whole));
}

void Capacities::count_unclear(Nic& nic, double relative, bool kept_busy) {
  const bool tells = relative >= kGray || (relative > 0 && kept_busy);
  nic.unclear = tells ? 0 : nic.unclear + 1;
  if (nic.unclear > kMostUnclear) nic.low = nic.shown = nic.unclear = 0;
}

int Capacities::weight(double relative, double queue) const {
  if (relative >= kVeryGray) return 1;
  if (!for_plans_) return 2;
  return queue >= kClearQueue ? 3 : 1;
}

void Capacities::judge(Nic& nic, double relative, double most, int weight, double busy,
                       double others_busy) const {
  if (!nic.gray) {
    if (relative >= kGray)
      nic.low = 0;
    else
      nic.low += weight;
    nic.level = relative;
    nic.idle = 1;
    nic.gray = nic.low >= (for_plans_ ? kLowForPlans : kLow);
    nic.well = 0;
    ++nic.well_for;
    if (nic.gray) {
      nic.patience = nic.before && nic.well_for < kForgiven ? std::min(2 * nic.patience, kMostPatience) : 1;
      nic.before = true;
      nic.well_for = nic.waited = nic.shown = 0;
    }
    return;
  }
  if (relative >= kGray) nic.shown = 0;
  if (weight > 0 && relative > 0 && relative < kGray && ++nic.shown >= kLow) {
    ++nic.shown_slow;
    nic.shown = 0;
  }
  // What it would carry if it had work for as long as the others have.
  if (others_busy > 0) nic.idle += (std::min(1.0, busy / others_busy) - nic.idle) / 4;
  double more = 0;
  if (nic.idle < kIdle && ++nic.waited >= nic.patience) {
    more = nic.level * std::min(2.0, 1 / nic.idle);
    if (relative > 0) more = std::min(more, relative * most);
    nic.waited = 0;
  } else if (relative <= 0) {
    return;  // nothing to learn from
  }
  nic.level += (std::clamp(std::max(relative, more), kLeastLevel, 1.0) - nic.level) / 2;
  nic.well = nic.level > kWell ? nic.well + 1 : 0;
  nic.gray = nic.well < kWellIntervals;
  nic.low = 0;
}

bool Capacities::at_most(size_t nic, double rate) {
  const double most = std::min(1.0, rate / nics_[nic].nominal);
  return std::exchange(nics_[nic].most, most) != most;
}

void Capacities::forget(size_t nic) {
  Nic blank;
  blank.nominal = nics_[nic].nominal;
  blank.most = nics_[nic].most;
  nics_[nic] = blank;
}

// The upper quartile, of three and more not the greatest: slow NICs do not count for what is usual, and
// neither does the luckiest, or one wrong reading.
double Capacities::usual(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  const size_t above = sorted.size() < 3 ? 0 : std::max<size_t>(1, (sorted.size() - 1) / 4);
  const auto quartile = sorted.end() - 1 - std::ptrdiff_t(above);
  std::nth_element(sorted.begin(), quartile, sorted.end());
  return *quartile;
}

}  // namespace r2ccl::balance
