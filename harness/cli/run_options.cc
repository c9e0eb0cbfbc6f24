// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/run_options.h"

#include <CLI/CLI.hpp>

#include "harness/launch/host_list.h"

namespace r2bench {

void RunCommandOptions::add_to(CLI::App& app) {
  command = app.add_subcommand("run", "Run scenarios and give a verdict");
  command->add_option("scenario", arguments.scenarios, "Scenario files, or names from `list`")->required();
  changes.add_to(*command);
  command->add_option(
      "--out", arguments.out,
      "Folder for the result (default: results/runs/NAME-TIME); of several scenarios: each has a "
      "folder of its name in it, and those of one name are NAME, NAME-2 …");
  command
      ->add_option(
          "--port", arguments.port,
          "Loopback TCP port over which ranks connect to the runner (default: socket pairs, no port)")
      ->check(CLI::Range(1, 65535));
  command
      ->add_option("--fabric", arguments.fabric,
                   "Override the scenario's fabric; rxe runs it in a QEMU guest")
      ->check(CLI::IsMember({"vhca", "rxe", "verbs", "none"}));
  command
      ->add_option(
          "--launcher", arguments.launcher,
          "What starts r2bench on the hosts: local (all nodes are on this machine), mpi (mpirun), "
          "slurm (srun), env (already started on each host, for example by torchrun; needs RANK, WORLD_SIZE "
          "and MASTER_ADDR) (default: local)")
      ->check(CLI::IsMember({"local", "mpi", "slurm", "env"}));
  command
      ->add_option(
          "--hosts", arguments.hosts,
          "With --launcher mpi or slurm: hosts, separated by commas (default: those of the allocation)")
      ->check(no_host_in);
  command
      ->add_option(
          "--slow-motion", arguments.slow_motion,
          "Run N times as slowly (N is a power of two): times are multiplied by N, rates divided by N "
          "(default: 1; on rxe chosen by measurement)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--shorter", arguments.shorter,
                   "Run 1/N of the iterations, with faults correspondingly earlier (default: 1; on rxe such "
                   "that a mode takes at most three minutes)")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--dry-run", arguments.dry_run, "Print the jobs without running them");
  command->add_flag("--no-plot", no_plot, "Do not draw the timeline");
  command->add_flag("--quiet", arguments.quiet, "Print the report only, no progress");
  command->add_flag("--allow-real-faults", arguments.allow_real_faults,
                    "Permit the faults real_*, which change this machine and revert the change afterwards");
  command->add_flag("--keep-going", arguments.keep_going,
                    "Continue with the next scenario if one does not pass");
  command->footer(
      "Exit status: 0 pass, 1 an expectation failed, 2 unknown, 64 wrong command line or scenario, 70 "
      "internal error, or the launcher has not started every host.\nExample: r2bench run nic_down");
}

RunArguments RunCommandOptions::finished() const {
  RunArguments finished = arguments;
  finished.load = changes.load();
  finished.plot = !no_plot;
  return finished;
}

}  // namespace r2bench
