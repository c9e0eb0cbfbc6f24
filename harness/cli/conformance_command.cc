// SPDX-License-Identifier: Apache-2.0
// `r2bench conformance`: the verbs suite on each fabric, and the table of what differs.
#include <fstream>
#include <ostream>

#include "harness/base/format.h"
#include "harness/base/revision.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/guest_run.h"
#include "harness/cli/resources.h"
#include "harness/conformance/suite.h"
#include "harness/conformance/table.h"
#include "harness/fabric/device_fabric.h"
#include "harness/report/run_folder.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

nlohmann::json here(const ConformanceArguments& arguments, const std::string& fabric, const Console& console,
                    const std::atomic<bool>& cancel) {
  conformance::SuiteOptions options;
  options.fabric = fabric;
  options.bin_dir = (program_prefix() / "bin").string();
  options.lib_dir = (program_prefix() / "lib").string();
  options.cases = arguments.cases;
  options.faults = arguments.faults;
  options.progress = [&](const std::string& line) { console.out << line << "\n" << std::flush; };
  try {
    return conformance::run_suite(options, cancel);
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
}

nlohmann::json in_guest(const ConformanceArguments& arguments, const fs::path& out, const Console& console,
                        const std::atomic<bool>& cancel) {
  const fs::path raw = out / "rxe.json";
  std::vector<std::string> command = {
      fs::read_symlink("/proc/self/exe").string(), "conformance", "--fabric", "rxe", "--raw", raw.string()};
  for (const std::string& prefix : arguments.cases) command.insert(command.end(), {"--case", prefix});
  if (!arguments.faults) command.push_back("--no-faults");
  const int status = run_in_rxe_guest(command, out, console, cancel);
  if (cancel) return {};
  std::ifstream file(raw);
  if (status != 0 || !file)
    throw UsageError("the suite did not come to its end in the guest (status " + std::to_string(status) +
                     ")");
  nlohmann::json result = nlohmann::json::parse(file);
  fs::remove(raw);
  return result;
}

}  // namespace

int conformance_command(const ConformanceArguments& arguments, const Console& console) {
  const Signals signals;
  if (!arguments.raw.empty()) {
    if (arguments.fabrics.size() != 1) throw UsageError("--raw is for one --fabric");
    check_writable(arguments.raw);
    const nlohmann::json result = here(arguments, arguments.fabrics[0], console, signals.cancel());
    if (signals.caught() != 0) return kExitSignal + signals.caught();
    write_file(arguments.raw, result.dump(1) + "\n");
    return 0;
  }
  RunFolder folder = arguments.out.empty()
                         ? RunFolder::create_fresh(fs::path("results") / "runs", "conformance")
                         : RunFolder::create(arguments.out);
  const fs::path out = fs::canonical(folder.path());
  std::vector<nlohmann::json> fabrics;
  for (const std::string& fabric : arguments.fabrics) {
    fabrics.push_back(fabric == "rxe" && !rxe_is_here() ? in_guest(arguments, out, console, signals.cancel())
                                                        : here(arguments, fabric, console, signals.cancel()));
    if (signals.caught() != 0) return kExitSignal + signals.caught();
  }
  std::string names;
  for (const std::string& fabric : arguments.fabrics) names += (names.empty() ? "" : ",") + fabric;
  const conformance::Table table =
      conformance::make_table(std::move(fabrics), {{"command", "r2bench conformance --fabric " + names},
                                                   {"commit", build_revision()},
                                                   {"date", utc_now()}});
  folder.write("table.md", conformance::markdown(table));
  folder.write("table.json", conformance::json(table).dump(1) + "\n");
  folder.keep();
  console.out << table.observations << " observations, " << table.deviations.size() << " deviations, "
              << table.unexplained()
              << " of them unexplained or not acceptable: " << (out / "table.md").string() << "\n";
  return table.unexplained() == 0 ? 0 : 1;
}

}  // namespace r2bench
