// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/exec_command_options.h"

#include <CLI/CLI.hpp>
#include <string_view>

#include "faultinject/plan/units.h"
#include "harness/cli/change_options.h"
#include "harness/cli/subcommands.h"

namespace r2bench {

void ExecCommandOptions::add_to(CLI::App& app) {
  command = add_tool(app, "exec");
  command->footer(
      "Commands with the same --name share a fabric and the faults that are armed on it. The first\n"
      "command creates the fabric, and the last one to end removes it. The exit status is the program's.\n"
      "  r2bench exec --node node0 --rate '1 Gbit/s' -- ib_write_bw -d vhca0 -x 1             (one "
      "terminal)\n"
      "  r2bench exec --node node1 -- ib_write_bw -d vhca0 -x 1 localhost                     (another)");
  command->add_option("--node", arguments.node, "The node on which the program runs: node0, node1, …")
      ->required();
  has_fabric_ =
      command->add_option("--fabric", fabric_,
                          "vhca (virtual NICs) or none (this host's devices, injector only) (default: vhca)");
  has_nodes_ =
      command->add_option("--nodes", nodes_, "Number of nodes (default: 2)")->check(CLI::Range(1, 64));
  has_nics_ =
      command->add_option("--nics", nics_, "Number of NICs per node (default: 4)")->check(CLI::Range(1, 16));
  has_rate_ = command->add_option(
      "--rate", rate_, "Rate of each NIC in each direction, such as '1 Gbit/s' (default: unlimited)");
  has_latency_ =
      command->add_option("--latency", latency_, "One-way latency of each NIC, such as '5 us' (default: 0)");
  has_link_ =
      command->add_option("--link", link_, "Link layer of all ports (default: ethernet, that is RoCE)")
          ->check(CLI::IsMember({"ethernet", "infiniband"}));
  has_ports_ =
      command->add_option("--ports", ports_, "Number of ports per NIC (default: 1)")->check(CLI::Range(1, 4));
  has_mtu_ = command->add_option("--mtu", mtu_, "Active MTU of each port, in bytes (default: 4096)")
                 ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  has_seed_ = add_seed(*command, seed_, "Seed of everything random in the faults (default: 1)");
  command->add_option("--name", arguments.name, "Name of the fabric to join or create")
      ->capture_default_str();
  command->add_option("--plan", arguments.plan, "YAML file with faults to arm before the program starts");
  command->add_option("--witness", arguments.witness,
                      "With --plan: write the effects of its faults to this file, as JSON");
  command->add_flag("--quiet", arguments.quiet, "Do not print the fabric's name");
}

ExecArguments ExecCommandOptions::finished() {
  WantedShape& wanted = arguments.wanted;
  if (has_fabric_->count() > 0) wanted.kind = fabric_;
  if (has_nodes_->count() > 0) wanted.nodes = nodes_;
  if (has_nics_->count() > 0) wanted.nics = nics_;
  if (has_seed_->count() > 0) wanted.seed = seed_;
  if (has_link_->count() > 0)
    wanted.link = link_ == "infiniband" ? LinkLayer::kInfiniBand : LinkLayer::kEthernet;
  if (has_ports_->count() > 0) wanted.ports = ports_;
  if (has_mtu_->count() > 0) wanted.mtu = mtu_;
  try {
    if (has_rate_->count() > 0) wanted.rate_bits_per_s = faultinject::parse_rate(rate_);
    if (has_latency_->count() > 0) wanted.latency = faultinject::parse_duration(latency_);
  } catch (const faultinject::UnitError& error) {
    throw UsageError(error.what());
  }
  return arguments;
}

void InjectOptions::add_to(CLI::App& app) {
  command_ = add_tool(app, "inject");
  command_->require_subcommand(1);
  const auto with_name = [this](CLI::App* action) {
    action->add_option("--name", arguments.name,
                       "Name of the fabric, or run-PID of a job (default: the only one that is running)");
    return action;
  };
  add_ = with_name(command_->add_subcommand("add", "Arm a fault and print its id"));
  add_->add_option(
          "fault", arguments.fault,
          "The fault as in a scenario, such as '{at: now, target: node1/nic0, kind: port_down}', or @FILE")
      ->required();
  CLI::App* list = with_name(command_->add_subcommand("list", "List the armed faults and their state"));
  list->add_flag("--json", arguments.json, "Print JSON; times are CLOCK_MONOTONIC in ns");
  list->add_flag("--effects", arguments.effects,
                 "Also list all effects: time, queue pair, and the next completion that the program polled");
  remove_ = with_name(command_->add_subcommand("remove", "Heal one fault, or cancel it before it strikes"));
  remove_->add_option("id", arguments.id, "The id that `add` or `list` printed")->required();
  heal_ = with_name(command_->add_subcommand("heal", "Heal all faults"));
  heal_alone_ = with_name(add_tool(app, "heal"));
}

bool InjectOptions::parsed() const { return command_->parsed() || heal_alone_->parsed(); }

InjectArguments InjectOptions::finished() {
  using Action = InjectArguments::Action;
  arguments.action = add_->parsed()                           ? Action::kAdd
                     : remove_->parsed()                      ? Action::kRemove
                     : !command_->parsed() || heal_->parsed() ? Action::kHeal
                                                              : Action::kList;
  return arguments;
}

}  // namespace r2bench
