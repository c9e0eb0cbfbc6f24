// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster/port_probe.h"

#include <stdexcept>
#include <string>

#include "harness/cluster/facts.h"

namespace r2bench {
namespace {
constexpr std::chrono::seconds kTransferLimit{5};
}

Endpoint& PortProbe::endpoint(const nlohmann::json& request) {
  const auto found = endpoints_.find(request.at("id").get<int>());
  if (found == endpoints_.end()) throw std::runtime_error("there is no open end " + request.at("id").dump());
  return *found->second;
}

nlohmann::json PortProbe::answer(const nlohmann::json& request) {
  try {
    const std::string wanted = request.at("do");
    if (wanted == "facts") return rdma_facts_of_this_host();
    if (wanted == "open") {
      auto made = std::make_unique<Endpoint>(request.at("device"), request.at("port"), request.at("gid"));
      nlohmann::json info = made->info();
      endpoints_[request.at("id")] = std::move(made);
      return {{"info", std::move(info)}};
    }
    if (wanted == "connect") {
      endpoint(request).connect(request.at("peer"));
    } else if (wanted == "write") {
      endpoint(request).write(request.at("seed"), kTransferLimit);
    } else if (wanted == "check") {
      if (!endpoint(request).holds(request.at("seed")))
        throw std::runtime_error("the transfer was completed, but other bytes arrived");
    } else if (wanted == "close") {
      endpoints_.erase(request.at("id").get<int>());
    } else {
      throw std::runtime_error("unknown request '" + wanted + "'");
    }
    return {{"ok", true}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

int serve_port_probe(std::istream& in, std::ostream& out) {
  PortProbe probe;
  for (std::string line; std::getline(in, line);) {
    const auto request = nlohmann::json::parse(line, nullptr, false);
    out << (request.is_discarded() ? nlohmann::json{{"error", "a request that is no JSON"}}
                                   : probe.answer(request))
               .dump()
        << std::endl;
  }
  return 0;
}

}  // namespace r2bench
