// SPDX-License-Identifier: Apache-2.0
#include "harness/control/control_client.h"

#include "faultinject/plan/joined.h"

namespace r2bench {

using faultinject::joined;

namespace {

constexpr auto kAnswerBound = std::chrono::seconds(10);

}  // namespace

nlohmann::json ask(MessageSocket& server, const nlohmann::json& request) {
  if (!server.send(request)) throw ControlLost("the other side is gone");
  const auto answer = server.receive(kAnswerBound);
  if (!answer && server.closed()) throw ControlLost("the other side is gone");
  if (!answer) throw ControlError("no answer came within 10 s");
  if (answer->is_object() && answer->contains("error"))
    throw ControlError((*answer)["error"].get<std::string>());
  return *answer;
}

MessageSocket connect_to_running(const std::string& name, std::string& chosen) {
  const std::vector<std::string> names = listening_names();
  chosen = name;
  if (name.empty()) {
    if (names.empty())
      throw ControlError(
          "nothing runs that faults could be injected into; start a program with 'r2bench exec', or a job "
          "with 'r2bench run'");
    if (names.size() > 1) throw ControlError("several run: " + joined(names) + "; choose one with --name");
    chosen = names.front();
  } else if (const auto wrong = wrong_with_name(name)) {
    throw ControlError(*wrong);
  }
  const int fd = connect_to(chosen);
  if (fd < 0)
    throw ControlError("nothing runs under the name '" + chosen + "'; " +
                       (names.empty() ? "nothing runs at all" : "there is " + joined(names)));
  return MessageSocket(fd);
}

}  // namespace r2bench
