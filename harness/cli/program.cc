// SPDX-License-Identifier: Apache-2.0
// The command line itself, and what an exception means for the exit status.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <sstream>
#include <tuple>

#include "faultinject/plan/plan.h"
#include "harness/cli/cluster_command.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare_options.h"
#include "harness/cli/exec_options.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/sim_options.h"
#include "harness/control/control_socket.h"
#include "harness/report/result_file.h"
#include "harness/report/run_folder.h"
#include "harness/report/stored_run.h"
#include "harness/run/revision.h"

namespace r2bench {
namespace {

/// What several commands take to change a scenario.
struct Changes {
  std::string modes;
  int repeats = 0;
  uint64_t seed = 0;
  std::vector<std::string> set;
  CLI::Option* has_repeats = nullptr;
  CLI::Option* has_seed = nullptr;

  void add_to(CLI::App& command) {
    command.add_option("--modes", modes,
                       "Modes to run, separated by commas (baseline, migrate, or labels of the file)");
    has_repeats = command.add_option("--repeats", repeats, "Faults per job, at random phases")
                      ->check(CLI::Range(1, 10000));
    has_seed = command.add_option("--seed", seed, "Seed of everything random");
    command.add_option("--set", set, "Override one key, such as --set workload.bytes='4 MiB'")
        ->allow_extra_args(false);
  }

  LoadOptions load() const {
    LoadOptions options;
    std::istringstream stream(modes);
    for (std::string mode; std::getline(stream, mode, ',');) {
      if (!mode.empty()) options.modes.push_back(mode);
    }
    if (!modes.empty() && options.modes.empty()) throw UsageError("--modes names no mode");
    if (has_repeats->count() > 0) options.repeats = repeats;
    if (has_seed->count() > 0) options.seed = seed;
    for (const std::string& text : set) {
      const size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0)
        throw UsageError("--set " + text + ": write --set key=value");
      options.set.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return options;
  }
};

}  // namespace

int r2bench_main(int argc, const char* const* argv, const Runner& runner, const Console& console) {
  CLI::App app(
      "r2bench breaks network cards under a running job, measures what it cost, and says pass or fail.");
  app.name("r2bench");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("r2bench, built from commit ") + build_revision());
  app.footer(
      "Exit status: 0 pass, 1 an expectation failed, 2 unknown, 64 usage or bad scenario, 70 internal "
      "error.\n"
      "Start with: r2bench run nic_down");

  RunArguments arguments;
  Changes run_changes;
  bool no_plot = false;
  CLI::App* run = app.add_subcommand("run", "Run scenarios and give a verdict");
  run->add_option("scenario", arguments.scenarios, "Scenario files, or names from `list`")->required();
  run_changes.add_to(*run);
  run->add_option("--out", arguments.out, "Folder for the result (results/runs/NAME-TIME)");
  run->add_option("--port", arguments.port,
                  "TCP port on the loopback for the ranks' bootstrap (by default none is used)")
      ->check(CLI::Range(1, 65535));
  run->add_option("--fabric", arguments.fabric,
                  "vhca, rxe, verbs or none instead of the scenarios' own; rxe runs them in a QEMU guest")
      ->check(CLI::IsMember({"vhca", "rxe", "verbs", "none"}));
  run->add_option(
         "--launcher", arguments.launcher,
         "Who starts the nodes' hosts: local (this machine alone), mpi (mpirun), slurm (srun), or env "
         "(whoever started this program on each with RANK, WORLD_SIZE, MASTER_ADDR: torchrun)")
      ->check(CLI::IsMember({"local", "mpi", "slurm", "env"}));
  run->add_option("--hosts", arguments.hosts,
                  "For --launcher mpi and slurm: hosts, separated by commas (else all of the allocation)");
  run->add_option("--slow-motion", arguments.slow_motion,
                  "Multiply times and divide rates by N, a power of two (1; measured on rxe)")
      ->check(CLI::Range(1, 4096));
  run->add_option("--shorter", arguments.shorter,
                  "Divide iterations, and those at which faults strike, by N (1; measured on rxe)")
      ->check(CLI::Range(1, 1000));
  run->add_flag("--dry-run", arguments.dry_run, "Print the jobs, and run nothing");
  run->add_flag("--no-plot", no_plot, "Make no picture");
  run->add_flag("--quiet", arguments.quiet, "No progress, only the report");
  run->add_flag("--allow-real-faults", arguments.allow_real_faults,
                "Permit faults real_*, which change this machine and put it back");
  run->add_flag("--keep-going", arguments.keep_going, "Run the other scenarios when one does not pass");

  std::string agent_launcher;
  CLI::App* agent = app.add_subcommand("host-agent", "")->group("");  // for launchers only
  agent->add_option("launcher", agent_launcher)->required();

  ListOptions list_options;
  CLI::App* list = app.add_subcommand("list", "List the scenarios that come with the program, or the faults");
  list->add_flag("--faults", list_options.faults, "The kinds of fault and their parameters");
  list->add_flag("--json", list_options.json, "With --faults: as JSON, for scripts");

  std::vector<std::string> explain_files;
  Changes explain_changes;
  CLI::App* explain =
      app.add_subcommand("explain", "Describe a scenario in sentences, or the plan of an AllReduce");
  CLI::Option* explained = explain->add_option("scenario", explain_files, "Scenario files or names");
  explain_changes.add_to(*explain);
  PlanOptions plan;
  plan.add_to(*explain);
  plan.capacities->excludes(explained);
  explain->footer(
      "Examples: r2bench explain nic_down\n  r2bench explain --capacities 1,1,0.5,1 --bytes 1GiB");

  std::vector<std::string> validate_files;
  CLI::App* validate = app.add_subcommand("validate", "Check scenario files and result.json files");
  validate->add_option("file", validate_files, "Scenarios (.yaml or names) and results (.json)")->required();

  std::vector<std::string> plot_results;
  std::string plot_out;
  bool plot_all = false, plot_strict = false;
  std::string plot_from = "results";
  CLI::App* plot = app.add_subcommand("plot", "Draw the figures of results (PNG and PDF)");
  CLI::Option* plotted = plot->add_option("result", plot_results, "result.json files, or folders of runs");
  plot->add_option("--out", plot_out,
                   "Folder for the pictures (else beside the result; --all: results/figures)");
  CLI::Option* all_figures =
      plot->add_flag("--all", plot_all, "Every figure of the project, from the tables in results/")
          ->excludes(plotted);
  plot->add_option("--results", plot_from, "--all: the folder to look in (results)")->needs(all_figures);
  plot->add_flag("--strict", plot_strict, "--all: exit status 1 when a figure has no data")
      ->needs(all_figures);

  std::vector<std::string> report_results;
  std::string report_out;
  CLI::App* report = app.add_subcommand("report", "Make one HTML page of one or several results");
  report->add_option("result", report_results, "result.json files, or folders of runs")->required();
  report->add_option("-o,--out", report_out, "The page's file (else report.html beside the first result)");

  std::string trace_result, trace_out;
  CLI::App* trace = app.add_subcommand("trace", "Make a Chrome/Perfetto trace of a run's event log");
  trace->add_option("result", trace_result, "A result.json, or the folder of a run")->required();
  trace->add_option("-o,--out", trace_out, "The trace's file (else trace.json beside the result)");

  CLI::App* doctor =
      app.add_subcommand("doctor", "Report what this machine has, and what would prevent a run");
  std::string doctor_fabric;
  doctor->add_option("--fabric", doctor_fabric, "The fabric that decides the exit status (vhca)")
      ->check(CLI::IsMember({"vhca", "rxe", "verbs"}));
  bool draw = false;
  TopologyArguments topology_arguments;
  CLI::Option* topology_flag =
      doctor->add_flag("--topology", draw, "Draw sockets, switches, GPUs and NICs, and their distances");
  CLI::Option* topology_xml =
      doctor
          ->add_option("--xml", topology_arguments.xml,
                       "Draw the machine in this file, as `lstopo --of xml` writes it")
          ->needs(topology_flag);
  ClusterArguments cluster;
  bool prove = false, first = false;
  CLI::Option* cluster_flag =
      doctor->add_flag("--cluster", prove, "Prove RDMA between all ports, and say what they lack");
  std::string cluster_hosts;
  doctor->add_option("--host", cluster_hosts, "With --cluster: hosts, separated by commas (else this one)")
      ->needs(cluster_flag);
  doctor->add_flag("--json", cluster.json, "With --cluster: as JSON")->needs(cluster_flag);
  doctor
      ->add_option("--ssh", cluster.ssh,
                   "With --cluster: words in front of a host's name (ssh -o BatchMode=yes)")
      ->needs(cluster_flag);
  doctor
      ->add_option("--probe", cluster.probe, "With --cluster: path of r2bench-port-probe on the other hosts")
      ->needs(cluster_flag);
  FirstDayArguments first_day;
  CLI::Option* first_day_flag =
      doctor->add_flag("--first-day", first, "What only real NICs can show, in the order that risks least");
  doctor->add_flag("--run", first_day.run, "With --first-day: carry out what is next")->needs(first_day_flag);
  doctor->add_flag("--markdown", first_day.markdown, "With --first-day: print the page")
      ->needs(first_day_flag);
  doctor
      ->add_flag("--allow-real-faults", first_day.allow_real_faults,
                 "With --first-day: steps that change the machine, too")
      ->needs(first_day_flag);
  for (const auto& [option, value, words] :
       {std::tuple("--skip", &first_day.skip, "With --first-day: leave this step out"),
        std::tuple("--done", &first_day.done, "With --first-day: this step was done by hand"),
        std::tuple("--again", &first_day.again, "With --first-day: do this step once more"),
        std::tuple("--hosts", &first_day.hosts, "With --first-day: hosts, separated by commas"),
        std::tuple("--out", &first_day.folder,
                   "With --first-day: folder of logs and of what is done (first_day)")})
    doctor->add_option(option, *value, words)->needs(first_day_flag);
  first_day_flag->excludes(cluster_flag);
  doctor->add_option("--scenario", topology_arguments.scenario, "Draw a node that this scenario declares")
      ->needs(topology_flag)
      ->excludes(topology_xml);

  GuestArguments guest_arguments;
  CLI::App* guest = app.add_subcommand("guest", "Run a command in a QEMU guest with soft RoCE devices");
  guest
      ->add_option("--guests", guest_arguments.guests,
                   "2: two guests on one Ethernet, a node in each; '::' separates their commands")
      ->check(CLI::Range(1, 2));
  guest->add_option("--nodes", guest_arguments.nodes, "Nodes (2)")->check(CLI::Range(1, 64));
  guest->add_option("--nics", guest_arguments.nics, "NICs of each node (4): node0_nic0 …")
      ->check(CLI::Range(1, 16));
  guest->add_option("--write", guest_arguments.writable,
                    "The folder that the command may write; it can read all others");
  guest->footer(
      "Examples: r2bench guest -- ibv_devices\n"
      "  r2bench guest --guests 2 -- ib_write_bw -d node0_nic0 -x 1 :: sh -c 'sleep 3; ib_write_bw -d "
      "node1_nic0 -x 1 "
      "node0'");

  ConformanceArguments conformance_arguments;
  bool no_faults = false;
  CLI::App* conformance =
      app.add_subcommand("conformance", "Run the verbs conformance suite and write the table of deviations");
  conformance
      ->add_option("--fabric", conformance_arguments.fabrics, "Fabrics, separated by commas (vhca,rxe)")
      ->delimiter(',')
      ->check(CLI::IsMember({"vhca", "rxe", "verbs"}));
  conformance->add_option("--case", conformance_arguments.cases, "Only cases whose names begin with this")
      ->allow_extra_args(false);
  conformance->add_flag("--no-faults", no_faults, "Leave out the fault cases");
  conformance->add_option("--out", conformance_arguments.out,
                          "Folder of the table (else results/runs/conformance-TIME)");
  conformance->add_option("--raw", conformance_arguments.raw,
                          "Write one fabric's result as JSON to this file, and no table");

  MatrixArguments matrix_arguments;
  CLI::App* matrix = app.add_subcommand(
      "matrix", "Run every kind of fault at every moment of every kind of job: the fault matrix");
  matrix
      ->add_option("--only", matrix_arguments.only,
                   "Only cells FAULT/MOMENT/OPERATION/SIDE that match, such as 'port_down/*/SendRecv/*'")
      ->allow_extra_args(false);
  matrix->add_option("--jobs", matrix_arguments.jobs, "Cells that run at the same time (one per core)")
      ->check(CLI::Range(1, 256));
  matrix->add_option("--seed", matrix_arguments.seed, "Seed of everything random (1)");
  matrix->add_option("--mode", matrix_arguments.mode, "migrate (the default), balance or allreduce")
      ->check(CLI::IsMember({"migrate", "balance", "allreduce"}));
  matrix->add_option("--out", matrix_arguments.out, "Folder of the tables (else results/runs/matrix-TIME)");
  matrix->add_flag("--list", matrix_arguments.list,
                   "Print the cells, with the reasons of empty ones, and run nothing");

  ExportArguments export_arguments;
  std::string export_format;
  CLI::App* export_results =
      app.add_subcommand("export", "Write throughput results in another program's format");
  export_results->add_option("result", export_arguments.results, "result.json files, or folders of runs")
      ->required();
  export_results->add_option("--format", export_format, "nccl-tests: the JSON of its option -J, version 3")
      ->required()
      ->check(CLI::IsMember({"nccl-tests"}));
  export_results->add_option("--mode", export_arguments.mode, "Only runs of this mode");
  export_results->add_option("--out", export_arguments.out, "File (else standard output)");

  std::string env_mode = "migrate";
  CLI::App* env =
      app.add_subcommand("env", "Print the variables with which a job of your own loads the plugin");
  env->add_option("--mode", env_mode, "baseline, migrate (the default), balance or allreduce")
      ->check(CLI::IsMember({"baseline", "migrate", "balance", "allreduce"}));
  env->footer("Example: eval \"$(r2bench env --mode balance)\"");

  ExecOptions exec;
  exec.add_to(app);
  InjectOptions inject;
  inject.add_to(app);
  SimOptions sim;
  sim.add_to(app);
  CompareOptions compare;
  compare.add_to(app);
  Changes gate_changes;
  gate_changes.add_to(*compare.gate);

  try {
    // What follows 'exec … --' is somebody else's command line: nothing of it is ours to read.
    const auto [own, foreign] = split_at_program(argc, argv);
    exec.arguments.command = guest_arguments.command = foreign;
    app.parse(static_cast<int>(own.size()), own.data());
  } catch (const CLI::Success& told) {  // --help and --version
    return app.exit(told, console.out, console.err);
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    const std::string word = argc > 1 ? argv[1] : "";
    if (!word.empty() && word[0] != '-' &&
        std::find(commands.begin(), commands.end(), word) == commands.end()) {
      const auto meant = faultinject::nearest(word, commands);
      console.err << "r2bench: '" << word << "' is no command"
                  << (meant ? "; did you mean '" + *meant + "'?" : "")
                  << "\nRun with --help for more information.\n";
      return kExitUsage;
    }
    app.exit(error, console.out, console.err);
    return kExitUsage;
  }

  try {
    if (run->parsed()) {
      arguments.load = run_changes.load();
      arguments.plot = !no_plot;
      return run_command(arguments, runner, console);
    }
    if (list->parsed()) return list_command(list_options, console);
    if (explain->parsed() && plan.capacities->count() > 0)
      return explain_plan_command(plan.finished(), console);
    if (explain->parsed() && explain_files.empty())
      throw UsageError("explain needs a scenario, or --capacities");
    if (sim.command->parsed()) return sim_command(sim.finished(), console);
    if (explain->parsed()) return explain_command(explain_files, explain_changes.load(), console);
    if (validate->parsed()) return validate_command(validate_files, console);
    if (plot->parsed() && plot_all) return plot_all_command(plot_from, plot_out, plot_strict, console);
    if (plot->parsed() && plot_results.empty()) throw UsageError("plot needs a result, or --all");
    if (plot->parsed()) return plot_command(plot_results, plot_out, console);
    if (report->parsed()) return report_command(report_results, report_out, console);
    if (trace->parsed()) return trace_command(trace_result, trace_out, console);
    if (prove) {
      std::istringstream hosts(cluster_hosts);
      for (std::string host; std::getline(hosts, host, ',');) cluster.hosts.push_back(host);
      return cluster_command(cluster, console);
    }
    if (first) return first_day_command(first_day, console);
    if (doctor->parsed() && draw) return topology_command(topology_arguments, console);
    if (doctor->parsed()) return doctor_command(doctor_fabric, console);
    if (conformance->parsed()) {
      conformance_arguments.faults = !no_faults;
      return conformance_command(conformance_arguments, console);
    }
    if (env->parsed()) return env_command(env_mode, console);
    if (matrix->parsed()) return matrix_command(matrix_arguments, console);
    if (agent->parsed()) return host_agent_command(agent_launcher);
    if (guest->parsed()) return guest_command(guest_arguments, console);
    if (exec.command->parsed()) return exec_command(exec.finished(), console);
    if (export_results->parsed()) return export_command(export_arguments, console);
    if (compare.compare->parsed()) return compare_command(compare.compare_finished(), console);
    if (compare.gate->parsed()) {
      GateArguments gate = compare.gate_finished();
      gate.load = gate_changes.load();
      return gate_command(gate, runner, console);
    }
    if (inject.parsed()) return inject_command(inject.finished(), console);
    return kExitUsage;
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

}  // namespace r2bench
