// SPDX-License-Identifier: Apache-2.0
#include "harness/run/job_control.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "r2ccl/base/clock.h"

namespace r2bench {

std::string job_control_name(pid_t pid) { return "run-" + std::to_string(pid); }

JobControl::JobControl(faultinject::FaultBoard& board, std::vector<faultinject::NodeShape> nodes,
                       const std::string& what, Note note)
    : service_(board, std::move(nodes), "scenario",
               [note](const std::string& text) { note(r2ccl::now_ns(), "inject", text); }) {
  const std::string name = job_control_name(getpid());
  std::string why = "the name '" + name + "' is taken";
  try {
    const int listener = listen_at(name);
    if (listener >= 0)
      server_ = std::make_unique<ControlServer>(
          listener, [this, what](uint64_t, const Peer&, const nlohmann::json& request) -> nlohmann::json {
            const std::string type = request.value("type", "");
            if (type == "what") return {{"what", what}};
            if (const auto reply = service_.answer(request, "inject")) return *reply;
            return {{"error", "a job of r2bench run answers no request '" + type + "'"}};
          });
  } catch (const std::system_error& error) {
    why = error.what();
  }
  if (!server_) note(r2ccl::now_ns(), "no_control", "r2bench inject cannot reach this job: " + why);
}

void JobControl::serve() {
  if (server_) server_->serve(std::chrono::milliseconds(0));
}

}  // namespace r2bench
