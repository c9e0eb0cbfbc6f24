// SPDX-License-Identifier: Apache-2.0
// A board of two nodes of two NICs each, its host, and a process that has mapped it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "faultinject/control/board.h"
#include "faultinject/control/board_host.h"

namespace faultinject {

/// The board as an injected process maps it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR);
    memory_ = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  ~Mapped() { munmap(memory_, sizeof(Board)); }
  Board& operator*() const { return *static_cast<Board*>(memory_); }
  Board* operator->() const { return static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

class BoardTest : public testing::Test {
 protected:
  BoardHost host = BoardHost::create({{"node0", 2}, {"node1", 2}}, 42);
  Mapped board{host.path()};

  static FaultSpec spec(const char* kind = "port_down", const char* target = "node1/nic0") {
    FaultSpec spec(fault_kind(kind));
    spec.target = parse_target(target);
    return spec;
  }
  /// With the event as its trigger.
  static FaultSpec upon(const char* event, const char* kind = "port_down") {
    FaultSpec armed = spec(kind);
    armed.trigger.kind = Trigger::Kind::kEvent;
    armed.trigger.event = event;
    return armed;
  }
  bool advance_to(uint64_t now) {
    bool changed = false;
    advance(*board, now, changed);
    return changed;
  }
};

}  // namespace faultinject
