// SPDX-License-Identifier: Apache-2.0
// For the tests of the fault driver: a real board and real trace rings, on a clock of the test's own, so that
// nothing waits for time to pass. That clock begins an hour ahead of the machine's: the board, which looks at
// the machine's clock as well, never acts by itself.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "faultinject/control/board.h"
#include "faultinject/control/board_host.h"
#include "harness/fabric/device_fabric.h"
#include "harness/measure/trace_rings.h"
#include "harness/run/fault_driver.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using faultinject::Trigger;
using r2ccl::kNsPerMs;
using r2ccl::trace::Event;
using r2ccl::trace::EventType;

inline constexpr size_t kRingEvents = 1 << 10;
inline constexpr uint64_t kHourNs = 3'600'000 * kNsPerMs;
inline constexpr uint64_t kOperationNs = 100 * kNsPerMs;

/// A file in this process's memory, as another process maps it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat status {};
    fstat(fd, &status);
    bytes_ = size_t(status.st_size);
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  ~Mapped() { munmap(memory_, bytes_); }
  Mapped(const Mapped&) = delete;
  char* begin() const { return static_cast<char*>(memory_); }
  char* end() const { return begin() + bytes_; }

 private:
  void* memory_;
  size_t bytes_;
};

/// Writes into a rank's ring with times of the test's choice: the writer stamps, then the stamp is replaced.
class Ring {
 public:
  explicit Ring(const std::string& path) : writer_(path), mapped_(path) {}
  void emit(uint64_t time_ns, EventType type, uint16_t nic, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
    writer_.emit(type, nic, 0, a, b, c);
    auto* events = reinterpret_cast<Event*>(mapped_.end()) - kRingEvents;
    events[++sequence_ % kRingEvents].time_ns = time_ns;
  }

 private:
  r2ccl::trace::Writer writer_;
  Mapped mapped_;
  uint64_t sequence_ = 0;
};

inline faultinject::FaultSpec fault(Trigger::Kind kind, const char* target = "node1/nic0") {
  faultinject::FaultSpec spec;
  spec.kind = &faultinject::fault_kind("port_down");
  spec.target = faultinject::parse_target(target);
  spec.trigger.kind = kind;
  return spec;
}
inline faultinject::FaultSpec at_time(std::chrono::nanoseconds after, const char* target = "node1/nic0") {
  auto spec = fault(Trigger::Kind::kTime, target);
  spec.trigger.after = after;
  return spec;
}
inline faultinject::FaultSpec on(const std::string& event, std::optional<uint64_t> value = {}) {
  auto spec = fault(Trigger::Kind::kEvent);
  spec.trigger.event = event;
  spec.trigger.value = value;
  return spec;
}

class FaultDriverTest : public testing::Test {
 protected:
  FaultDriverTest() {
    scenario.fabric.nics_per_node = 2;
    scenario.workload.iters = 20;
    for (int r = 0; r < 2; ++r) ranks.emplace_back(r, r, node_name(r) + "/rank0");
  }
  FaultDriver& start(size_t repeats = 1, uint64_t seed = 1) {
    driver =
        std::make_unique<FaultDriver>(scenario, repeats, seed, board, ranks, collector,
                                      [this](uint64_t, const std::string& name, const std::string& text) {
                                        notes.push_back(name + ": " + text);
                                      });
    driver->arm_first();
    return *driver;
  }
  void tick(uint64_t later_ns = 0) {
    now += later_ns;
    collector.drain();
    driver->tick(now);
  }
  void begin(size_t rank, uint64_t iteration) {
    rings[rank].emit(now, EventType::kIteration, kNoNic, iteration);
  }
  void end(size_t rank, uint64_t iteration) {
    rings[rank].emit(now, EventType::kIterationDone, kNoNic, iteration);
  }
  /// Both ranks carry out the next `count` operations, without a tick.
  void run(uint64_t count, uint64_t operation_ns = kOperationNs) {
    for (; count > 0; --count, ++next) {
      begin(0, next), begin(1, next);
      now += operation_ns;
      end(0, next), end(1, next);
    }
    collector.drain();
  }
  /// Segments arrive at rank 1 over a straight rail.
  void carry(uint16_t nic, int segments) {
    const uint64_t path = nic + 1u;
    rings[1].emit(now, EventType::kPathAccepted, nic, path, /*remote nic*/ nic);
    for (int i = 0; i < segments; ++i) rings[1].emit(now, EventType::kSegmentDelivered, nic, 100, 0, path);
  }
  /// Its channel 0 says that it has come to carry its traffic on `path`.
  void move_path(size_t rank, EventType type, uint64_t path) { rings[rank].emit(now, type, 0, 0, 0, path); }
  faultinject::FaultEntry& entry(uint32_t id) { return shared().faults[id - 1]; }
  faultinject::Board& shared() { return *reinterpret_cast<faultinject::Board*>(board_memory.begin()); }
  bool fired(uint32_t id) { return board.state(id).triggered_ns != 0; }
  /// An injected process reports the effect of a fault that has fired.
  void take_effect(uint32_t id) { faultinject::took_effect(entry(id), now); }
  std::string phase() { return driver->phase_name(); }

  // The phases of a round, each from its beginning to the tick that ends it.
  void strike(uint32_t id) {
    board.fire(id);
    take_effect(id);
    tick();
  }
  void settle() {
    run(8);
    tick();
  }
  void carry_again() {
    now += 1;
    carry(0, 4);
    carry(1, 4);
    tick();
  }
  void be_steady() {
    run(12);
    tick();
  }

  Scenario scenario;
  faultinject::BoardHost board = faultinject::BoardHost::create({{"node0", 2}, {"node1", 2}}, 42);
  Mapped board_memory{board.path()};
  TraceRings trace{2, kRingEvents};
  Collector collector{{{"node0/rank0", 0, 1}, {"node1/rank0", 1, 0}},
                      [this](size_t rank, auto& out) { return trace.drain(rank, out); }};
  Ring rings[2] = {Ring(trace.path(0)), Ring(trace.path(1))};
  std::vector<RankLink> ranks;
  std::vector<std::string> notes;
  std::unique_ptr<FaultDriver> driver;
  uint64_t now = r2ccl::now_ns() + kHourNs;
  uint64_t next = 0;  ///< iteration
};

}  // namespace r2bench
