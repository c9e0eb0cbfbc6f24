// SPDX-License-Identifier: Apache-2.0
// `r2bench exec`: a program on a node of a shared fabric, with the injector preloaded.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <ostream>
#include <system_error>

#include "faultinject/plan/plan_text.h"
#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/control/control_client.h"
#include "harness/exec/child_program.h"
#include "harness/exec/membership.h"
#include "harness/exec/witness_story.h"
#include "harness/launch/marked_processes.h"
#include "harness/launch/process.h"
#include "harness/report/report.h"
#include "harness/report/whole_file.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEffectsTold = 12;
constexpr int kExitNotFound = 127;  // as shells and env(1) do
constexpr int kExitNotExecuted = 126;

std::map<std::string, std::string> environment_of(const Membership& membership, const std::string& program) {
  auto environment = current_environment();
  for (const auto& [variable, value] : membership.environment) environment[variable] = value;
  Injection injection = membership.injection;
  const auto own = environment.find("FAULTINJECT_RANK");
  injection.rank = own != environment.end() ? own->second : program.substr(0, 23);
  add_injection(environment, injection);
  environment[kMarkVariable] = membership.mark;
  return environment;
}

/// Takes back what the command armed, and says what it did. Never changes the exit status.
void end_plan(Membership& membership, const ExecArguments& arguments, const std::vector<uint32_t>& ids,
              const Console& console) {
  try {
    const nlohmann::json story = collect_story(membership.holder, arguments.name, ids);
    for (const uint32_t id : ids) ask(membership.holder, {{"type", "remove"}, {"id", id}});
    console.err << "r2bench: what the faults of " << arguments.plan << " did:\n";
    tell(story, kEffectsTold, console.err);
    if (!arguments.witness.empty()) write_file(arguments.witness, story.dump(2) + "\n");
  } catch (const ControlError& error) {
    console.err << "r2bench: the effects of the faults cannot be listed: " << error.what() << "\n";
  } catch (const OutputError& error) {
    console.err << "r2bench: " << error.what() << "\n";
  } catch (const UsageError& error) {  // a run has meanwhile written its files there
    console.err << "r2bench: " << error.what() << "\n";
  }
}

}  // namespace

int exec_command(const ExecArguments& arguments, const Console& console) {
  if (arguments.command.empty())
    throw UsageError(
        "nothing to run; write the program after '--', such as: r2bench exec --node node0 -- ib_write_bw");
  if (!arguments.witness.empty() && arguments.plan.empty())
    throw UsageError("--witness needs --plan: it lists the effects of the plan's faults");
  if (!arguments.witness.empty()) {
    refuse_file_of_run(arguments.witness);
    check_writable(arguments.witness);
  }
  const std::string lib_dir = (program_prefix() / "lib").string();
  if (::access(injector_library(lib_dir).c_str(), R_OK) != 0)
    throw UsageError("the injector is missing: there is no " + injector_library(lib_dir) +
                     "; build it first");
  std::string plan;
  if (!arguments.plan.empty()) {
    plan = read_file(arguments.plan);
    faultinject::parse_plan(plan, arguments.plan);  // before anything is started
  }
  const std::string program = fs::path(arguments.command.front()).filename().string();
  Membership membership;
  try {
    membership = join_fabric(arguments.name, arguments.node, program, arguments.wanted, lib_dir);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  std::vector<uint32_t> ids;
  if (!plan.empty()) {
    const nlohmann::json request = {{"type", "add"}, {"text", plan}, {"file", arguments.plan}};
    ids = ask(membership.holder, request).at("ids").get<std::vector<uint32_t>>();
  }
  if (!arguments.quiet)
    console.err << "r2bench: " << program << " on " << arguments.node << " of the "
                << (membership.started > 0 ? "new fabric '" : "fabric '") << arguments.name << "' ("
                << describe(membership.shape) << ")\n"
                << std::flush;

  const ChildSignals signals;  // until the very end: a Ctrl-C must not cut the story short
  int status = 0;
  try {
    status = run_child(arguments.command, environment_of(membership, program), signals,
                       membership.holder.fd(), [&] {
                         console.err << "r2bench: the fabric '" << arguments.name
                                     << "' has lost its holder process: the program continues, but no "
                                        "command can join or heal faults any more\n"
                                     << std::flush;
                       });
  } catch (const std::system_error& error) {
    console.err << "r2bench: " << error.what() << "\n";
    status = error.code().value() == ENOENT ? kExitNotFound : kExitNotExecuted;
  }
  if (!plan.empty()) end_plan(membership, arguments, ids, console);
  leave(membership);
  return status;
}

}  // namespace r2bench
