// SPDX-License-Identifier: Apache-2.0
// What commands may ask of a fault board that somebody else owns: add, list, witnesses, remove, heal. Pure of
// sockets: takes a request, returns the answer.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "faultinject/control/fault_board.h"

namespace r2bench {

/// "armed", "triggered" (fired, has touched nothing yet), "at work", "healed", or "removed" (before it
/// fired).
const char* state_word(const faultinject::FaultState& state);

class BoardService {
 public:
  /// A line for a log: something was added, removed or healed from outside.
  using Note = std::function<void(const std::string& text)>;

  /// `nodes` as the board was made with. Faults that are on the board already, or are armed past this object,
  /// are `owner`'s in lists. The board must outlive it.
  BoardService(faultinject::FaultBoard& board, std::vector<faultinject::NodeShape> nodes, std::string owner,
               Note note = {});

  /// The answer to a request, an object with "type" and:
  ///   add        "text": YAML, "file": for messages -> {"ids": [N …]}; all of them or none
  ///   list       "ids": [N …] (else all) -> {"faults": [{id, kind, state, t0_ns …}], "now_ns"}
  ///   witnesses  "ids": [N …], "from": n -> {"witnesses": […], "more": bool}, in order of time
  ///   remove     "id": N -> {"was": state word}
  ///   heal       -> {"healed": how many}
  /// nullopt for any other type. Throws PlanError, std::out_of_range, std::length_error,
  /// nlohmann::json::exception. `by` is who asks, for lists and notes.
  std::optional<nlohmann::json> answer(const nlohmann::json& request, const std::string& by);

  /// Ids of the faults that came through 'add'.
  const std::set<uint32_t>& added() const { return added_; }
  /// Ids of others that were removed or healed through this object before they had ended by themselves.
  const std::set<uint32_t>& ended() const { return ended_; }

 private:
  nlohmann::json add(const nlohmann::json& request, const std::string& by);
  nlohmann::json list(const nlohmann::json& request) const;
  nlohmann::json witnesses(const nlohmann::json& request) const;
  nlohmann::json remove(const nlohmann::json& request, const std::string& by);
  nlohmann::json heal(const std::string& by);
  nlohmann::json describe(uint32_t id) const;
  void note(const std::string& text) const;
  void about_to_end(uint32_t id);

  faultinject::FaultBoard& board_;
  std::vector<faultinject::NodeShape> nodes_;
  std::string owner_;
  Note note_;
  std::set<uint32_t> added_, ended_;
  std::map<uint32_t, std::string> by_;
};

}  // namespace r2bench
