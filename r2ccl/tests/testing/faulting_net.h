// SPDX-License-Identifier: Apache-2.0
// Test support: breaks queue pairs of a virtual fabric from outside, as a NIC would that had an internal
// error. The programs are not asked and nothing is preloaded, so it works in forked children and under every
// sanitizer.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness/vhca/fabric/fabric_host.h"
#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/fabric/process_table.h"

namespace r2ccl::testing_support {

class FaultingNet {
 public:
  explicit FaultingNet(const vhca::FabricHost& fabric) {
    const int fd = open(fabric.path().c_str(), O_RDWR | O_CLOEXEC);
    void* memory =
        fd < 0 ? MAP_FAILED
               : mmap(nullptr, vhca::kFabricBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) throw std::runtime_error("the fabric cannot be mapped");
    fabric_ = static_cast<vhca::Fabric*>(memory);
  }
  ~FaultingNet() {
    stop();
    munmap(fabric_, vhca::kFabricBytes);
  }
  FaultingNet(const FaultingNet&) = delete;
  FaultingNet& operator=(const FaultingNet&) = delete;

  /// Breaks what lives on that NIC: every queue pair in RTR or RTS goes to ERR, with its event and its
  /// flushes. New ones work. `least_depth`: only those whose receive queue holds so many (channels' data
  /// queue pairs: 16). Returns how many were broken.
  int strike(int node, int nic, uint32_t least_depth = 0) {
    const uint32_t port = fabric_->nodes[node].first_port + uint32_t(nic);
    int broken = 0;
    for (vhca::QpSlot& slot : fabric_->queue_pairs.used()) {
      if (slot.owner.load() == 0 || slot.number.load() == 0 || slot.port != port ||
          slot.recv_depth < least_depth)
        continue;
      for (uint32_t from : {uint32_t(IBV_QPS_RTS), uint32_t(IBV_QPS_RTR)}) {
        uint32_t seen = slot.state.word();
        if (vhca::QpState::state_of(seen) != from || !slot.state.change(seen, IBV_QPS_ERR)) continue;
        ++broken;
        slot.events.raise(vhca::QpState::life_of(seen), 1u << IBV_EVENT_QP_FATAL);
        vhca::CqSlot& cq = fabric_->completion_queues[slot.recv_cq];
        cq.ready[slot.recv_cq_bit / 64].fetch_or(1ull << (slot.recv_cq_bit % 64));
        cq.ready_summary.fetch_or(1ull << (slot.recv_cq_bit / 64));
        vhca::ring_doorbell(*fabric_, slot.owner.load());
        break;
      }
    }
    broken_ += broken;
    return broken;
  }

  /// What leaves that NIC takes so much longer: of queue pairs that are connected from now on.
  void make_late(int node, int nic, std::chrono::nanoseconds latency) {
    fabric_->ports[fabric_->nodes[node].first_port + uint32_t(nic)].latency_ns = uint64_t(latency.count());
  }

  /// Packets of more than `bytes` vanish there without a word.
  void make_narrow(int node, int nic, uint32_t bytes) {
    fabric_->ports[fabric_->nodes[node].first_port + uint32_t(nic)].narrow = bytes;
  }

  /// The port's MTU is another one, as its administrator may decide: queue pairs that are connected from now
  /// on cannot have a larger one.
  void set_mtu(int node, int nic, uint32_t bytes) {
    fabric_->ports[fabric_->nodes[node].first_port + uint32_t(nic)].mtu = bytes;
  }

  /// From now on, until stop(), `work` is called again and again by a thread of its own.
  void start(std::function<void(FaultingNet&)> work) {
    stopping_ = false;
    thread_ = std::thread([this, work = std::move(work)] {
      while (!stopping_) work(*this);
    });
  }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int broken() const { return broken_; }  ///< queue pairs, so far

 private:
  vhca::Fabric* fabric_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> broken_{0};
};

}  // namespace r2ccl::testing_support
