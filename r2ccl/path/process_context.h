// SPDX-License-Identifier: Apache-2.0
// What every channel of the process shares: settings, NICs, and the service thread's ear.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "r2ccl/balance/meter.h"
#include "r2ccl/balance/shares.h"
#include "r2ccl/base/config.h"
#include "r2ccl/control/socket.h"
#include "r2ccl/health/failure_log.h"
#include "r2ccl/health/peer_rails.h"
#include "r2ccl/path/link_meters.h"
#include "r2ccl/path/nic_workers.h"
#include "r2ccl/path/ownership.h"
#include "r2ccl/path/plan_knowledge.h"
#include "r2ccl/protocol/bounds.h"
#include "r2ccl/protocol/data_moved.h"
#include "r2ccl/protocol/nic_choice.h"
#include "r2ccl/protocol/unanswered.h"
#include "r2ccl/protocol/wire.h"
#include "r2ccl/trace/ring.h"
#include "r2ccl/verbs/device.h"
#include "r2ccl/verbs/memory_region.h"

namespace r2ccl {

struct ProcessContext {
  Config config;
  std::vector<verbs::Device> devices;        ///< at most wire::kMaxNics
  std::vector<std::vector<Backup>> backups;  ///< per NIC: the others, nearest first
  int standbys = 0;  ///< open or being opened for this process's sends; service thread only
  std::array<bool, wire::kMaxNics> nic_down{};         ///< the port has said so; service thread only
  std::array<uint64_t, wire::kMaxNics> nic_down_at{};  ///< … when (CLOCK_MONOTONIC, ns)
  std::array<std::atomic<bool>, wire::kMaxNics> nic_unusable{};  ///< a buffer could not be registered on it
  /// How often a device has reported DEVICE_FATAL: what it answers to commands on older queue pairs proves
  /// nothing. The service thread counts, any thread reads.
  std::array<std::atomic<uint32_t>, wire::kMaxNics> device_fatals{};
  /// The kernel has taken the context away, and destroyed its queue pairs. Service thread only.
  std::array<bool, wire::kMaxNics> device_gone{};
  std::string host;
  uint64_t process = 0;
  /// Who makes the driver calls that may take long. Registering memory may take seconds and be no failure,
  /// and nobody's fence must wait for it: those calls have workers of their own.
  std::unique_ptr<NicWorkers> workers, registrars;
  std::atomic<bool> ended{false};  ///< the service thread has: the process exits
  std::function<void()> kick;      ///< wakes the service thread; any thread, never blocks
  /// Service thread only; valid until the next call. `shared`: what this process has is told to the node's
  /// others first, and theirs is read.
  std::function<const NicLoad&(bool shared)> load;
  bool load_stale = true;                               ///< … it has changed since
  std::function<Result<control::Endpoint>()> endpoint;  ///< where peers reach this process; any thread

  /// What is known of the rails to a process, for all channels to it; service thread only.
  std::shared_ptr<health::PeerRails> rails_to(uint64_t peer_process, const Bounds& bounds) {
    auto known = rails_to_peers[peer_process].lock();
    if (known) return known;
    std::erase_if(rails_to_peers, [](const auto& entry) { return entry.second.expired(); });
    known = std::make_shared<health::PeerRails>(bounds.probe, bounds.longest_probe());
    rails_to_peers[peer_process] = known;
    return known;
  }
  std::map<uint64_t, std::weak_ptr<health::PeerRails>> rails_to_peers;
  Unanswered unanswered;  ///< service thread only
  DataMoved data_moved;   ///< service thread only

  FailureLog failure_log;  ///< service thread only

  /// Bit i: memory at that address is across sockets from NIC i, as far as is known. Any thread.
  std::function<uint8_t(const void*)> far_nics = [](const void*) { return uint8_t{0}; };

  /// Mode 2 and up. What each NIC carries; the rest is the service thread's: what it can carry, and the
  /// sending channels of the node that have their home there and have had traffic of late.
  std::array<balance::NicMeter, wire::kMaxNics> meters;
  std::atomic<uint64_t> planned_bytes{0};  ///< … of that, what channels sent that follow a plan
  LinkMeters links;                        ///< … and each of its links, if plans are to know of them
  bool plans_by_links() const { return config.mode == Mode::kAllReduce && config.plan_links != 0; }
  /// Which link a path is; nullptr: nobody measures it.
  balance::NicMeter* link_meter(int nic, const wire::PathEnd& remote) {
    if (!plans_by_links()) return nullptr;
    return links.of(nic, std::to_array(remote.address.gid.raw));
  }
  balance::Capacities capacities;
  PlanKnowledge plans;  ///< … and what plans know of the rails that begin at each NIC (GroupPlan)
  /// It carries less than its neighbours; for what follows a plan: less than that plan knows of.
  bool is_degraded(size_t nic, const PlanKnowledge::Plan* follows) const {
    return capacities.gray_beyond(nic, follows ? follows->carries(nic) : 1);
  }
  balance::Demand demand;
  uint64_t demand_version = 0;  ///< rises when it changes
  /// What all NICs can carry, relative to their nominal rates; written by the service thread.
  std::atomic<double> node_capacity{1};
  std::array<std::atomic<double>, wire::kMaxNics> nic_lacks{};  ///< of one NIC: 1 − its capacity
  std::array<std::atomic<double>, wire::kMaxNics> nic_carried{};  ///< Net::nic_carried

  /// Its port carries, as far as is known, and takes this process's buffers; service thread only.
  bool is_up(int nic) const { return !nic_unusable[size_t(nic)] && !nic_down[size_t(nic)]; }
  /// … and its driver answers, so that a path may be opened over it.
  bool usable(int nic) const { return is_up(nic) && !workers->stuck(nic); }
  bool balances() const { return config.mode >= Mode::kBalance; }
  bool resilient() const { return config.mode != Mode::kBaseline; }
  /// Without resilience the end of a control connection is the end of its channel.
  control::Silence silence() const {
    return resilient() ? control::Silence::kShort : control::Silence::kLong;
  }
  bool strict_ack() const { return resilient() && config.strict_ack; }
  /// What a path brings into a GPU's memory is flushed through its NIC, before its message is done.
  bool flushes(int nic, int home_nic) const {
    return config.gpu_direct &&
           (config.gpu_flush == 1 || (config.gpu_flush == Config::kFlushHomeOnly && nic == home_nic));
  }
  /// Messages up to so many bytes are sent from a copy, which the processor makes: not of a GPU's memory.
  uint32_t copied_bytes() const { return strict_ack() && !config.gpu_direct ? wire::kCopiedBytes : 0; }
};

/// A buffer on every NIC that may carry it.
class Registration {
 public:
  using Keys = std::array<uint32_t, wire::kMaxNics>;
  /// By NIC; 0: it is not registered there.
  const Keys& lkeys() const { return lkeys_; }
  const Keys& rkeys() const { return rkeys_; }
  uint32_t lkey(int nic) const { return lkeys_[size_t(nic)]; }
  /// Bit i: it lies across sockets from NIC i.
  uint8_t far_nics() const { return far_nics_; }
  bool on_gpu() const { return on_gpu_; }

 private:
  friend class Registrations;
  int users_ = 0;
  bool on_gpu_ = false;
  uint8_t far_nics_ = 0;
  Keys lkeys_{}, rkeys_{};  // of regions_, as the fast path reads them
  std::array<verbs::MemoryRegion, wire::kMaxNics> regions_;
};

}  // namespace r2ccl
