// SPDX-License-Identifier: Apache-2.0
// What r2bench-port-probe does on each host: answers requests about its ports, a line of JSON each, on its
// standard input and output, so that ssh alone carries them. It ends with its input.
//   {"do": "facts"}                                   -> RdmaHostFacts
//   {"do": "open", "id": 1, "device", "port", "gid"}  -> {"info": {…}}      gid: an index, -1 for none
//   {"do": "connect", "id": 1, "peer": {…}}           -> {"ok": true}
//   {"do": "write" | "check", "id": 1, "seed": N}     -> {"ok": true}
//   {"do": "close", "id": 1}                          -> {"ok": true}
// What failed is {"error": "a sentence"}.
#pragma once

#include <istream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/cluster/endpoint.h"

namespace r2bench {

class PortProbe {
 public:
  nlohmann::json answer(const nlohmann::json& request);

 private:
  Endpoint& endpoint(const nlohmann::json& request);
  std::map<int, std::unique_ptr<Endpoint>> endpoints_;
};

/// Serves until the input ends.
int serve_port_probe(std::istream& in, std::ostream& out);

}  // namespace r2bench
