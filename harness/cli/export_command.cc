// SPDX-License-Identifier: Apache-2.0
// `r2bench export`: results in the format of another program.
#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/report/nccl_tests.h"
#include "harness/report/result_file.h"
#include "harness/report/whole_file.h"

namespace r2bench {

int export_command(const ExportArguments& arguments, const Console& console) {
  const auto share = share_folder();
  if (!share)
    throw UsageError("results/schema.json is not found; set R2BENCH_SHARE to the folder that holds results/");
  const nlohmann::json schema = read_json_file(*share / "results" / "schema.json");
  std::vector<nlohmann::json> results;
  for (const std::string& named : arguments.results) results.push_back(read_result_file(named, schema));
  const nlohmann::ordered_json document =
      reading(arguments.results.front(), [&] { return nccl_tests_json(results, arguments.mode); });
  if (document.at("results").empty()) {
    const std::string which = arguments.mode.empty() ? "no run" : "no run of mode '" + arguments.mode + "'";
    throw UsageError(which + " completed an operation: there is no row to export");
  }
  const std::string text = document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (arguments.out.empty()) {
    console.out << text << std::flush;
    return 0;
  }
  write_file(arguments.out, text);
  console.out << arguments.out << "\n";
  return 0;
}

}  // namespace r2bench
