// SPDX-License-Identifier: Apache-2.0
// The communicators of a rank and one operation over all of them: eagerly or as a replay of a CUDA graph,
// with each communicator on a stream of its own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/nccl/gpu_data.h"
#include "harness/workload/nccl/nccl_library.h"
#include "harness/workload/nccl/nccl_options.h"

namespace r2bench {

class Communicators {
 public:
  Communicators(const nccl::Library& nccl, const RankConfig& config, const NcclOptions& options);

  /// One id for each communicator, and for those that an abort makes room for; only of the group's first
  /// rank.
  std::vector<nccl::UniqueId> make_ids() const;
  /// Collective over the group's ranks. Throws NcclError.
  void initialise(const std::vector<nccl::UniqueId>& ids);

  /// Starts the operation on prepared data, on this set of communicators. Throws NcclError, CudaError.
  void start(const GpuData& data, int set = 0);
  /// Polls until all of it has ended; false when `stop` said so first. Throws NcclError, CudaError.
  bool wait(const std::function<bool()>& stop);

  /// Ends the communicators as `options.renewal` says and makes those that come after them, of this group. An
  /// open operation is lost. `member`: this rank goes on in them. False when `stop` said so first. Throws
  /// NcclError, CudaError.
  bool renew(const Communicator& group, bool member, const std::function<bool()>& stop);
  /// Some of the last operation is still open.
  bool open() const;

  /// Ends the communicators in order, or with `abort` at once; false when they did not within the bound
  /// (their threads are then still at it: the process has to leave by _exit).
  bool close(bool abort);

 private:
  struct Lane {
    nccl::Comm comm = nullptr;
    const char* network = nullptr;  ///< by its name; nullptr: which the environment says
    cuda::Stream stream = nullptr;
    cuda::Event done = nullptr;
    int reduction = 0;
  };

  void join(Lane& lane, const nccl::UniqueId& id);
  void prepare_reduction(Lane& lane);
  bool settle(nccl::Comm comm, const std::function<bool()>& stop);
  void enqueue(const GpuData& data, const Lane& lane, int part);
  void enqueue_all(const GpuData& data, int set);
  void capture(const GpuData& data);

  const cuda::Driver& driver_;
  const nccl::Library& nccl_;
  RankConfig config_;
  const NcclOptions options_;
  std::vector<nccl::UniqueId> spare_ids_;  ///< of the communicators after an abort
  std::vector<Lane> lanes_;                ///< one set after the other; the first one's stream carries graphs
  std::span<Lane> started_;                ///< of the last operation
  cuda::Event begin_ = nullptr;
  cuda::GraphExec graph_ = nullptr;
};

}  // namespace r2bench
