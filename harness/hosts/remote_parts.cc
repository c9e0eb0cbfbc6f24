// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/remote_parts.h"

#include <csignal>
#include <stdexcept>
#include <utility>

#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using faultinject::FaultState;
using nlohmann::json;

namespace {

constexpr std::chrono::milliseconds kSignalBound{2'000};

}  // namespace

void RemoteHost::Board::restart_clock() { host_.tell({{"type", "restart_clock"}}); }

uint32_t RemoteHost::Board::arm(const faultinject::FaultSpec& spec, faultinject::TimeOrigin origin) {
  specs_.push_back(spec);
  host_.tell({{"type", "arm"}, {"spec", fields_to_json(spec)}, {"origin", int(origin)}});
  const uint32_t id = armed();
  const std::lock_guard lock(host_.mutex_);
  FaultState& state = host_.states_[id];  // the agent's word, when it comes, is more exact
  if (state.armed_ns == 0) state.armed_ns = r2ccl::now_ns();
  return id;
}

void RemoteHost::Board::fire(uint32_t id) { host_.tell({{"type", "fire"}, {"id", id}}); }
void RemoteHost::Board::heal(uint32_t id) { host_.tell({{"type", "heal"}, {"id", id}}); }
void RemoteHost::Board::heal_all() { host_.tell({{"type", "heal_all"}}); }

FaultState RemoteHost::Board::state(uint32_t id) const {
  const std::lock_guard lock(host_.mutex_);
  const auto found = host_.states_.find(id);
  if (found == host_.states_.end()) throw std::out_of_range("no fault has the id " + std::to_string(id));
  return found->second;
}

std::vector<faultinject::Witness> RemoteHost::Board::witnesses() const {
  std::vector<faultinject::Witness> all;
  try {
    const json answer = host_.ask({{"type", "witnesses"}}, host_.answer_bound_);
    witnesses_lost_ = answer.at("lost");
    for (const json& each : answer.at("witnesses"))
      all.push_back(fields_from_json<faultinject::Witness>(each));
  } catch (const std::exception&) {  // failure() says so
  }
  const std::lock_guard lock(host_.mutex_);
  for (faultinject::Witness& witness : all) witness.time_ns = host_.to_runner_once(witness.time_ns);
  return all;
}

bool RemoteHost::Port::send(const json& message) {
  host_.tell({{"type", "rank"}, {"rank", rank_}, {"message", message}});
  return true;
}

std::optional<json> RemoteHost::Port::receive() {
  const std::lock_guard lock(host_.mutex_);
  auto& messages = host_.inbox_[rank_].messages;
  if (messages.empty()) return std::nullopt;
  json message = std::move(messages.front());
  messages.pop_front();
  return message;
}

pid_t RemoteHost::Port::pid() const {
  const std::lock_guard lock(host_.mutex_);
  return host_.inbox_[rank_].pid;
}

std::optional<int> RemoteHost::Port::ended() {
  const std::lock_guard lock(host_.mutex_);
  auto& ended = host_.inbox_[rank_].ended;
  if (!ended && !host_.lost_.empty()) ended = SIGKILL;
  return ended;
}

uint64_t RemoteHost::Port::signal(int number) {
  try {
    const json answer = host_.ask({{"type", "signal"}, {"rank", rank_}, {"number", number}}, kSignalBound);
    const std::lock_guard lock(host_.mutex_);
    return host_.to_runner(answer.at("time_ns").get<uint64_t>());
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace r2bench
