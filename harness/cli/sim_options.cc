// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/sim_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string_view>
#include <utility>

#include "faultinject/plan/units.h"
#include "harness/base/numbers.h"
#include "harness/cli/commands.h"
#include "harness/cli/list_option.h"
#include "harness/cli/subcommands.h"
#include "r2ccl/collective/host/advise.h"

namespace r2bench {
namespace {

/// `text` through one of units.h; a number without a unit where that is none is the user's mistake.
template <typename Parse>
auto quantity(const char* option, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const faultinject::UnitError& error) {
    throw UsageError(std::string(option) + " " + text + ": " + error.what());
  }
}

constexpr uint32_t kMostNodes = 1024;

}  // namespace

std::vector<CLI::Option*> JobOptions::add_to(CLI::App& command, const std::string& group) {
  CLI::Option* given =
      add_lists(command, "--capacities", capacities,
                "Capacity of each node relative to a healthy one, such as 1,1,0.5,1",
                [](const std::string& entry) { return number_of<double>(entry) ? "" : "is no number"; })
          ->type_name("FLOAT")
          ->group(group);
  CLI::Option* count =
      command
          .add_option("--nodes", nodes,
                      "Number of nodes, all healthy except those of --degraded, --lost, --slow")
          ->check(CLI::Range(2, static_cast<int>(kMostNodes)))
          ->excludes(given)
          ->group(group);
  CLI::Option* of_nodes =
      add_lists(command, "--degraded", degraded,
                "NODE:X: this node has lost the fraction X of its capacity; may be repeated")
          ->excludes(given)
          ->group(group);
  nics.add_to(command, group);
  for (CLI::Option* of_nics : nics.all) of_nics->excludes(given)->excludes(of_nodes);
  command.add_option("--bytes", bytes, "Data of each node (default: 1 GiB)")->group(group);
  command.add_option("--rate", rate, "Rate of a healthy node in each direction (default: 400 Gbit/s)")
      ->group(group);
  command
      .add_option("--latency", latency,
                  "Latency of a message: the time between the sending of its last byte and the start of the "
                  "operation that waits for it (default: 5 us)")
      ->group(group);
  command
      .add_option("--reduction-rate", reduction,
                  "Rate at which a node adds, such as '25 GB/s' (default: 0, no limit)")
      ->group(group);
  command
      .add_option("--segments", segments,
                  "K: the largest number of segments into which the data is cut (default: 64)")
      ->check(CLI::Range(1, 65536))
      ->group(group);
  return {given, count};
}

std::string JobOptions::needs_nodes() const {
  return !degraded.empty()    ? "--degraded"
         : !nics.lost.empty() ? "--lost"
         : !nics.slow.empty() ? "--slow"
         : nics.given()       ? "--nics"
                              : "";
}

std::vector<double> JobOptions::degraded_capacities() const {
  std::vector<double> of_nodes(nodes, 1);
  for (const std::string& text : degraded) {
    const size_t colon = std::min(text.find(':'), text.size());
    const auto node = number_of<uint32_t>(std::string_view(text).substr(0, colon));
    const auto lost = number_of<double>(std::string_view(text).substr(std::min(colon + 1, text.size())));
    if (!node || *node >= nodes || !lost || !(*lost >= 0 && *lost < 1))
      throw UsageError("--degraded " + text + ": write NODE:X with a node below " + std::to_string(nodes) +
                       " and the lost part X, 0 to below 1");
    of_nodes[*node] = 1 - *lost;
  }
  return of_nodes;
}

r2ccl::collective::Job JobOptions::job() const {
  if (const std::string option = needs_nodes(); nodes == 0 && !option.empty())
    throw UsageError(option + " needs --nodes");
  r2ccl::collective::Job job;
  if (nics.given()) {
    job.nics = nics.of(nodes);
    for (auto nic = job.nics.begin(); nic != job.nics.end(); nic += nics.per_node)
      job.capacities.push_back(std::accumulate(nic, nic + nics.per_node, 0.0) / nics.per_node);
  } else if (nodes != 0) {
    job.capacities = degraded_capacities();
  }
  for (const std::string& capacity : capacities)
    job.capacities.push_back(number_of<double>(capacity).value());
  job.bytes = quantity("--bytes", bytes, faultinject::parse_bytes);
  const uint64_t bits = quantity("--rate", rate, faultinject::parse_rate);
  if (bits == 0) throw UsageError("--rate: a simulated port needs one");
  job.bytes_per_second = static_cast<double>(bits) / 8;
  job.latency_s =
      std::chrono::duration<double>(quantity("--latency", latency, faultinject::parse_duration)).count();
  if (reduction != "0") {
    job.reduce_bytes_per_second =
        static_cast<double>(quantity("--reduction-rate", reduction, faultinject::parse_rate)) / 8;
  }
  job.most_segments = segments;
  if (job.bytes == 0) throw UsageError("--bytes: must be more than 0");
  if (job.capacities.size() < 2 || job.capacities.size() > kMostNodes)
    throw UsageError("--capacities: " + std::to_string(job.capacities.size()) +
                     " given, one for each node; give 2 to " + std::to_string(kMostNodes));
  for (const double capacity : job.capacities) {
    if (!(capacity > 0 && capacity <= 1e6))
      throw UsageError(
          "--capacities: each must be above 0 and at most 1000000; leave out nodes that carry no traffic");
  }
  return job;
}

void SimOptions::add_to(CLI::App& app) {
  command = add_tool(app, "sim");
  command->add_option("operation", operation, "The collective operation: allreduce")
      ->required()
      ->check(CLI::IsMember({"allreduce"}));
  job.add_to(*command, "Options");
  command
      ->add_option(
          "--sharing", sharing,
          "How concurrent parts of an algorithm share ports: maxmin (by weighted max-min) or exclusive "
          "(each has a fixed share) (default: maxmin)")
      ->check(CLI::IsMember({"maxmin", "exclusive"}));
  command->add_flag("--only-chosen", only_chosen, "Simulate only the planner's choice");
  command->add_flag("--exactly", exactly, "Simulate each algorithm with K segments, not with fewer of them");
  command
      ->add_option("--pieces", pieces,
                   "Simulate the data in so many pieces, as the host engine gets them from NCCL: eight in "
                   "flight, of which up to four run beside each other (default: 1)")
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--rails", rails,
                   "With --pieces: NICs of each node. With more of them the host engine has channels for "
                   "fewer pieces beside each other (default: those of --nics, else 1)")
      ->check(CLI::Range(1, 8));
  command->add_flag("--json", json, "Print JSON");
  command->footer(
      "Examples: r2bench sim allreduce --nodes 16 --degraded 0:0.5 --bytes 1GiB\n"
      "  r2bench sim allreduce --nodes 6 --nics 4 --lost 1:0,2:1,3:2\n\n"
      "With --nics a simulation takes far longer, above all among many nodes: --only-chosen helps.");
}

SimArguments SimOptions::finished() const {
  SimArguments arguments;
  if (!job.says_nodes() && job.needs_nodes().empty()) throw UsageError("sim needs --nodes or --capacities");
  if (job.nics.given() && sharing == "exclusive")
    throw UsageError("--sharing exclusive: not with --nics: a NIC is shared by weighted max-min");
  arguments.job = job.job();
  if (pieces > 1) {
    r2ccl::collective::Job& of = arguments.job;
    if (pieces > of.bytes)
      throw UsageError("--pieces: " + std::to_string(pieces) + " are more than --bytes has");
    of.bytes = (of.bytes + pieces - 1) / pieces;
    // As the engine plans, however few there are.
    r2ccl::collective::set_stream(of, r2ccl::collective::kPiecesInFlight,
                                  std::max<size_t>(rails, of.nics.size() / of.capacities.size()));
  }
  arguments.options.sharing = sharing == "exclusive" ? Sharing::kExclusive : Sharing::kMaxMin;
  arguments.options.only_chosen = only_chosen;
  arguments.options.exactly = exactly;
  arguments.options.pieces = pieces;
  if (rails != 0 && pieces == 1) throw UsageError("--rails: needs --pieces");
  if (rails != 0 && job.nics.given() && rails != job.nics.per_node)
    throw UsageError("--rails: --nics says how many NICs a node has");
  arguments.json = json;
  return arguments;
}

void PlanOptions::add_to(CLI::App& explain, const std::string& group) {
  of_nodes = job.add_to(explain, group);
  explain
      .add_option("--algorithm", algorithm, "The schedule to print or write (default: the planner's choice)")
      ->check(CLI::IsMember(
          {"ring", "unequal_ring", "double_tree", "r2ccl_allreduce", "four_stage", "mix", "direct"}))
      ->group(group);
  explain.add_option("--print", print, "Print the operations of this rank ('all': of all ranks)")
      ->group(group);
  explain.add_option("--xml", xml, "Write the schedule as MSCCL-style XML to this file")->group(group);
  explain.add_option("--chakra", chakra, "Write Chakra traces to files PREFIX.RANK.et")->group(group);
  explain
      .add_option("--margin", margin,
                  "R2CC_COLLNET_MARGIN of the job, in percent (default: 0, the tuner's own choice)")
      ->check(CLI::Range(0, 10000))
      ->needs(job.nics.all.front())
      ->group(group);
}

void PlanOptions::check_unused() const {
  if (const std::string option = job.needs_nodes(); !option.empty())
    throw UsageError(option + " needs --nodes");
  for (const auto& [name, value] : {std::pair("--algorithm", &algorithm), std::pair("--print", &print),
                                    std::pair("--xml", &xml), std::pair("--chakra", &chakra)})
    if (!value->empty()) throw UsageError(std::string(name) + " needs --nodes or --capacities");
}

PlanArguments PlanOptions::finished() const {
  PlanArguments arguments{job.job(), algorithm, xml, chakra, {}, margin};
  const auto ranks = uint32_t(arguments.job.capacities.size());
  if (print == "all") {
    arguments.print.resize(ranks);
    std::iota(arguments.print.begin(), arguments.print.end(), 0u);
  } else if (!print.empty()) {
    const auto rank = number_of<uint32_t>(print);
    if (!rank || *rank >= ranks)
      throw UsageError("--print " + print + ": write a rank below " + std::to_string(ranks) + ", or 'all'");
    arguments.print = {*rank};
  }
  return arguments;
}

}  // namespace r2bench
