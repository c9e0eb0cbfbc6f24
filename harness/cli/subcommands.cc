// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/subcommands.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "harness/cli/change_options.h"
#include "harness/cli/compare_options.h"
#include "harness/cli/doctor_options.h"
#include "harness/cli/exec_command_options.h"
#include "harness/cli/list_option.h"
#include "harness/cli/sim_options.h"

namespace r2bench {
namespace {

/// Its options are in `options` once the command line has been parsed.
template <typename Options, typename Run>
Subcommand subcommand(const CLI::App* app, std::shared_ptr<Options> options, Run run,
                      std::function<bool()> status_stands = nullptr) {
  return {[app] { return app->parsed(); },
          [options = std::move(options), run](const Runner& runner, const Console& console) {
            return run(*options, runner, console);
          },
          std::move(status_stands)};
}

bool always() { return true; }

Subcommand add_host_agent(CLI::App& app) {
  const auto launcher = std::make_shared<std::string>();
  CLI::App* agent = add_tool(app, "host-agent");
  agent->add_option("launcher", *launcher, "The launcher that started it: mpi, slurm or env")->required();
  return subcommand(agent, launcher, [](const std::string& given, const Runner&, const Console&) {
    return host_agent_command(given);
  });
}

Subcommand add_list(CLI::App& app) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App* list = add_tool(app, "list");
  CLI::Option* faults =
      list->add_flag("--faults", options->faults, "List the kinds of fault and their parameters instead");
  list->add_flag("--metrics", options->metrics, "List the metrics that a scenario can expect instead")
      ->excludes(faults);
  list->add_flag("--json", options->json, "With --faults or --metrics: print JSON, for scripts");
  return subcommand(list, options, [](const ListOptions& given, const Runner&, const Console& console) {
    return list_command(given, console);
  });
}

Subcommand add_explain(CLI::App& app) {
  struct Options {
    std::vector<std::string> files;
    ChangeOptions changes;
    PlanOptions plan;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* explain = add_tool(app, "explain");
  CLI::Option* explained = explain->add_option("scenario", options->files, "Scenario files or names");
  options->changes.add_to(*explain, "With a scenario");
  options->plan.add_to(*explain, "With --nodes or --capacities");
  for (CLI::Option* nodes : options->plan.of_nodes) nodes->excludes(explained);
  explain->footer(
      "Examples: r2bench explain nic_down\n  r2bench explain --capacities 1,1,0.5,1 --bytes 1GiB\n"
      "  r2bench explain --nodes 6 --nics 4 --lost 1:0,2:1,3:2 --bytes 1GiB");
  return subcommand(explain, options, [](const Options& given, const Runner&, const Console& console) {
    if (given.plan.job.says_nodes()) return explain_plan_command(given.plan.finished(), console);
    given.plan.check_unused();
    if (given.files.empty()) throw UsageError("explain needs a scenario, --nodes or --capacities");
    return explain_command(given.files, given.changes.load(), console);
  });
}

Subcommand add_validate(CLI::App& app) {
  const auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* validate = add_tool(app, "validate");
  validate->add_option("file", *files, "Scenarios (.yaml files or names) and results (.json files)")
      ->required();
  validate->footer("Exit status: 0 all files are valid, 64 one is not.");
  return subcommand(validate, files,
                    [](const std::vector<std::string>& given, const Runner&, const Console& console) {
                      return validate_command(given, console);
                    });
}

Subcommand add_plot(CLI::App& app) {
  struct Options {
    std::vector<std::string> results;
    std::string out, from = "results";
    bool all = false, strict = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* plot = add_tool(app, "plot");
  CLI::Option* plotted =
      plot->add_option("result", options->results, "result.json files, or folders of runs");
  plot->add_option("--out", options->out,
                   "Folder for the figures (default: the result's folder; with --all results/figures)");
  CLI::Option* all_figures =
      plot->add_flag("--all", options->all, "Draw every figure of the project from the tables in results/")
          ->excludes(plotted);
  plot->add_option("--results", options->from, "The folder with the tables (default: results)")
      ->needs(all_figures)
      ->group("With --all");
  plot->add_flag("--strict", options->strict, "Exit with status 1 if a figure has no data")
      ->needs(all_figures)
      ->group("With --all");
  return subcommand(plot, options, [](const Options& given, const Runner&, const Console& console) {
    if (given.all) return plot_all_command(given.from, given.out, given.strict, console);
    if (given.results.empty()) throw UsageError("plot needs a result, or --all");
    return plot_command(given.results, given.out, console);
  });
}

Subcommand add_report(CLI::App& app) {
  struct Options {
    std::vector<std::string> results;
    std::string out;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* report = add_tool(app, "report");
  report->add_option("result", options->results, "result.json files, or folders of runs")->required();
  report->add_option("-o,--out", options->out,
                     "The page's file (default: report.html beside the first result)");
  return subcommand(report, options, [](const Options& given, const Runner&, const Console& console) {
    return report_command(given.results, given.out, console);
  });
}

Subcommand add_trace(CLI::App& app) {
  struct Options {
    std::string result, out;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* trace = add_tool(app, "trace");
  trace->add_option("result", options->result, "A result.json, or the folder of a run")->required();
  trace->add_option("-o,--out", options->out, "The trace's file (default: trace.json beside the result)");
  return subcommand(trace, options, [](const Options& given, const Runner&, const Console& console) {
    return trace_command(given.result, given.out, console);
  });
}

Subcommand add_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  options->add_to(app);
  return subcommand(
      options->command, options,
      [](DoctorOptions& given, const Runner&, const Console& console) { return given.run(console); });
}

Subcommand add_guest(CLI::App& app, const std::vector<std::string>& foreign) {
  const auto arguments = std::make_shared<GuestArguments>();
  CLI::App* guest = add_tool(app, "guest");
  guest
      ->add_option(
          "--guests", arguments->guests,
          "Number of guests: 1, or 2 on one Ethernet with one node each; '::' separates their commands "
          "(default: 1)")
      ->check(CLI::Range(1, 2));
  guest->add_option("--nodes", arguments->nodes, "Number of nodes (default: 2)")->check(CLI::Range(1, 64));
  guest->add_option("--nics", arguments->nics, "Number of NICs per node, named node0_nic0 … (default: 4)")
      ->check(CLI::Range(1, 16));
  guest->add_option("--write", arguments->writable,
                    "The only folder to which the command can write (default: none); it can read all files");
  guest->footer(
      "The exit status is the command's; with two commands, the first status that is not 0.\n"
      "Examples: r2bench guest -- ibv_devices\n"
      "  r2bench guest --guests 2 -- ib_write_bw -d node0_nic0 -x 1 :: sh -c 'sleep 3; ib_write_bw -d "
      "node1_nic0 -x 1 node0'");
  return subcommand(
      guest, arguments,
      [&foreign](GuestArguments& given, const Runner&, const Console& console) {
        given.command = foreign;
        return guest_command(given, console);
      },
      always);
}

Subcommand add_conformance(CLI::App& app) {
  struct Options {
    ConformanceArguments arguments;
    bool no_faults = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* conformance = add_tool(app, "conformance");
  add_lists(*conformance, "--fabric", options->arguments.fabrics,
            "Fabrics, separated by commas (default: vhca,rxe)",
            [](const std::string& entry) {
              return entry == "vhca" || entry == "rxe" || entry == "verbs" ? ""
                                                                           : "is none of vhca, rxe, verbs";
            })
      ->type_name("TEXT:{vhca,rxe,verbs}");
  conformance
      ->add_option("--case", options->arguments.cases,
                   "Of the cases without faults, run only those whose names begin with this; may be repeated")
      ->allow_extra_args(false);
  conformance->add_flag("--no-faults", options->no_faults, "Leave out the cases with faults");
  conformance->add_option("--out", options->arguments.out,
                          "Folder for the table (default: results/runs/conformance-TIME)");
  conformance->add_option("--raw", options->arguments.raw,
                          "With one fabric: write its observations as JSON to this file instead of a table");
  conformance->footer("Exit status: 0 all deviations are explained and accepted, 1 a deviation is not.");
  return subcommand(
      conformance, options,
      [](Options& given, const Runner&, const Console& console) {
        given.arguments.faults = !given.no_faults;
        return conformance_command(given.arguments, console);
      },
      always);
}

Subcommand add_matrix(CLI::App& app) {
  const auto arguments = std::make_shared<MatrixArguments>();
  CLI::App* matrix = add_tool(app, "matrix");
  matrix
      ->add_option(
          "--only", arguments->only,
          "Run only cells that match FAULT/MOMENT/OPERATION/END, such as 'port_down/*/SendRecv/*'; END is "
          "sender, receiver or both")
      ->allow_extra_args(false);
  matrix
      ->add_option("--jobs", arguments->jobs,
                   "Number of cells that run at the same time (default: one per core)")
      ->check(CLI::Range(1, 256));
  add_seed(*matrix, arguments->seed, "Seed of everything random (default: 1)");
  matrix->add_option("--mode", arguments->mode, "Mode of all jobs (default: migrate)")
      ->check(CLI::IsMember({"migrate", "balance", "allreduce"}));
  matrix->add_option("--out", arguments->out, "Folder for the tables (default: results/runs/matrix-TIME)");
  matrix->add_flag("--list", arguments->list, "Print the cells without running them, and why some are empty");
  matrix->footer(
      "Exit status: 0 all cells pass, 1 a cell fails, 2 the fault of a cell missed its moment, 64 wrong "
      "command line, 70 internal error.");
  return subcommand(
      matrix, arguments,
      [](const MatrixArguments& given, const Runner&, const Console& console) {
        return matrix_command(given, console);
      },
      [arguments] { return !arguments->list; });
}

Subcommand add_export(CLI::App& app) {
  struct Options {
    ExportArguments arguments;
    std::string format;  // there is one
  };
  const auto options = std::make_shared<Options>();
  CLI::App* export_results = add_tool(app, "export");
  export_results->add_option("result", options->arguments.results, "result.json files, or folders of runs")
      ->required();
  export_results
      ->add_option("--format", options->format, "nccl-tests: the JSON of nccl-tests' option -J, version 3")
      ->required()
      ->check(CLI::IsMember({"nccl-tests"}));
  export_results->add_option("--mode", options->arguments.mode, "Export only runs of this mode");
  export_results->add_option("--out", options->arguments.out, "The file to write (default: standard output)");
  return subcommand(export_results, options, [](const Options& given, const Runner&, const Console& console) {
    return export_command(given.arguments, console);
  });
}

Subcommand add_env(CLI::App& app) {
  const auto mode = std::make_shared<std::string>("migrate");
  CLI::App* env = add_tool(app, "env");
  env->add_option("--mode", *mode, "The plugin's mode (default: migrate)")
      ->check(CLI::IsMember({"baseline", "migrate", "balance", "allreduce"}));
  env->footer("Example: eval \"$(r2bench env --mode balance)\"");
  return subcommand(env, mode, [](const std::string& given, const Runner&, const Console& console) {
    return env_command(given, console);
  });
}

Subcommand add_exec(CLI::App& app, const std::vector<std::string>& foreign) {
  const auto options = std::make_shared<ExecCommandOptions>();
  options->add_to(app);
  return subcommand(
      options->command, options,
      [&foreign](ExecCommandOptions& given, const Runner&, const Console& console) {
        given.arguments.command = foreign;
        return exec_command(given.finished(), console);
      },
      always);
}

Subcommand add_inject(CLI::App& app) {
  const auto options = std::make_shared<InjectOptions>();
  options->add_to(app);
  return {[options] { return options->parsed(); },
          [options](const Runner&, const Console& console) {
            return inject_command(options->finished(), console);
          }};
}

Subcommand add_sim(CLI::App& app) {
  const auto options = std::make_shared<SimOptions>();
  options->add_to(app);
  return subcommand(options->command, options,
                    [](const SimOptions& given, const Runner&, const Console& console) {
                      return sim_command(given.finished(), console);
                    });
}

std::vector<Subcommand> add_comparisons(CLI::App& app) {
  struct Options {
    CompareOptions both;
    ChangeOptions gate_changes;
  };
  const auto options = std::make_shared<Options>();
  options->both.add_to(app);
  options->gate_changes.add_to(*options->both.gate);
  return {subcommand(options->both.compare, options,
                     [](const Options& given, const Runner&, const Console& console) {
                       return compare_command(given.both.compare_finished(), console);
                     }),
          subcommand(
              options->both.gate, options,
              [](const Options& given, const Runner& runner, const Console& console) {
                GateArguments gate = given.both.gate_finished();
                gate.load = given.gate_changes.load();
                return gate_command(gate, runner, console);
              },
              always)};
}

}  // namespace

std::vector<Subcommand> add_all_subcommands(CLI::App& app, const std::vector<std::string>& foreign) {
  std::vector<Subcommand> all{add_run(app, run_command)};
  for (const auto add :
       {add_host_agent, add_list, add_explain, add_validate, add_plot, add_report, add_trace, add_doctor})
    all.push_back(add(app));
  all.push_back(add_guest(app, foreign));
  for (const auto add : {add_conformance, add_matrix, add_export, add_env}) all.push_back(add(app));
  all.push_back(add_exec(app, foreign));
  for (const auto add : {add_inject, add_sim}) all.push_back(add(app));
  for (Subcommand& comparison : add_comparisons(app)) all.push_back(std::move(comparison));
  return all;
}

int r2bench_main(int argc, const char* const* argv, const Runner& runner, const Console& console) {
  return program_main(argc, argv, add_all_subcommands, runner, console);
}

}  // namespace r2bench
