// SPDX-License-Identifier: Apache-2.0
// Test support: an agent without a host behind it, which a thread of the test's process plays.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "harness/launch/rendezvous.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

class FakeAgent {
 public:
  /// Takes one message of the runner; false: the agent closes the connection.
  using Take = std::function<bool(SecureLink& link, const nlohmann::json& message)>;

  FakeAgent(uint16_t port, const std::string& secret, nlohmann::json hello, Take take)
      : thread_([=, hello = std::move(hello)] {
          std::string why;
          SecureLink link =
              call_runner("127.0.0.1:" + std::to_string(port), secret, hello, std::chrono::seconds(20), why);
          while (!link.closed()) {
            const auto message = link.receive(std::chrono::milliseconds(100));
            if (message && !take(link, *message)) return;
          }
        }) {}
  ~FakeAgent() { thread_.join(); }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  /// Answers a ping or a request as a real agent does, with `now_ns` as its clock and the fields of `answer`.
  static void answer(SecureLink& link, const nlohmann::json& message, uint64_t now_ns = r2ccl::now_ns(),
                     nlohmann::json answer = nlohmann::json::object()) {
    answer["type"] = message.contains("request") ? "answer" : "pong";
    if (message.contains("request")) answer["request"] = message["request"];
    if (message.contains("sent_ns")) {
      answer["sent_ns"] = message["sent_ns"];
      answer["received_ns"] = answer["answered_ns"] = now_ns;
    }
    link.send(answer);
  }
  /// Answers until the runner says quit.
  static bool serve(SecureLink& link, const nlohmann::json& message) {
    if (message.value("type", "") == "quit") return false;
    answer(link, message);
    return true;
  }

 private:
  std::thread thread_;
};

}  // namespace r2bench
