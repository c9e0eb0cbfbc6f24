#include "r2ccl/balance/meter.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace r2ccl::balance {

Capacities::Capacities(std::span<const double> nominal) : count_(std::min(nominal.size(), kMaxNics)) {
  for (size_t nic = 0; nic < count_; ++nic) nics_[nic].nominal = nominal[nic];
}

void Capacities::take(size_t nic, const NicMeter::Reading& reading, uint64_t now) {
  Nic& it = nics_[nic];
  if (it.last.last_done == 0) {
    it.last = reading;
    return;
  }
  const uint64_t writes = reading.completions - it.last.completions;
  if (writes < kWindowWrites || reading.last_done <= it.last.last_done) return;
  const uint64_t span = reading.last_done - it.last.last_done;
  const uint64_t idle = std::min(span, reading.idle_ns - it.last.idle_ns);
  const uint64_t busy = span - idle;
  if (busy < kWindowNs) return;
  const double rate = double(reading.bytes - it.last.bytes) / double(busy);
  it.last = reading;
  it.sample = rate / it.nominal;
  it.sampled_at = now;
  const double usual_rate = usual(now);
  if (usual_rate <= 0) return;
  const double relative = std::min(1.0, it.sample / usual_rate);
  it.low = relative < kGray ? it.low + 1 : 0;
  it.well = relative > kWell ? it.well + 1 : 0;
  if (!it.gray) {
    it.level = it.low == 1 ? relative : (it.level + relative) / 2;
    it.gray = it.low >= kSlowSamples;
  } else {
    it.level = (it.level + relative) / 2;
    if (it.well >= kWellSamples) it.gray = false;
  }
}

void Capacities::forget(size_t nic) {
  const double nominal = nics_[nic].nominal;
  nics_[nic] = {};
  nics_[nic].nominal = nominal;
}

// The upper quartile of what NICs do these days; 0 when there is only one to look at.
double Capacities::usual(uint64_t now) const {
  std::vector<double> fresh;
  for (size_t nic = 0; nic < count_; ++nic)
    if (nics_[nic].sampled_at != 0 && now - nics_[nic].sampled_at < kFreshNs) fresh.push_back(nics_[nic].sample);
  if (fresh.size() < 2) return 0;
  const auto quartile = fresh.end() - 1 - std::ptrdiff_t(fresh.size() - 1) / 4;
  std::nth_element(fresh.begin(), quartile, fresh.end());
  return *quartile;
}

}  // namespace r2ccl::balance
