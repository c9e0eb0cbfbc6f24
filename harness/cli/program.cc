// SPDX-License-Identifier: Apache-2.0
// The command line itself, and what an exception means for the exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "faultinject/plan/plan.h"
#include "harness/base/revision.h"
#include "harness/cli/commands.h"
#include "harness/cli/exec_command_options.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/subcommands.h"
#include "harness/control/control_socket.h"
#include "harness/report/result_file.h"
#include "harness/report/run_folder.h"
#include "harness/report/stored_run.h"

namespace r2bench {
namespace {

/// Says what is wrong with the command line, or the help that it asks for; the exit status.
int explain_parse(const CLI::App& app, const CLI::ParseError& error, const std::string& word,
                  const Console& console) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (!word.empty() && word[0] != '-' &&
      std::find(commands.begin(), commands.end(), word) == commands.end()) {
    const auto meant = faultinject::nearest(word, commands);
    console.err << "r2bench: '" << word << "' is no command"
                << (meant ? "; did you mean '" + *meant + "'?" : "")
                << "\nRun with --help for more information.\n";
  } else {
    app.exit(error, console.out, console.err);
  }
  return kExitUsage;
}

/// Runs it; what the user can mend is said, and becomes 64.
int guarded(const Subcommand& subcommand, const Runner& runner, const Console& console) {
  try {
    return subcommand.run(runner, console);
  } catch (const ScenarioError& error) {
    console.err << error.what();
    return kExitUsage;
  } catch (const UsageError& error) {
    console.err << "r2bench: " << error.what() << "\n";
    return kExitUsage;
  } catch (const ControlError& error) {
    console.err << "r2bench: " << error.what() << "\n";
    return kExitUsage;
  } catch (const faultinject::PlanError& error) {
    console.err << error.what() << "\n";
    return kExitUsage;
  } catch (const InputError& error) {
    console.err << "r2bench: " << error.what() << "\n";
    return kExitUsage;
  } catch (const OutputError& error) {
    console.err << "r2bench: " << error.what() << "\n";
    return kExitUsage;
  } catch (const std::exception& error) {
    console.err << "r2bench: internal error: " << error.what() << "\n";
    return kExitInternal;
  }
}

}  // namespace

int r2bench_main(int argc, const char* const* argv, const Runner& runner, const Console& console) {
  CLI::App app(
      "r2bench makes NICs of a running job fail, measures the cost to the job, and gives a verdict.");
  app.name("r2bench");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("r2bench, built from commit ") + build_revision());
  std::vector<std::string> foreign;
  const std::vector<Subcommand> subcommands = add_subcommands(app, foreign);
  // After the subcommands, which would inherit it.
  app.footer(
      "`r2bench COMMAND --help` lists a command's options. The launcher ./r2bench also knows `build` and\n"
      "`test [CTEST OPTIONS]`.\n"
      "Start with: r2bench run nic_down");
  try {
    // What follows 'exec … --' is somebody else's command line: nothing of it is ours to read.
    auto [own, others] = split_at_program(argc, argv);
    foreign = std::move(others);
    app.parse(static_cast<int>(own.size()), own.data());
  } catch (const CLI::Success& told) {  // --help and --version
    return app.exit(told, console.out, console.err);
  } catch (const CLI::ParseError& error) {
    return explain_parse(app, error, argc > 1 ? argv[1] : "", console);
  }
  for (const Subcommand& subcommand : subcommands)
    if (subcommand.called()) return guarded(subcommand, runner, console);
  return kExitUsage;
}

}  // namespace r2bench
