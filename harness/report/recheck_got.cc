// SPDX-License-Identifier: Apache-2.0
#include "harness/report/recheck_got.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

namespace r2bench {
namespace {

using Json = nlohmann::json;

void say(std::vector<std::string>& found, const std::string& about, const std::string& what) {
  found.push_back(about + ": " + what);
}

/// Where a run holds what was got, as JSON pointers. Not where that is judged otherwise: of a count with
/// repeats each round counts for itself, and a bound that names `floor` is held against the fault that
/// decides.
std::vector<std::string> places_of(const Metric& metric, const Json& run) {
  if (metric.info.unit == Unit::kMilliseconds) return {};
  if (metric.by_round && run.value("rounds", Json::array()).size() > 1) return {};
  std::vector<std::string> places = {"/metrics/values/" + metric.info.name};  // not in older results
  if (!metric.place.empty()) places.push_back(metric.place);
  return places;
}

/// Results that were shortened have six digits.
bool equal(double a, double b) {
  return std::fabs(a - b) <= 1e-5 * std::max({1.0, std::fabs(a), std::fabs(b)});
}

/// Whether one of the numbers in a text is this one, as exactly as it is written. Of times: "9.80 ms", "12.3
/// s".
bool says_number(const std::string& text, double value, bool is_time) {
  for (size_t at = 0; at < text.size();) {
    const auto is_digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    if (!is_digit(at)) {
      ++at;
      continue;
    }
    size_t end = at, decimals = 0;
    while (is_digit(end)) ++end;
    if (end < text.size() && text[end] == '.' && is_digit(end + 1))
      for (++end; is_digit(end); ++end) ++decimals;
    const bool negative = at > 0 && text[at - 1] == '-';
    const double said = std::stod(text.substr(at, end - at)) * (negative ? -1 : 1);
    const double unit = is_time && text.compare(end, 2, " s") == 0 ? 1000 : 1;
    if (std::fabs(said * unit - value) <=
        unit * 0.51 * std::pow(10, -double(decimals)) + 1e-5 * std::fabs(value))
      return true;
    at = end;
  }
  return false;
}

/// What people read of it is the value that is judged.
void check_words(const Stored& stored, std::vector<std::string>& found) {
  const auto& [name, metric, expectation, run] = stored;
  const MetricInfo& info = metric.info;
  const std::string got = expectation.at("got");
  const Json &value = expectation.at("got_value"), detail = expectation.value("detail", Json());
  const Json word = expectation.value("got_word", Json());
  if (value.is_number() && !got.empty() && std::isdigit(static_cast<unsigned char>(got[0])) &&
      !says_number(got, value.get<double>(), info.unit == Unit::kMilliseconds))
    say(found, name, "says '" + got + "', but got " + value.dump());
  const bool is_words = info.text || !info.words.empty();
  if (is_words && (!value.is_null() || !expectation.at("wanted_value").is_null()))
    say(found, name, "has numbers, but the metric is words");
  if (!is_words && !word.is_null())
    say(found, name, "got the word '" + word.dump() + "', but the metric is a number");
  const bool one_of_words =
      word.is_string() && std::count(info.words.begin(), info.words.end(), word.get<std::string>()) > 0;
  if (one_of_words && got.find(word.get<std::string>()) == std::string::npos)
    say(found, name, "says '" + got + "', but got '" + word.get<std::string>() + "'");
  if (detail.is_string() && detail != run.at("error"))
    say(found, name, "its detail is '" + detail.get<std::string>() + "', which is not the run's error");
}

/// The metrics, where they hold it, have the same value.
void check_measured(const Stored& stored, std::vector<std::string>& found) {
  const auto& [name, metric, expectation, run] = stored;
  if (metric.info.name == "outcome" && expectation.value("got_word", Json()).is_string() &&
      expectation.at("got_word") != run.at("outcome") &&
      !run.value("outcomes", Json::object()).contains(expectation.at("got_word").get<std::string>()))
    say(found, name,
        "got '" + expectation.at("got_word").get<std::string>() + "', but the run's outcome is '" +
            run.at("outcome").get<std::string>() + "'");
  const Json& got = expectation.at("got_value");
  if (!got.is_number()) return;
  for (const std::string& place : places_of(metric, run)) {
    const Json::json_pointer pointer(place);
    if (!run.contains(pointer) || !run.at(pointer).is_number()) continue;
    if (run.at(pointer).get<double>() != got.get<double>())
      return say(found, name, "got " + got.dump() + ", but the run's metrics say " + run.at(pointer).dump());
  }
}

}  // namespace

void check_got(const Stored& stored, std::vector<std::string>& found) {
  check_measured(stored, found);
  check_words(stored, found);
}

void check_time(const Stored& stored, const Numeric& numeric, std::vector<std::string>& found) {
  const auto& [name, metric, expectation, run] = stored;
  const Json& got = expectation.at("got_value");
  const std::string& of = metric.info.name;
  const size_t dot = of.find('.');
  const std::string family = of.substr(0, dot);
  const Json::json_pointer value("/metrics/values/" + of);
  std::vector<Json> times;
  if (run.contains(value)) {
    times.push_back(run.at(value));
  } else if (dot != std::string::npos &&
             got.is_number()) {  // older results have no time there that never came
    const Json::json_pointer of_all("/metrics/recovery/" + family + "/" + of.substr(dot + 1));
    if (run.contains(of_all)) times.push_back(run.at(of_all));
  }
  if (times.empty()) return;
  const Json own = times.front();
  if (names_floor(numeric.bound))
    for (const Json& fault : run.at("faults"))
      if (fault.at("sampled") == true && fault.contains(family)) times.push_back(fault.at(family));
  const bool held = std::any_of(times.begin(), times.end(), [&](const Json& time) {
    return got.is_number() && time.is_number() ? equal(got.get<double>(), time.get<double>())
                                               : got.is_number() == time.is_number();
  });
  if (!held) say(found, name, "got " + got.dump() + ", but the run's metrics say " + own.dump());
}

void check_bound(const Stored& stored, const Numeric& numeric, std::vector<std::string>& found) {
  const auto& [name, metric, expectation, run] = stored;
  const Json& wanted = expectation.at("wanted_value");
  if (!wanted.is_number() || run.contains("hosts")) return;  // between hosts the clocks widen it
  const auto number = [&](const Json& json) {
    return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
  };
  const Json& metrics = run.at("metrics");
  std::vector<std::optional<double>> floors = {number(metrics.at("recovery").at("floor_ms"))};
  if (names_floor(numeric.bound))
    for (const Json& fault : run.at("faults"))
      if (fault.at("sampled") == true) floors.push_back(number(fault.at("floor_ms")));
  const bool follows = std::any_of(floors.begin(), floors.end(), [&](const std::optional<double>& floor) {
    const auto bound = evaluate(numeric.bound, [&](Quantity quantity) {
      if (quantity == Quantity::kFloor) return floor;
      return quantity == Quantity::kWakeup ? number(metrics.at("recovery").at("wakeup_p99_ms"))
                                           : number(metrics.at("throughput").at("limit"));
    });
    return bound && equal(*bound, wanted.get<double>());
  });
  if (!follows)
    say(found, name,
        "is held against " + wanted.dump() + ", which '" + expectation.at("wanted").get<std::string>() +
            "' is not in this run");
}

}  // namespace r2bench
