// SPDX-License-Identifier: Apache-2.0
// Paths out of use. Destroying queue pairs and taking registrations away can take a driver milliseconds, and
// neither a migration nor the service thread's other channels must wait for it: a path is retired, kept for a
// while (a probe that was given up may still be answered, and the peer may have to be fenced after all), and
// then destroyed by its NIC's worker. The service thread's.
//
// Where memory is short, retire() and destroy() throw std::bad_alloc, and the path is still the caller's: it
// is never destroyed by the unwinding, on the service thread or under a worker that has it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "r2ccl/path/nic_workers.h"
#include "r2ccl/path/path.h"

namespace r2ccl {

class RetiredPaths {
 public:
  using PathPtr = std::unique_ptr<Path>;
  /// A path that is being destroyed.
  struct Destruction {
    uint32_t path;
    int nic;
    JobPtr job;
    struct Outcome {
      std::atomic<bool> refused{false};  ///< the driver would not; it is kept (NicWorkers::keep), as is one
                                         ///< whose memory the driver would not give up, and one whose
                                         ///< device has failed meanwhile
      std::atomic<bool> with_eio{false};
    };
    std::shared_ptr<Outcome> outcome;
    uint32_t device_fatals;  ///< Path::device_fatals
  };

  using Fatals = std::array<std::atomic<uint32_t>, wire::kMaxNics>;  ///< ProcessContext's

  explicit RetiredPaths(const Fatals& device_fatals) : device_fatals_(device_fatals) {}

  /// Keeps `path` until `keep_until` (CLOCK_MONOTONIC, ns), or until destroy_expired() finds too many.
  void retire(PathPtr&& path, uint64_t keep_until);
  /// Takes out one that is still whole; nullptr: it is not here, or is being destroyed.
  PathPtr reclaim(uint32_t id);
  /// Paths that are still whole, the oldest first.
  const std::vector<PathPtr>& retired() const { return retired_; }
  /// Begins to destroy the oldest, when its time is over and `calm` (a search for a path needs the workers),
  /// or when they pile up until the NIC might have no room for new ones.
  void destroy_expired(NicWorkers& workers, uint64_t now, bool calm);
  /// Begins to destroy `path` now. A queue pair that the driver will not give up keeps everything it may
  /// touch.
  void destroy(NicWorkers& workers, PathPtr&& path);
  void destroy_all(NicWorkers& workers);
  /// nullptr: none of that number is being destroyed (any more).
  const Destruction* destruction_of(uint32_t id) const;
  /// Those under way, and those that were refused.
  const std::vector<Destruction>& destructions() const { return destructions_; }
  /// Are all gone, as far as they can go? A NIC that is stuck is not waited for.
  bool closed(const NicWorkers& workers) const;
  /// Its device has failed since it was made: that it is destroyed proves nothing.
  bool doubtful(const Destruction& destruction) const {
    return destruction.device_fatals != device_fatals_[size_t(destruction.nic)];
  }

 private:
  const Fatals& device_fatals_;
  std::vector<PathPtr> retired_;
  std::vector<Destruction> destructions_;
};

}  // namespace r2ccl
