// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/explain.h"

#include <algorithm>
#include <ostream>
#include <string_view>
#include <utility>

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/real/change.h"
#include "harness/report/story.h"
#include "harness/scenario/plan_text.h"

namespace r2bench {
namespace {

using faultinject::format_duration;

const char* meaning(ModeKind kind) {
  switch (kind) {
    case ModeKind::kBaseline:
      return "no resilience: the same data path with NCCL's own QP settings";
    case ModeKind::kMigrate:
      return "live migration: the channels of a dead NIC move to other NICs, each as a whole";
    case ModeKind::kBalance:
      return "after a failure messages are distributed among all NICs, in proportion to their rates";
    case ModeKind::kAllReduce:
      return "the AllReduce is planned such that a degraded node transfers less than the others";
  }
  return "";
}

std::string bold(const Console& console, const std::string& text) {
  return console.colour ? "\033[1m" + text + "\033[0m" : text;
}

void print_wrapped(const Console& console, const std::string& lead, const std::string& text) {
  const size_t indent = width(lead);
  console.out << lead << wrap(text, console.columns - indent, indent) << "\n";
}

std::string environment_of(const Scenario& scenario, const Mode& mode) {
  std::map<std::string, std::string> all = stated_environment(scenario, mode);
  all["R2CC_MODE"] = std::to_string(static_cast<int>(mode.kind));
  std::string text;
  for (const auto& [key, value] : all) text += (text.empty() ? "" : " ") + key + "=" + value;
  return text;
}

/// The NICs of a rank; with a topology in the order in which its channels take them.
std::string nics_in_words(const Scenario& scenario, int local_rank) {
  const Fabric& fabric = scenario.fabric;
  if (!fabric.topology) return "nic0 … nic" + std::to_string(fabric.nics_per_node - 1);
  std::string text;
  const std::vector<int> nics = nics_from_near(fabric, local_rank);
  for (size_t i = 0; i < nics.size(); ++i) {
    const bool far = socket_of_nic(fabric, nics[i]) != socket_of_rank(fabric, local_rank);
    text += (i == 0 ? "" : " ") + std::string("nic") + std::to_string(nics[i]) + (far ? " (far)" : "");
  }
  return text + ", memory on socket " + std::to_string(socket_of_rank(fabric, local_rank)) + ", channels " +
         std::to_string(channels_of(scenario, local_rank));
}

void print_faults(const Scenario& scenario, const Console& console) {
  console.out << "\n" << bold(console, "Faults") << "\n";
  if (scenario.faults.empty() && scenario.rank_faults.empty()) console.out << "  none\n";
  for (const auto& fault : scenario.faults) print_wrapped(console, "  • ", fault_in_words(fault));
  for (const auto& fault : scenario.rank_faults) print_wrapped(console, "  • ", fault_in_words(fault));
  const bool timed = std::any_of(scenario.faults.begin(), scenario.faults.end(),
                                 [](const faultinject::FaultSpec& fault) {
                                   return fault.trigger.kind == faultinject::Trigger::Kind::kTime &&
                                          !fault.trigger.since_first_op;
                                 }) ||
                     std::any_of(scenario.rank_faults.begin(), scenario.rank_faults.end(),
                                 [](const RankFault& fault) { return fault.at_time.has_value(); });
  if (timed) {
    const bool command = scenario.workload.engine == Engine::kExec;
    print_wrapped(console, "    ",
                  std::string("times count from ") + (command                 ? "the first operation"
                                                      : scenario.arm_at_start ? "the start of the job"
                                                                              : "the end of the warm-up"));
  }
  if (scenario.repeats > 1) {
    print_wrapped(console, "    ",
                  "repeated " + std::to_string(scenario.repeats) +
                      " times in each job at random moments (seed " + std::to_string(scenario.seed) +
                      "), each time after the target carries traffic again");
  }
}

void print_expectations(const Scenario& scenario, const Console& console) {
  console.out << "\n" << bold(console, "Expected") << "\n";
  if (scenario.expectations.empty()) console.out << "  nothing: the verdict will be unknown\n";
  std::string last;
  for (const Expectation& expectation : scenario.expectations) {
    if (expectation.mode != last) {
      console.out << "  " << (expectation.mode == "all" ? "in every mode" : expectation.mode) << "\n";
      last = expectation.mode;
    }
    print_wrapped(console, "    • ", expectation_in_words(expectation));
  }
  print_wrapped(console, "  ",
                "A mode without an expected outcome must end without an error. A fault that never takes "
                "effect makes the verdict unknown.");
}

}  // namespace

std::string fault_in_words(const faultinject::FaultSpec& fault) {
  const std::string kind = fault.kind->name;
  std::string text = trigger_in_words(fault.trigger) + ": " + fault.target.text + " " +
                     meaning_of_kind(kind, Tense::kPresent) + " (" + kind;
  if (!fault.written.empty()) text += ", " + fault.written;
  if (fault.kind->outside) {
    const Change change = sample_change(fault);
    for (const auto& [lead, commands] :
         {std::pair(": `", &change.apply), std::pair("`, reverted with `", &change.undo)}) {
      text += lead;
      for (const std::string& command : *commands)
        text += (&command == commands->data() ? "" : "; ") + command;
    }
    text += "`; needs --allow-real-faults";
  }
  text += ")";
  if (fault.duration) text += ", healed after " + format_duration(*fault.duration);
  if (fault.repeat > 1) {
    text += ", " + std::to_string(fault.repeat) + " times";
    if (fault.every.count() > 0) text += ", every " + format_duration(fault.every);
  }
  return text;
}

std::string fault_in_words(const RankFault& fault) {
  const std::string target = "node" + std::to_string(fault.node) + "/rank" + std::to_string(fault.local_rank);
  std::string text = fault.at_iter
                         ? "when iteration " + std::to_string(*fault.at_iter) + " starts"
                         : "after " + format_duration(fault.at_time.value_or(std::chrono::nanoseconds(0)));
  text += ": " + target + " " + meaning_of_kind(name(fault.kind), Tense::kPresent) + " (" + name(fault.kind) +
          ")";
  if (fault.duration.count() > 0) text += " for " + format_duration(fault.duration);
  return text;
}

std::string expectation_in_words(const Expectation& expectation) {
  const MetricInfo* metric = find_metric(expectation.metric);
  std::string wanted = expectation.wanted;
  bool operator_found = false;
  for (const auto& [sign, words] : {std::pair{"<=", "at most"},
                                    {">=", "at least"},
                                    {"==", "exactly"},
                                    {"!=", "not"},
                                    {"<", "less than"},
                                    {">", "more than"}}) {
    if (wanted.rfind(sign, 0) != 0) continue;
    wanted.replace(0, std::string_view(sign).size(), words);
    operator_found = true;
    break;
  }
  if (metric != nullptr && metric->text) return "the job's error must say \"" + wanted + "\"";
  if (!operator_found && metric != nullptr && metric->words.empty()) wanted = "exactly " + wanted;
  return expectation.metric + " must be " + wanted + (metric != nullptr ? " (" + metric->meaning + ")" : "");
}

std::string command_explained(const Workload& work) {
  const ExecSettings& exec = work.exec;
  std::string text = "Every rank is a copy of: " + command_in_words(exec) +
                     ". It gets RANK, WORLD_SIZE, LOCAL_RANK, "
                     "LOCAL_WORLD_SIZE, NODE_RANK, NNODES, MASTER_ADDR and MASTER_PORT in its environment. ";
  const std::string who_checks =
      "r2bench does not compare the command's data. A command that compares its data itself has to end with "
      "a status other than 0 if the data is wrong.";
  if (exec.nccl_tests)
    text +=
        "Each row of its nccl-tests table is an operation; its #wrong columns say whether the data was "
        "right.";
  else if (!exec.iteration.empty())
    text += "A line that matches '" + exec.iteration + "' ends an operation" +
            (exec.begin.empty() ? "" : "; the first begins with a line that matches '" + exec.begin + "'") +
            ". " + who_checks;
  else
    text += "The whole command is one operation. " + who_checks;
  return text;
}

std::string nccl_explained(const NcclSettings& nccl) {
  std::string text = "NCCL is " + nccl.library + ".";
  if (nccl.communicators > 1)
    text += " There are " + std::to_string(nccl.communicators) +
            " communicators over the same ranks, which work at the same time.";
  if (nccl.group_calls > 1)
    text += " An operation is a group of " + std::to_string(nccl.group_calls) + " calls per communicator.";
  if (nccl.graph) text += " Each operation is a replay of a CUDA graph.";
  if (nccl.registers) text += " The buffers are registered with NCCL.";
  if (!nccl.blocking) text += " Communicators are nonblocking.";
  if (nccl.mps) text += " Ranks share GPUs through MPS.";
  if (nccl.renewal)
    text += std::string(" In operation ") + std::to_string(nccl.renewal->iter) + " the communicators are " +
            (nccl.renewal->by == RenewBy::kAbort ? "aborted, and the job continues on new ones."
             : nccl.renewal->by == RenewBy::kShrink
                 ? "shrunk by a rank, and the job continues without it."
                 : "revoked and shrunk by a rank, and the job continues without it.");
  return text;
}

std::string beside_explained(const Scenario& scenario, const OtherSide& other) {
  const int copies = scenario.workload.pairs();
  std::string text = "Beside it each rank has " +
                     (other.plugin.empty() ? "a copy of the plugin" : "the plugin '" + other.plugin + "'") +
                     " in mode " + name(other.kind);
  for (const auto& [key, value] : other.env) text += "; " + key + "=" + value;
  text += ", with " + (copies == 1 ? "a communicator" : std::to_string(copies) + " communicators") +
          " of its own. Operations of the two sides take turns, and beside_ratio compares their times";
  if (!scenario.faults.empty() || !scenario.rank_faults.empty()) text += "; a fault strikes both";
  return text + ". Trace and event log are of the mode itself only";
}

void print_explanation(const Scenario& scenario, const Console& console) {
  console.out << bold(console, scenario.name) << "\n";
  if (!scenario.description.empty()) print_wrapped(console, "  ", scenario.description);
  console.out << "\n" << bold(console, "Job") << "\n";
  print_wrapped(console, "  ", headline(scenario));
  const Workload& work = scenario.workload;
  if (work.engine == Engine::kExec)
    print_wrapped(console, "  ", command_explained(work));
  else
    print_wrapped(
        console, "  ",
        std::string("Every rank does ") + std::to_string(work.iters) + " " + name(work.op) +
            " operations of " + faultinject::format_bytes(work.bytes) + " through the net plugin '" +
            work.plugin + "', after " + std::to_string(work.warmup) + " that are not counted. " +
            (work.groups == Groups::kLocalRank
                 ? "Ranks communicate only with those of the same local rank on the other nodes; all begin "
                   "each operation together. "
                 : "") +
            (work.verify ? "Every element of every result is compared." : "The results are not compared."));
  if (work.engine == Engine::kNccl) print_wrapped(console, "  ", nccl_explained(work.nccl));
  print_wrapped(
      console, "  ",
      "It is run once in each of these modes" +
          std::string(scenario.pairs > 0 ? ", " + std::to_string(scenario.pairs) + " times over, interleaved:"
                                         : ":"));
  for (const Mode& mode : scenario.modes) {
    std::string text = mode.label;
    if (mode.label != name(mode.kind)) text += std::string(" (") + name(mode.kind) + ")";
    text += std::string(": ") + meaning(mode.kind);
    if (const Transport transport = scenario.transport_of(mode); transport != Transport::kPlugin)
      text += std::string("; transport ") + name(transport);
    if (!mode.plugin.empty()) text += "; plugin '" + mode.plugin + "'";
    for (const auto& [key, value] : mode.env) text += "; " + key + "=" + value;
    if (mode.beside) text += ". " + beside_explained(scenario, *mode.beside);
    print_wrapped(console, "    • ", text);
  }
  print_faults(scenario, console);
  print_expectations(scenario, console);
}

void print_plan(const Scenario& scenario, const Console& console) {
  console.out << bold(console, scenario.name) << "  " << headline(scenario) << "\n";
  console.out << "source " << scenario.source_file << ", seed " << scenario.seed;
  for (const auto& [key, value] : scenario.overrides)
    console.out << ", " << key << " = " << value << " (command line)";
  for (const auto& [key, value] : scenario.matrix)
    if (!scenario.overrides.contains(key)) console.out << ", " << key << " = " << value << " (matrix)";
  console.out << "\n\n" << bold(console, "Ranks") << "\n";
  for (int rank = 0; rank < scenario.fabric.ranks(); ++rank) {
    const int node = rank / scenario.fabric.ranks_per_node;
    console.out << "  rank " << rank << "  node" << node << "/rank" << rank % scenario.fabric.ranks_per_node
                << "  NICs " << nics_in_words(scenario, rank % scenario.fabric.ranks_per_node) << "\n";
  }
  console.out << "\n"
              << bold(console, "Environment of the ranks") << " (besides devices, fault board and trace)\n";
  for (const Mode& mode : scenario.modes) {
    print_wrapped(console, "  " + mode.label + ": ", environment_of(scenario, mode));
    if (!mode.beside) continue;
    Mode other = mode;
    other.kind = mode.beside->kind;
    for (const auto& [key, value] : mode.beside->env) other.env[key] = value;
    print_wrapped(console, "  " + mode.label + ", the other side: ", environment_of(scenario, other));
  }
  print_faults(scenario, console);
  print_expectations(scenario, console);
  console.out << "\n"
              << bold(console, "Bounds") << "\n  set-up " << format_duration(scenario.timeouts.setup)
              << ", no progress " << format_duration(scenario.timeouts.stall) << ", each job "
              << format_duration(scenario.timeouts.job) << ", closing "
              << format_duration(scenario.timeouts.close)
              << (scenario.repeats > 1 ? " and 20 s for each further fault" : "") << "\n";
}

}  // namespace r2bench
