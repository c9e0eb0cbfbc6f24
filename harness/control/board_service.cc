// SPDX-License-Identifier: Apache-2.0
#include "harness/control/board_service.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "faultinject/plan/plan_text.h"

namespace r2bench {

using faultinject::FaultSpec;
using faultinject::FaultState;

namespace {

// An answer fits into the socket (208 KiB), so that who answers never waits for a client that does not read.
constexpr size_t kWitnessesPerAnswer = 400;

std::string in_words(uint32_t id, const FaultSpec& spec) {
  return "fault " + std::to_string(id) + ", " + spec.kind->name + " " + spec.target.text;
}

uint64_t now_ns() {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

}  // namespace

const char* state_word(const FaultState& state) {
  switch (state.phase) {
    case FaultState::Phase::kArmed:
      return "armed";
    case FaultState::Phase::kFired:
      return state.t0_ns != 0 ? "at work" : "triggered";
    case FaultState::Phase::kHealed:
      return state.triggered_ns != 0 ? "healed" : "removed";
  }
  return "?";
}

BoardService::BoardService(faultinject::FaultBoard& board, std::vector<faultinject::NodeShape> nodes,
                           std::string owner, Note note)
    : board_(board), nodes_(std::move(nodes)), owner_(std::move(owner)), note_(std::move(note)) {}

void BoardService::note(const std::string& text) const {
  if (note_) note_(text);
}

std::optional<nlohmann::json> BoardService::answer(const nlohmann::json& request, const std::string& by) {
  const std::string type = request.value("type", "");
  if (type == "add") return add(request, by);
  if (type == "list") return list(request);
  if (type == "witnesses") return witnesses(request);
  if (type == "remove") return remove(request, by);
  if (type == "heal") return heal(by);
  return std::nullopt;
}

nlohmann::json BoardService::add(const nlohmann::json& request, const std::string& by) {
  const auto faults =
      faultinject::parse_plan(request.at("text").get<std::string>(), request.value("file", std::string()));
  for (const FaultSpec& fault : faults) faultinject::check_targets(fault, nodes_);
  for (const FaultSpec& fault : faults)
    if (fault.kind->outside)
      throw faultinject::PlanError(
          fault.file, fault.line, fault.column,
          std::string(fault.kind->name) +
              " changes the machine, and is made by r2bench run alone, from a scenario");
  std::vector<uint32_t> ids;
  try {
    for (const FaultSpec& fault : faults) ids.push_back(board_.arm(fault, faultinject::TimeOrigin::kArming));
  } catch (const std::length_error&) {
    for (const uint32_t id : ids) board_.heal(id);
    throw;
  }
  for (const uint32_t id : ids) {
    added_.insert(id);
    by_[id] = by;
    note(in_words(id, board_.spec(id)) + ": added by " + by);
  }
  return {{"ids", ids}};
}

nlohmann::json BoardService::describe(uint32_t id) const {
  const FaultState state = board_.state(id);
  const FaultSpec& spec = board_.spec(id);
  const auto by = by_.find(id);
  return {{"id", id},
          {"name", spec.name},
          {"kind", spec.kind->name},
          {"target", spec.target.text},
          {"by", by == by_.end() ? owner_ : by->second},
          {"state", state_word(state)},
          {"armed_ns", state.armed_ns},
          {"triggered_ns", state.triggered_ns},
          {"t0_ns", state.t0_ns},
          {"healed_ns", state.healed_ns},
          {"effects", state.witnesses}};
}

nlohmann::json BoardService::list(const nlohmann::json& request) const {
  std::vector<uint32_t> ids;
  if (request.contains("ids")) {
    ids = request["ids"].get<std::vector<uint32_t>>();
  } else {
    for (uint32_t id = 1; id <= board_.armed(); ++id) ids.push_back(id);
  }
  nlohmann::json faults = nlohmann::json::array();
  for (const uint32_t id : ids) faults.push_back(describe(id));
  return {{"faults", std::move(faults)}, {"now_ns", now_ns()}, {"witnesses_lost", board_.witnesses_lost()}};
}

nlohmann::json BoardService::witnesses(const nlohmann::json& request) const {
  const auto ids = request.at("ids").get<std::set<uint32_t>>();
  size_t skip = request.value("from", size_t(0));
  nlohmann::json some = nlohmann::json::array();
  for (const faultinject::Witness& witness : board_.witnesses()) {
    if (!ids.contains(witness.fault_id)) continue;
    if (skip > 0) {
      --skip;
      continue;
    }
    if (some.size() == kWitnessesPerAnswer) return {{"witnesses", std::move(some)}, {"more", true}};
    some.push_back({{"fault", witness.fault_id},
                    {"time_ns", witness.time_ns},
                    {"pid", witness.pid},
                    {"rank", witness.rank},
                    {"node", witness.node},
                    {"nic", witness.nic},
                    {"qp_num", witness.qp_num},
                    {"what", witness.what}});
  }
  return {{"witnesses", std::move(some)}, {"more", false}};
}

void BoardService::about_to_end(uint32_t id) {
  if (!added_.contains(id) && board_.state(id).phase != FaultState::Phase::kHealed) ended_.insert(id);
}

nlohmann::json BoardService::remove(const nlohmann::json& request, const std::string& by) {
  const uint32_t id = request.at("id").get<uint32_t>();
  if (id == 0 || id > board_.armed())
    throw std::out_of_range("there is no fault " + std::to_string(id) + "; " +
                            (board_.armed() == 0 ? std::string("none was ever armed here")
                                                 : "the ids are 1 to " + std::to_string(board_.armed())));
  const std::string was = state_word(board_.state(id));
  about_to_end(id);
  board_.heal(id);
  if (was != "healed" && was != "removed")
    note(in_words(id, board_.spec(id)) + ", " + was + ": removed by " + by);
  return {{"was", was}};
}

nlohmann::json BoardService::heal(const std::string& by) {
  size_t healed = 0;
  for (uint32_t id = 1; id <= board_.armed(); ++id) {
    about_to_end(id);
    healed += board_.state(id).phase != FaultState::Phase::kHealed;
  }
  board_.heal_all();
  if (healed > 0) note(std::to_string(healed) + " healed by " + by);
  return {{"healed", healed}};
}

}  // namespace r2bench
