// SPDX-License-Identifier: Apache-2.0
#include "harness/report/nccl_tests.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson truth(bool value) { return value ? "true" : "false"; }

/// "2026-01-02 03:04:05" of "2026-01-02T03:04:05Z".
std::string local_form(std::string time) {
  std::replace(time.begin(), time.end(), 'T', ' ');
  if (!time.empty() && time.back() == 'Z') time.pop_back();
  return time;
}

std::string padded_root(int root) {
  char text[16];
  std::snprintf(text, sizeof text, "%6i", root);
  return text;
}

/// The quantiles by nccl-tests' own rule.
OrderedJson per_iteration(std::vector<double> us) {
  const std::vector<double> in_order = us;
  std::sort(us.begin(), us.end());
  const size_t n = us.size();
  const auto percentile = [&](size_t percent) { return us[std::min(n - 1, (n * percent + 99) / 100 - 1)]; };
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / double(n);
  double squares = 0;
  for (const double v : us) squares += (v - mean) * (v - mean);
  const double deviation = std::sqrt(squares / double(n));
  return {
      {"skipped_iterations", 0},  {"min_us", us.front()},  {"max_us", us.back()},
      {"avg_us", mean},           {"p50_us", us[n / 2]},   {"p95_us", percentile(95)},
      {"p99_us", percentile(99)}, {"stdev_us", deviation}, {"cv_pct", mean > 0 ? 100 * deviation / mean : 0},
      {"times_us", in_order}};
}

std::string name_of(const nlohmann::json& result, const nlohmann::json& run) {
  return result.at("scenario").get<std::string>() + "/" + run.at("mode").get<std::string>();
}

OrderedJson row_of(const nlohmann::json& result, const nlohmann::json& run) {
  const nlohmann::json& row = run.at("row");
  OrderedJson out = {{"size", OrderedJson(row.at("size_bytes"))},
                     {"count", OrderedJson(row.at("count"))},
                     {"type", OrderedJson(row.at("type"))},
                     {"redop", OrderedJson(row.at("redop"))},
                     {"root", padded_root(row.at("root"))}};
  const OrderedJson wrong = result.at("workload").at("verify").get<bool>()
                                ? OrderedJson(row.at("wrong").get<double>())
                                : OrderedJson();
  out["out_of_place"] = {{"time", OrderedJson(row.at("time_us"))},
                         {"alg_bw", OrderedJson(row.at("algbw_gbytes"))},
                         {"bus_bw", OrderedJson(row.at("busbw_gbytes"))},
                         {"nwrong", wrong}};
  std::vector<double> us;
  for (const nlohmann::json& ms : run.at("iteration_ms")) us.push_back(1e3 * ms.get<double>());
  if (!us.empty()) out["out_of_place_per_iter"] = per_iteration(std::move(us));
  out["in_place"] = nullptr;
  out["actual_iterations"] = row.at("iterations");
  out["experiment_name"] = name_of(result, run);
  return out;
}

OrderedJson config_of(const std::vector<nlohmann::json>& results) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const nlohmann::json& result : results) {
    const nlohmann::json& said = result.at("workload").at("bytes");
    const uint64_t bytes =
        said.is_null() ? 0 : said.get<uint64_t>();  // a command's are not known, as in its row
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  const nlohmann::json& workload = results.front().at("workload");
  OrderedJson config = {{"nthreads", 1},
                        {"ngpus", 0},
                        {"minimum_bytes", least},
                        {"maximum_bytes", most},
                        {"step_bytes", 0},
                        {"warmup_iters", OrderedJson(workload.at("warmup"))},
                        {"iterations", OrderedJson(workload.at("iters"))},
                        {"aggregated_iterations", 1},
                        {"validation", workload.at("verify").get<bool>() ? 1 : 0},
                        {"graph", 0},
                        {"blocking_collectives", truth(false)},
                        {"per_iter_timing", truth(true)},
                        {"per_iter_skip", 0},
                        {"parallel_init", truth(false)}};
  const nlohmann::json& fabric = results.front().at("fabric");
  const int nodes = fabric.at("nodes"), ranks = fabric.at("ranks_per_node");
  config["devices"] = OrderedJson::array();
  for (int rank = 0; rank < nodes * ranks; ++rank)
    config["devices"].push_back({{"rank", rank},
                                 {"group", 0},
                                 {"pid", 0},
                                 {"hostname", "node" + std::to_string(rank / ranks)},
                                 {"device", rank % ranks},
                                 {"device_hex", ""},
                                 {"device_info", "cpu, " + fabric.at("kind").get<std::string>() + ", " +
                                                     results.front().at("evidence").get<std::string>()}});
  return config;
}

}  // namespace

OrderedJson nccl_tests_json(const std::vector<nlohmann::json>& results, const std::string& mode) {
  OrderedJson json;
  json["version"] = kNcclTestsVersion;
  json["start_time"] = results.empty() ? "" : local_form(results.front().at("started_at"));
  json["args"] = {"r2bench", "run"};
  json["env"] = OrderedJson::array();
  json["nccl_version"] = 0;
  OrderedJson rows = OrderedJson::array(), errors = OrderedJson::array();
  double bandwidth = 0, wrong = 0;
  for (const nlohmann::json& result : results) {
    json["args"].push_back(result.at("source").get<std::string>());
    for (const nlohmann::json& run : result.at("runs")) {
      if (!mode.empty() && run.at("mode") != mode) continue;
      if (run.at("outcome") != "ok")
        errors.push_back(name_of(result, run) + ": " +
                         (run.at("error").is_string() ? run.at("error").get<std::string>()
                                                      : run.at("outcome").get<std::string>()));
      if (run.at("row").at("busbw_gbytes").is_null()) continue;
      bandwidth += run.at("row").at("busbw_gbytes").get<double>();
      wrong += run.at("row").at("wrong").get<double>();
      rows.push_back(row_of(result, run));
    }
  }
  if (!results.empty()) json["config"] = config_of(results);
  const size_t count = rows.size();
  json["results"] = std::move(rows);
  json["out_of_bounds"] = {{"count", uint64_t(wrong)}, {"okay", truth(wrong == 0)}};
  json["average_bus_bandwidth"] = {{"bandwidth", count > 0 ? bandwidth / double(count) : 0.0},
                                   {"okay", "unchecked"}};
  json["errors"] = std::move(errors);
  return json;
}

}  // namespace r2bench
