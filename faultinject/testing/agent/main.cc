// SPDX-License-Identifier: Apache-2.0
// A small real verbs program that does what it is told, one line at a time on stdin, and answers with one
// line on stdout. The tests run one per virtual node, with the injector preloaded. It is built twice: linked
// with libibverbs, and bound at run time by dlopen and dlvsym, as NCCL does it. With AGENT_EXTENDED in its
// environment the linked one posts through ibv_qp_ex and polls through ibv_cq_ex; with AGENT_ASKS_FOR_NOTHING
// such a queue shows nothing but wr_id and status.
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <iostream>

#include "faultinject/testing/agent/agent.h"

namespace agent {

Pair& pair_of(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  return pairs.at(id);
}

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

std::string ok_or_errno(int rc) { return rc == 0 ? "ok" : "errno " + std::to_string(rc); }

namespace {

// raise NAME VALUE: an event for the triggers of faults.
std::string raise_event(std::istringstream& in) {
  std::string name;
  uint64_t value = 0;
  in >> name >> value;
  auto* event = reinterpret_cast<void (*)(const char*, uint64_t)>(dlsym(RTLD_DEFAULT, "faultinject_event"));
  if (event != nullptr) event(name.c_str(), value);
  return event != nullptr ? "ok" : "none";
}

// fork [close]: a child that opens a device of its own, with `close` after it has closed an inherited one;
// what state it finds the port in. Nothing is allocated in between: it may have the same address.
std::string fork_and_open(std::istringstream& in) {
  std::string close;
  in >> close;
  int count = 0;
  ibv_device** list = V(ibv_get_device_list)(&count);
  if (list == nullptr || count == 0) return "error devices";
  ibv_context* inherited = close == "close" ? V(ibv_open_device)(list[0]) : nullptr;
  const pid_t child = fork();
  if (child == 0) {
    if (inherited != nullptr && V(ibv_close_device)(inherited) != 0) _exit(2);
    ibv_context* own = V(ibv_open_device)(list[0]);
    ibv_port_attr attr{};
    const bool asked = own != nullptr && ibv_query_port(own, 1, &attr) == 0;
    _exit(asked ? 10 + attr.state : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (inherited != nullptr) V(ibv_close_device)(inherited);
  V(ibv_free_device_list)(list);
  return "ok " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

Commands process_commands() {
  return {
      {"now", [](std::istringstream&) { return "ok " + std::to_string(now_ns()); }},
      {"raise", raise_event},
      {"fork", fork_and_open},
  };
}

Commands all_commands() {
  Commands all = process_commands();
  for (Commands of : {device_commands(), queue_pair_commands(), work_commands(), traffic_commands(),
                      completion_commands(), event_commands()})
    all.merge(of);
  return all;
}

std::string answer(const std::string& line) {
  static const Commands commands = all_commands();
  std::istringstream in(line);
  std::string command;
  in >> command;
  const auto known = commands.find(command);
  return known == commands.end() ? "error unknown " + command : known->second(in);
}

}  // namespace
}  // namespace agent

int main() {
  for (std::string line; std::getline(std::cin, line) && line != "quit";)
    std::cout << agent::answer(line) << std::endl;
  return 0;
}
