// SPDX-License-Identifier: Apache-2.0
// What the runner tells a rank of the engine exec besides RankConfig: the key "exec" of its first message.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

struct ExecOptions {
  std::vector<std::string> arguments;  ///< as execvp takes them
  bool nccl_tests = false;
  std::string begin, iteration;              ///< regular expressions; empty: none
  std::string network;                       ///< for the result: what NCCL would be told to take
  std::map<std::string, std::string> place;  ///< RANK, WORLD_SIZE …

  nlohmann::json to_json() const {
    return {{"arguments", arguments}, {"nccl_tests", nccl_tests}, {"begin", begin},
            {"iteration", iteration}, {"network", network},       {"place", place}};
  }
  static ExecOptions from_json(const nlohmann::json& json) {
    ExecOptions o;
    o.arguments = json.at("arguments").get<std::vector<std::string>>();
    o.nccl_tests = json.at("nccl_tests");
    o.begin = json.at("begin");
    o.iteration = json.at("iteration");
    o.network = json.at("network");
    o.place = json.at("place").get<std::map<std::string, std::string>>();
    return o;
  }
};

}  // namespace r2bench
