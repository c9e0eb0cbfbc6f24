// SPDX-License-Identifier: Apache-2.0
// r2bench-conformance: the verbs conformance suite. It knows verbs only; which fabric the two devices belong
// to, and who breaks them, is the caller's business.
//
//   r2bench-conformance --a DEVICE --b DEVICE [--case NAME-PREFIX]…              all cases
//   r2bench-conformance --a DEVICE --b DEVICE --strike event|COMMAND [--slows]   what a program sees of one
//   fault
//
// Prints JSON on stdout, or writes it to the descriptor of --json-fd, where no provider's message gets in
// between. 'event' strikes by faultinject_event("strike", 1), for a fault that waits for it; anything else is
// a shell command.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "harness/conformance/carry.h"
#include "harness/conformance/cases.h"
#include "harness/conformance/strike.h"

namespace r2bench::conformance {
namespace {

constexpr unsigned kCaseSeconds = 1800;  // of which the machine may let us stand still for some

nlohmann::json run_here(const Case& which, const std::string& a, const std::string& b) {
  nlohmann::json result = {{"case", which.name}};
  Notes notes;
  try {
    Device device_a(a), device_b(b);
    which.run(device_a, device_b, notes);
    result["outcome"] = "ran";
  } catch (const NotOffered& reason) {
    result["outcome"] = "not offered";
    result["reason"] = reason.what();
  } catch (const std::exception& reason) {
    result["outcome"] = "broken";
    result["reason"] = reason.what();
  }
  result["observations"] = notes.observations();
  return result;
}

/// In a process of its own: a provider that crashes or hangs is an outcome, not the end of the suite.
nlohmann::json run_apart(const Case& which, const std::string& a, const std::string& b) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) {
    ::close(ends[0]);
    alarm(kCaseSeconds);
    const std::string text = run_here(which, a, b).dump();
    const bool whole = ::write(ends[1], text.data(), text.size()) == ssize_t(text.size());
    _exit(whole ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t n; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), size_t(n));
  ::close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return nlohmann::json::parse(text);
  const std::string how = WIFSIGNALED(status) ? std::string("died of ") + strsignal(WTERMSIG(status))
                                              : "ended with status " + std::to_string(WEXITSTATUS(status));
  return {{"case", which.name},
          {"outcome", "broken"},
          {"reason", how},
          {"observations", nlohmann::json::array()}};
}

void strike_by(const std::string& how) {
  if (how != "event") {
    if (const int status = std::system(how.c_str()); status != 0) throw Broken("'" + how + "' failed");
    return;
  }
  using Event = void (*)(const char*, uint64_t);
  const auto event = reinterpret_cast<Event>(dlsym(RTLD_DEFAULT, "faultinject_event"));
  if (event == nullptr) throw Broken("--strike event: the injector is not preloaded");
  event("strike", 1);
}

/// stdout, or a descriptor.
void print(const nlohmann::json& json, int fd) {
  const std::string text = json.dump(1) + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) throw std::runtime_error("the result cannot be written");
    done += size_t(n);
  }
}

/// The command line.
struct Arguments {
  std::string a, b;                 ///< devices
  std::vector<std::string> chosen;  ///< cases whose names begin with one of these; none: all
  std::string strike;               ///< 'event' or a shell command; empty: no fault
  StrikeOptions options;
  unsigned carry_ms = 0;
  int json_fd = STDOUT_FILENO;
  bool list = false;
};

int strike(const Arguments& arguments) {
  StrikeOptions options = arguments.options;
  if (options.slowed_to.count() > 0) options.timeout = 18;      // what is slow must not look dead
  if (options.passes) options.timeout = 19, options.retry = 6;  // 15 s
  options.strike = [&] { strike_by(arguments.strike); };
  try {
    Device device_a(arguments.a), device_b(arguments.b);
    print(what_a_program_sees(device_a, device_b, options), arguments.json_fd);
  } catch (const std::exception& reason) {
    print({{"broken", reason.what()}}, arguments.json_fd);
    return 1;
  }
  return 0;
}

int carry(const Arguments& arguments) {
  Device device_a(arguments.a), device_b(arguments.b);
  const std::chrono::milliseconds time(arguments.carry_ms);
  print({{"bits_per_s", carried_bits_per_s(device_a, device_b, time)}}, arguments.json_fd);
  return 0;
}

int run_cases(const Arguments& arguments) {
  const auto wanted = [&](const Case& which) {
    const auto& chosen = arguments.chosen;
    return chosen.empty() || std::any_of(chosen.begin(), chosen.end(), [&](const std::string& prefix) {
             return which.name.starts_with(prefix);
           });
  };
  nlohmann::json results = nlohmann::json::array();
  for (const Case& which : all_cases()) {
    if (!wanted(which)) continue;
    if (arguments.list) {
      std::cout << which.name << "\n";
      continue;
    }
    std::cout << (arguments.json_fd == STDOUT_FILENO ? "" : which.name + "\n") << std::flush;
    results.push_back(run_apart(which, arguments.a, arguments.b));
  }
  if (!arguments.list) print(results, arguments.json_fd);
  return 0;
}

int program(int argc, char** argv) {
  CLI::App app(
      "Runs verbs cases between two RDMA devices and prints what was observed, as JSON. `r2bench "
      "conformance` uses it.");
  Arguments arguments;
  app.add_option("--a", arguments.a, "Device of the initiator")->required();
  app.add_option("--b", arguments.b, "Device of the target (may be the same)")->required();
  app.add_option("--case", arguments.chosen, "Run only cases whose names begin with this");
  app.add_option("--strike", arguments.strike,
                 "Record what a program sees of one fault, made by 'event' (the injector's event) or by this "
                 "shell command");
  unsigned slowed_ms = 0;
  app.add_option("--slowed-to", slowed_ms,
                 "With --strike, for a rate limit or a delay: nothing breaks; traffic must take at least "
                 "this long, in ms");
  app.add_flag("--passes", arguments.options.passes,
               "With --strike: the fault ends before the retries are exhausted, and traffic continues");
  app.add_option("--carry", arguments.carry_ms,
                 "Only measure how much the two devices carry, for this long, in ms");
  app.add_option("--json-fd", arguments.json_fd, "File descriptor to which the JSON is written");
  app.add_flag("--list", arguments.list, "Only print the names of the cases");
  CLI11_PARSE(app, argc, argv);
  arguments.options.slowed_to = std::chrono::milliseconds(slowed_ms);
  if (!arguments.strike.empty()) return strike(arguments);
  if (arguments.carry_ms > 0) return carry(arguments);
  return run_cases(arguments);
}

}  // namespace
}  // namespace r2bench::conformance

int main(int argc, char** argv) { return r2bench::conformance::program(argc, argv); }
