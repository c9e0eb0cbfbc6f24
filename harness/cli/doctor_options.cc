// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/doctor_options.h"
#include "harness/cli/subcommands.h"

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <tuple>

#include "harness/launch/host_list.h"
#include "harness/run/runner.h"

namespace r2bench {

void DoctorOptions::add_to(CLI::App& app) {
  command = add_tool(app, "doctor");
  command
      ->add_option("--fabric", fabric_,
                   "Exit with status 1 if scenarios cannot run on this fabric (default: vhca)")
      ->check(CLI::IsMember({"vhca", "rxe", "verbs"}));
  command->footer("Exit status: 0 nothing is missing, 1 something is.");
  add_topology(*command);
  CLI::Option* hosts =
      command->add_option("--hosts", first_day_.hosts, "Hosts, separated by commas (default: this one)")
          ->check(no_host_in)
          ->group("With --cluster or --first-day");
  CLI::Option* cluster = add_cluster(*command, hosts);
  add_first_day(*command)->excludes(cluster);
}

void DoctorOptions::add_topology(CLI::App& doctor) {
  CLI::Option* topology_flag =
      doctor.add_flag("--topology", draw_, "Draw sockets, switches, GPUs and NICs, and their distances");
  const std::string group = "With --topology";
  CLI::Option* topology_xml =
      doctor
          .add_option("--xml", topology_.xml, "Draw the machine in this file, written by `lstopo --of xml`")
          ->needs(topology_flag)
          ->group(group);
  doctor.add_option("--scenario", topology_.scenario, "Draw a node that this scenario declares")
      ->needs(topology_flag)
      ->excludes(topology_xml)
      ->group(group);
}

CLI::Option* DoctorOptions::add_cluster(CLI::App& doctor, CLI::Option* hosts) {
  CLI::Option* cluster_flag =
      doctor.add_flag("--cluster", prove_, "Test RDMA between all ports and list what is missing");
  const std::string group = "With --cluster";
  doctor.add_option("--host", hosts_, "The same as --hosts")
      ->needs(cluster_flag)
      ->excludes(hosts)
      ->check(no_host_in)
      ->group(group);
  doctor.add_flag("--json", cluster_.json, "Print JSON")->needs(cluster_flag)->group(group);
  doctor
      .add_option("--ssh", cluster_.ssh,
                  "The ssh command, to which a host's name is appended (default: ssh -o BatchMode=yes)")
      ->needs(cluster_flag)
      ->group(group);
  doctor
      .add_option("--probe", cluster_.probe,
                  "Path of r2bench-port-probe on the other hosts; '~/' at its beginning is the home there "
                  "(default: the same as here)")
      ->needs(cluster_flag)
      ->group(group);
  return cluster_flag;
}

CLI::Option* DoctorOptions::add_first_day(CLI::App& doctor) {
  CLI::Option* first_day_flag =
      doctor.add_flag("--first-day", first_, "List the checks that need real NICs, least risky first");
  const std::string group = "With --first-day";
  doctor.add_flag("--run", first_day_.run, "Run the next checks, up to one that fails")
      ->needs(first_day_flag)
      ->group(group);
  doctor.add_flag("--markdown", first_day_.markdown, "Print the list as Markdown, with all commands")
      ->needs(first_day_flag)
      ->group(group);
  doctor
      .add_flag("--allow-real-faults", first_day_.allow_real_faults,
                "With --run: also run checks that change the machine")
      ->needs(first_day_flag)
      ->group(group);
  for (const auto& [option, value, words] :
       {std::tuple("--skip", &first_day_.skip, "Leave this check out"),
        std::tuple("--done", &first_day_.done, "Mark this check as done by hand"),
        std::tuple("--again", &first_day_.again, "Mark this check as not done, so that it runs again"),
        std::tuple("--run-options", &first_day_.run_options,
                   "Additional options of each run, such as '--shorter 10'"),
        std::tuple("--out", &first_day_.folder,
                   "Folder of logs and of the checks' states (default: first_day)")})
    doctor.add_option(option, *value, words)->needs(first_day_flag)->group(group);
  return first_day_flag;
}

int DoctorOptions::run(const Console& console) const {
  if (!first_day_.hosts.empty() && !prove_ && !first_)
    throw UsageError("--hosts is for --cluster and --first-day");
  ClusterArguments cluster = cluster_;
  try {
    cluster.hosts = host_list(hosts_.empty() ? first_day_.hosts : hosts_,
                              hosts_.empty() ? "--hosts" : "--host", "@:");  // user@host, and IPv6
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  if (prove_) return cluster_command(cluster, console);
  if (first_) return first_day_command(first_day_, console);
  if (draw_) return topology_command(topology_, console);
  return doctor_command(fabric_, console);
}

}  // namespace r2bench
