// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/beside.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "harness/base/format.h"
#include "harness/scenario/turns.h"

namespace r2bench {
namespace {

/// `values`: one or more.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

/// When the last fault took effect, in ms since the timeline's start; nullopt: none did.
std::optional<double> last_fault_ms(const ModeResult& mode) {
  std::optional<double> last;
  for (const FaultSample& fault : mode.faults)
    if (fault.witnessed && fault.t0_ns)
      last = std::max(last.value_or(-HUGE_VAL), (double(fault.t0_ns) - double(mode.timeline.start_ns)) / 1e6);
  return last;
}

SidesCompared none(std::string why) { return {std::nullopt, 0, std::move(why)}; }

}  // namespace

SidesCompared compare_sides(const ModeResult& mode, size_t iters) {
  if (!mode.beside || mode.beside->copies == 0) return none("the mode compares nothing");
  if (mode.outcome != Outcome::kOk) return none(std::string("the job ended (") + name(mode.outcome) + ")");
  const Turns turns{int(mode.beside->copies)};
  const std::optional<double> struck_ms = last_fault_ms(mode);
  size_t first = 0;
  if (struck_ms) {
    const std::vector<double>& begin = mode.iteration_begin_ms;
    if (begin.size() != mode.iteration_ms.size())
      return none("of several jobs with faults it is not known which operations came after them");
    first =
        size_t(std::lower_bound(begin.begin(), begin.end(), *struck_ms + kBesideSettleMs) - begin.begin());
  }
  const size_t turn = Turns::kTurn;
  const size_t from = (first + turn - 1) / turn * turn, end = mode.iteration_ms.size() / turn * turn;
  if (from >= end)
    return none("fewer than " + std::to_string(turn) + " operations, one turn, began" +
                (struck_ms ? " " + milliseconds(kBesideSettleMs) + " after the last fault or later" : "") +
                "; give the job more 'iters'");
  // Which side an operation is of is known by its number in the job.
  if (iters && mode.iteration_ms.size() % iters)
    return none("the times of " + std::to_string(mode.iteration_ms.size()) +
                " operations are known, and a job has " + std::to_string(iters));
  // A job has whole rounds, so that each begins as the first one does.
  std::map<std::pair<size_t, size_t>, std::array<std::vector<double>, 2>> pairs;
  for (size_t i = from; i < end; ++i) {
    const size_t job = iters ? i / iters : 0;
    const size_t pair = i / turn % mode.beside->copies;
    pairs[{job, pair}][size_t(turns.side(i))].push_back(mode.iteration_ms[i]);
  }
  std::vector<double> ratios;
  for (const auto& [of, sides] : pairs) ratios.push_back(median(sides[0]) / median(sides[1]));
  return {median(ratios), end - from, ""};
}

}  // namespace r2bench
