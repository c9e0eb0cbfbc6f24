// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/nic_plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/least_size.h"
#include "r2ccl/collective/rail_load.h"
#include "r2ccl/collective/rail_plans.h"
#include "r2ccl/collective/rails.h"

namespace r2bench {

namespace collective = r2ccl::collective;
using faultinject::format_bytes;

std::string nics_in_words(const collective::Job& job, bool counted) {
  const size_t nodes = job.capacities.size();
  if (std::all_of(job.nics.begin(), job.nics.end(), [](double nic) { return nic >= 1; })) return "";
  if (!collective::rails_differ(job.nics, nodes))
    return "No two nodes have lost different NICs, so the planner counts capacities, not NICs.";
  if (nodes > collective::kMostNodesOfShapes)
    return "The planner does not count NICs among more than " +
           std::to_string(collective::kMostNodesOfShapes) + " nodes: this plan is by capacities alone.";
  if (!counted)
    return "In every plan that counts NICs, two nodes without a common rail exchange data: this plan is by "
           "capacities alone, and Balance has to find a path.";
  return "";
}

std::string by_capacities_in_words(const collective::Job& job, const collective::Plan& by_capacities) {
  const collective::Candidate& choice = by_capacities.choice();
  collective::Candidate flat = choice;
  flat.segments = 1;
  const double need = rails_need(build(job, flat), job.nics, job.nics.size() / job.capacities.size());
  return std::string("By capacities alone it would take ") + name(choice.algorithm) +
         " (K = " + std::to_string(choice.segments) + "), " +
         (std::isinf(need) ? "in which two nodes without a common rail exchange data."
                           : "whose busiest NIC needs " + fixed(need, 2) +
                                 " × what the busiest node's NICs need together.");
}

Mode3 mode3_of(const collective::Job& job, int margin) {
  // As they travel.
  collective::View view;
  for (const double capacity : job.capacities)
    view.capacities.push_back(collective::capacity_of(collective::code_of(capacity)));
  for (const double nic : job.nics) view.nics.push_back(collective::capacity_of(collective::code_of(nic)));
  const collective::Speeds speeds{
      .bytes_per_second = job.bytes_per_second,
      .reduce_bytes_per_second = job.reduce_bytes_per_second,
      .margin = margin / 100.0,
      .rails = static_cast<uint32_t>(std::max<size_t>(1, job.nics.size() / job.capacities.size()))};
  const auto advise = [&](const collective::View& of, uint64_t bytes) {
    const collective::EngineAdvice advice =
        collective::advise(of.capacities, bytes, speeds, of.nics, of.engine_pace);
    return collective::Advice{advice.engine, advice.why};
  };
  Mode3 mode3;
  mode3.least_bytes = collective::least_bytes_worth_it(advise, view, mode3.decides);
  mode3.collnet = job.bytes >= mode3.least_bytes;
  const collective::Advice here = advise(view, job.bytes);
  mode3.worth_it = here.collnet;
  mode3.tuner = here.why;
  mode3.piece_bytes = collective::piece_of_operation(job.bytes);
  mode3.pieces = (job.bytes + mode3.piece_bytes - 1) / mode3.piece_bytes;
  const uint64_t planned_for = collective::planned_bytes(mode3.piece_bytes);
  mode3.in_flight = collective::outstanding_for(planned_for);
  auto planned =
      collective::plan(collective::job_of(view.capacities, planned_for, mode3.in_flight, speeds, view.nics));
  if (!planned) throw std::runtime_error(planned.error().message);  // the nodes are checked: our own mistake
  mode3.plan = std::move(planned.value());
  return mode3;
}

namespace {

/// Does the tuner take CollNet, and why.
std::string choice_in_words(const Mode3& mode3) {
  const std::string most = format_bytes(collective::kMostBytesAsked);
  std::string text = mode3.least_bytes == collective::kNever
                         ? "no AllReduce goes over CollNet on these nodes"
                         : "AllReduces of " + format_bytes(mode3.least_bytes) + " and more go over CollNet";
  text += std::string(". This one ") + (mode3.collnet ? "does" : "stays with NCCL's own choice, on Balance") +
          ": " + mode3.tuner + ".";
  if (mode3.worth_it && !mode3.collnet) {
    text += " That is less, but the tuner takes CollNet only from a power of two on from which all up to " +
            most + " are worth it";
    text +=
        mode3.least_bytes == collective::kNever ? ", and " + most + " are not: " + mode3.decides + "." : ".";
  }
  if (mode3.collnet && !mode3.worth_it)
    text +=
        " The tuner takes CollNet all the same: of the sizes from there on it looks at the powers of two "
        "up to " +
        most + " only, and these are worth it.";
  return text;
}

std::string slow_nics_in_words(const collective::Job& job) {
  if (std::none_of(job.nics.begin(), job.nics.end(), [](double nic) { return nic > 0 && nic < 1; }))
    return "";
  const size_t nodes = job.capacities.size();
  const bool compared = nodes > 2 && job.nics.size() > nodes;  // AGREEMENT.md, slow links
  return std::string(" It knows of a slow NIC if the NIC's port reports the lower rate") +
         (compared ? ", or with R2CC_PLAN_LINKS=1." : ".");
}

std::string pieces_in_words(const Mode3& mode3) {
  if (mode3.piece_bytes < collective::kSmallOperation) return "";
  const collective::Candidate& choice = mode3.plan.choice();
  std::string text = mode3.collnet ? " NCCL makes " : " If CollNet is forced, NCCL makes ";
  text += mode3.pieces == 1 ? "one piece of it" : std::to_string(mode3.pieces) + " pieces of it";
  if (mode3.in_flight > 1) text += ", up to " + std::to_string(mode3.in_flight) + " in flight";
  return text + ", and the engine's plan for " + format_bytes(collective::planned_bytes(mode3.piece_bytes)) +
         " is " + name(choice.algorithm) + " (K = " + std::to_string(choice.segments) + "). " +
         mode3.plan.why;
}

}  // namespace

std::string mode3_in_words(const collective::Job& job, int margin) {
  const Mode3 mode3 = mode3_of(job, margin);
  const std::string asked = margin > 0 ? " and R2CC_COLLNET_MARGIN=" + std::to_string(margin) : "";
  return "In a job with R2CC_MODE=3" + asked + ", " + choice_in_words(mode3) + slow_nics_in_words(job) +
         pieces_in_words(mode3) + " All this assumes additions " +
         (job.reduce_bytes_per_second > 0 ? "as fast as --reduction-rate (a job measures its own)"
                                          : "that take no time (--reduction-rate; a job measures its own)") +
         ", and one CollNet group over all NICs of a node (a job with several GPUs a node divides the NICs "
         "among them).";
}

}  // namespace r2bench
