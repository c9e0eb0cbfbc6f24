// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/doctor_options.h"

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <tuple>

#include "harness/launch/host_list.h"
#include "harness/run/runner.h"

namespace r2bench {

void DoctorOptions::add_to(CLI::App& app) {
  command = app.add_subcommand("doctor", "Report what this machine has, and what would prevent a run");
  command->add_option("--fabric", fabric_, "The fabric that decides the exit status (vhca)")
      ->check(CLI::IsMember({"vhca", "rxe", "verbs"}));
  add_topology(*command);
  CLI::Option* cluster = add_cluster(*command);
  add_first_day(*command)->excludes(cluster);
}

void DoctorOptions::add_topology(CLI::App& doctor) {
  CLI::Option* topology_flag =
      doctor.add_flag("--topology", draw_, "Draw sockets, switches, GPUs and NICs, and their distances");
  CLI::Option* topology_xml =
      doctor
          .add_option("--xml", topology_.xml, "Draw the machine in this file, as `lstopo --of xml` writes it")
          ->needs(topology_flag);
  doctor.add_option("--scenario", topology_.scenario, "Draw a node that this scenario declares")
      ->needs(topology_flag)
      ->excludes(topology_xml);
}

CLI::Option* DoctorOptions::add_cluster(CLI::App& doctor) {
  CLI::Option* cluster_flag =
      doctor.add_flag("--cluster", prove_, "Prove RDMA between all ports, and say what they lack");
  doctor.add_option("--host", hosts_, "With --cluster: hosts, separated by commas (else this one)")
      ->needs(cluster_flag);
  doctor.add_flag("--json", cluster_.json, "With --cluster: as JSON")->needs(cluster_flag);
  doctor
      .add_option("--ssh", cluster_.ssh,
                  "With --cluster: words in front of a host's name (ssh -o BatchMode=yes)")
      ->needs(cluster_flag);
  doctor
      .add_option("--probe", cluster_.probe, "With --cluster: path of r2bench-port-probe on the other hosts")
      ->needs(cluster_flag);
  return cluster_flag;
}

CLI::Option* DoctorOptions::add_first_day(CLI::App& doctor) {
  CLI::Option* first_day_flag =
      doctor.add_flag("--first-day", first_, "What only real NICs can show, in the order that risks least");
  doctor.add_flag("--run", first_day_.run, "With --first-day: carry out what is next")->needs(first_day_flag);
  doctor.add_flag("--markdown", first_day_.markdown, "With --first-day: print the page")
      ->needs(first_day_flag);
  doctor
      .add_flag("--allow-real-faults", first_day_.allow_real_faults,
                "With --first-day: steps that change the machine, too")
      ->needs(first_day_flag);
  for (const auto& [option, value, words] :
       {std::tuple("--skip", &first_day_.skip, "With --first-day: leave this step out"),
        std::tuple("--done", &first_day_.done, "With --first-day: this step was done by hand"),
        std::tuple("--again", &first_day_.again, "With --first-day: do this step once more"),
        std::tuple("--hosts", &first_day_.hosts, "With --first-day: hosts, separated by commas"),
        std::tuple("--words", &first_day_.words, "With --first-day: further words of each run (--shorter 10)"),
        std::tuple("--out", &first_day_.folder,
                   "With --first-day: folder of logs and of what is done (first_day)")})
    doctor.add_option(option, *value, words)->needs(first_day_flag);
  return first_day_flag;
}

int DoctorOptions::run(const Console& console) const {
  if (prove_) {
    ClusterArguments cluster = cluster_;
    try {
      cluster.hosts = host_list(hosts_, "--host", "@:");  // user@host, and IPv6
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
    return cluster_command(cluster, console);
  }
  if (first_) return first_day_command(first_day_, console);
  if (draw_) return topology_command(topology_, console);
  return doctor_command(fabric_, console);
}

}  // namespace r2bench
