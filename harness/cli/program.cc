// SPDX-License-Identifier: Apache-2.0
// The command line itself, and what an exception means for the exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <new>
#include <ostream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "faultinject/plan/plan.h"
#include "harness/base/revision.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/run_options.h"
#include "harness/cli/run_parts.h"
#include "harness/cli/subcommands.h"
#include "harness/cli/tools_program.h"
#include "harness/control/control_socket.h"
#include "harness/report/result_file.h"
#include "harness/report/run_folder.h"
#include "harness/report/stored_run.h"

namespace r2bench {
namespace {

/// The command that was being read when the error came, innermost.
const CLI::App& command_of(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

/// The option of the command that the user may have meant by the first option that it does not know.
std::string meant_option(const CLI::App& command, const CLI::ParseError& error) {
  if (error.get_exit_code() != int(CLI::ExitCodes::ExtrasError)) return "";
  const std::string said = error.what();
  size_t at = said.find(" --");  // what is told before the words has none
  if (at++ == std::string::npos) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const auto meant = faultinject::nearest(said.substr(at, said.find_first_of(" =", at) - at), names);
  return meant ? "; did you mean '" + *meant + "'?" : "";
}

/// A variable of a script that is not set: "--out $FOLDER" must not mean the default. Throws CLI::ParseError.
void refuse_empty_values(const CLI::App& command) {
  static const std::vector<std::string> kMayBeEmpty = {"--run-options"};  // more options, or none
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> given = option->results();
    const std::string name = option->get_name();
    if (std::find(given.begin(), given.end(), "") != given.end() &&
        std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(), name) == kMayBeEmpty.end())
      throw CLI::ValidationError(name, "is empty");
  }
}

/// Says what is wrong with the command line; the exit status.
int explain_parse(const CLI::App& app, const CLI::ParseError& error, const std::string& word,
                  const Console& console) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (!word.empty() && word[0] != '-' &&
      std::find(commands.begin(), commands.end(), word) == commands.end()) {
    const auto meant = faultinject::nearest(word, commands);
    console.err << "r2bench: '" << word << "' is no command"
                << (meant ? "; did you mean '" + *meant + "'?" : "")
                << "\n`r2bench --help` lists the commands.\n";
    return kExitUsage;
  }
  const CLI::App& command = command_of(app);
  std::string path = command.get_name();
  for (const CLI::App* above = command.get_parent(); above != nullptr; above = above->get_parent())
    path = above->get_name() + " " + path;
  console.err << path << ": " << error.what() << meant_option(command, error) << "\n"
              << "`" << path << " --help` lists the " << (&command == &app ? "commands" : "options") << ".\n";
  return kExitUsage;
}

/// What the user can do about a limit of the machine or the shell; empty: it is none.
const char* advice_for(int error) {
  switch (error) {
    case EMFILE:
      return "; raise the limit, which `ulimit -n` prints";
    case ENFILE:
      return "; the whole machine has too many open: /proc/sys/fs/file-max";
    case ENOMEM:
      return "; free memory, or raise the limit, which `ulimit -v` prints";
    case EAGAIN:
      return "; raise the limit of processes, which `ulimit -u` prints";
    case ENOSPC:
    case EDQUOT:
      return "; free some space";
    default:
      return "";
  }
}

/// The exit status after all that was printed: output that is lost is said, and makes 64 of a 0 that does not
/// stand without it.
int after_output(int status, bool stands, const Console& console) {
  if (!console.has_lost_output()) return status;
  console.err << "r2bench: the output is not complete: it cannot be written; is the disk full?\n";
  return status == 0 && !stands ? kExitUsage : status;
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
  } catch (const std::filesystem::filesystem_error& error) {
    console.err << "r2bench: " << error.path1().string() << ": " << error.code().message()
                << advice_for(error.code().value()) << "\n";
    return kExitUsage;
  } catch (const std::bad_alloc&) {
    console.err << "r2bench: out of memory" << advice_for(ENOMEM) << "\n";
    return kExitUsage;
  } catch (const std::system_error& error) {
    const std::string advice = advice_for(error.code().value());
    console.err << "r2bench: " << (advice.empty() ? "internal error: " : "") << error.what() << advice
                << "\n";
    return advice.empty() ? kExitInternal : kExitUsage;
  } catch (const std::exception& error) {
    console.err << "r2bench: internal error: " << error.what() << "\n";
    return kExitInternal;
  }
}

}  // namespace

std::pair<std::vector<const char*>, std::vector<std::string>> split_at_program(int argc,
                                                                               const char* const* argv) {
  std::vector<const char*> own;
  std::vector<std::string> foreign;
  const bool exec = argc > 1 && (std::string_view(argv[1]) == "exec" || std::string_view(argv[1]) == "guest");
  bool behind = false;
  for (int i = 0; i < argc; ++i) {
    if (exec && !behind && std::string_view(argv[i]) == "--")
      behind = true;
    else if (behind)
      foreign.emplace_back(argv[i]);
    else
      own.push_back(argv[i]);
  }
  return {own, foreign};
}

Subcommand add_run(CLI::App& app,
                   std::function<int(const RunArguments&, const Runner&, const Console&)> run) {
  const auto options = std::make_shared<RunCommandOptions>();
  options->add_to(app);
  return {[options] { return options->command->parsed(); },
          [options, run = std::move(run)](const Runner& runner, const Console& console) {
            return run(options->finished(), runner, console);
          },
          [options] { return !options->arguments.dry_run; }};
}

CLI::App* add_tool(CLI::App& app, const char* name) {
  const ToolCommand* found = tool_command(name);
  if (!found) throw std::logic_error(std::string(name) + " is in no row of kToolCommands");
  const ToolCommand& tool = *found;
  CLI::App* command = app.add_subcommand(tool.name, tool.summary);
  return tool.hidden ? command->group("") : command;
}

int program_main(int argc, const char* const* argv, const AddSubcommands& add, const Runner& runner,
                 const Console& console) {
  CLI::App app(
      "r2bench makes NICs of a running job fail, measures the cost to the job, and gives a verdict.");
  app.name("r2bench");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("r2bench, built from commit ") + build_revision());
  std::vector<std::string> foreign;
  const std::vector<Subcommand> subcommands = add(app, foreign);
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
    refuse_empty_values(command_of(app));
  } catch (const CLI::Success& told) {  // --help and --version
    return after_output(app.exit(told, console.out, console.err), false, console);
  } catch (const CLI::ParseError& error) {
    return explain_parse(app, error, argc > 1 ? argv[1] : "", console);
  }
  for (const Subcommand& subcommand : subcommands) {
    if (!subcommand.called()) continue;
    const int status = guarded(subcommand, runner, console);
    return after_output(status, subcommand.status_stands && subcommand.status_stands(), console);
  }
  return kExitUsage;
}

int plain_main(int argc, const char* const* argv, const Runner& runner, const Console& console) {
  if (argc > 1 && tool_command(argv[1]) != nullptr) return become_tools(argv, console);
  const auto run = [argv](const RunArguments& arguments, const Runner& with, const Console& to) {
    const auto status = plain_run(arguments, with, to);
    return status ? *status : become_tools(argv, to);
  };
  const auto add = [&](CLI::App& app, const std::vector<std::string>&) {
    std::vector<Subcommand> all{add_run(app, run)};
    for (const ToolCommand& tool : kToolCommands) add_tool(app, tool.name);  // for --help
    return all;
  };
  return program_main(argc, argv, add, runner, console);
}

}  // namespace r2bench
