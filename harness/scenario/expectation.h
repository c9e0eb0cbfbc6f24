// SPDX-License-Identifier: Apache-2.0
// What a scenario expects of a metric, as a small expression that is checked when the file is loaded and
// evaluated when the job has run: `<= floor + wakeup + 50 ms`, `>= 0.95 * limit`, `exact`, `error`.
// Pure: no files, no results; the values come through a function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace r2bench {

/// What a number stands for. Times are in milliseconds.
enum class Unit { kNone, kMilliseconds, kPercent };

enum class Comparison { kLess, kLessEqual, kEqual, kNotEqual, kGreaterEqual, kGreater };

/// A name that stands for a value of the mode that is judged.
enum class Quantity {
  kFloor,   ///< floor_ms of the fault
  kWakeup,  ///< the run's own wake-up latency, p99, in ms, up to a cap
  kLimit,   ///< what the mode can keep of the bandwidth with the NICs that are left (a ratio)
};

/// One factor: a number with its unit, or a name.
using Factor = std::variant<double, Quantity>;

/// factors multiplied; `negative` when it is subtracted.
struct Term {
  bool negative = false;
  std::vector<Factor> factors;
};

/// A sum of terms, all of the metric's unit.
struct Sum {
  std::vector<Term> terms;
};

struct Numeric {
  Comparison comparison = Comparison::kLessEqual;
  Sum bound;
};

/// One of a fixed set of words, e.g. outcome: error.
struct Word {
  bool negated = false;  ///< `!= word`
  std::string word;
};

/// What a text must hold: these pieces, in this order, with anything between them.
struct Text {
  std::vector<std::string> pieces;
};

using Condition = std::variant<Numeric, Word, Text>;

struct Expectation {
  std::string mode;    ///< a mode's label, or "all"
  std::string metric;  ///< e.g. "recover_ms.max"
  std::string wanted;  ///< the right side as written
  int line = 0;        ///< in the scenario file, from 1
  int column = 0;
  Condition condition;
};

/// What a metric cannot be judged without.
struct Needs {
  bool fault = false;    ///< a fault in the scenario
  bool pairs = false;    ///< `pairs`, and a mode that is not the first one
  bool balance = false;  ///< a mode that spreads messages over NICs
  bool trace = false;    ///< the plugin's trace, which NCCL's own IB transport does not write
  bool beside = false;   ///< a mode whose job compares two sides
  /// Every delivery of the job, with `trace`. Where two sides take turns, the trace has one side's.
  bool deliveries = false;
  bool plans = false;  ///< a mode that plans AllReduces
};

enum class Better { kLower, kHigher };

/// How `compare` and `gate` take samples of a metric from a result.json.
struct Compared {
  enum class Each {
    kRun,    ///< its value in `metrics.values` of each run
    kFault,  ///< each sampled fault's own
    kPair,   ///< each pair's own
  };
  Better better = Better::kLower;
  Each each = Each::kRun;
  const char* unit = "";  ///< where MetricInfo::unit has none: "s/GB"
};

/// The metrics that an expectation may name.
struct MetricInfo {
  std::string name;
  Unit unit = Unit::kNone;
  std::vector<std::string> words = {};  ///< not empty: the metric is one of these words
  std::string meaning;                  ///< one sentence for `explain`
  bool text = false;                    ///< it is said in free words, of which some are expected
  Needs needs = {};
  std::optional<Compared> compared = {};  ///< none: `compare` and `gate` do not look at it
};
const std::vector<MetricInfo>& metrics();
const MetricInfo* find_metric(const std::string& name);

/// A sentence without location; `column` counts from 0 within the text.
struct ExpressionError {
  size_t column = 0;
  std::string message;
};
/// Parses the right side of `metric: "text"`. Throws ExpressionError.
Condition parse_condition(const MetricInfo& metric, const std::string& text);

/// Value of the names; nullopt = not known in this run.
using QuantityValue = std::function<std::optional<double>(Quantity)>;
/// nullopt when one of the names has no value.
std::optional<double> evaluate(const Sum& sum, const QuantityValue& value);
bool holds(const std::string& said, const Text& text);
bool compare(double got, Comparison comparison, double bound);
/// Whether a value that can only grow misses the expectation already.
bool exceeds_for_good(double got, Comparison comparison, double bound);

/// What `wanted` has behind it where slow motion by `factor` multiplied its times.
std::string slow_motion_note(const std::string& factor);

const char* name(Quantity quantity);
const char* name(Comparison comparison);

}  // namespace r2bench
