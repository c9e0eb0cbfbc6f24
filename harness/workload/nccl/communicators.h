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
  /// `interrupt` is called every few milliseconds while something is waited for; what it throws passes
  /// through.
  Communicators(const nccl::Library& nccl, const RankConfig& config, const NcclOptions& options,
                std::function<void()> interrupt);

  /// One id for each communicator, and for those that an abort makes room for; only of the group's first
  /// rank.
  std::vector<nccl::UniqueId> make_ids() const;
  /// Collective over the group's ranks. `buffers`: what is registered, if anything. Throws NcclError.
  void initialise(const std::vector<nccl::UniqueId>& ids, std::vector<GpuData::Buffer> buffers);

  /// Starts the operation on prepared data, on this set of communicators. Throws NcclError, CudaError.
  void start(const GpuData& data, int set = 0);
  /// Polls until all of it has ended. Throws NcclError, CudaError.
  void wait();

  /// Ends the communicators as `options.renewal` says and makes those that come after them, of this group. An
  /// open operation is lost. `member`: this rank goes on in them. Throws NcclError, CudaError.
  void renew(const Communicator& group, bool member);
  /// Some of the last operation is still open.
  bool open() const;

  /// Ends the communicators in order, or with `abort` at once; false when they did not within the bound
  /// (their threads are then still at it, with `nccl`: the process has to leave by _exit).
  bool close(bool abort);

 private:
  struct Lane {
    nccl::Comm comm = nullptr;
    std::vector<void*> registrations;
    const char* network = nullptr;  ///< by its name; nullptr: which the environment says
    cuda::Stream stream = nullptr;
    cuda::Event done = nullptr;
    int reduction = 0;
  };

  void join(Lane& lane, const nccl::UniqueId& id);
  /// What a new communicator needs before its first operation.
  void prepare(Lane& lane);
  /// Waits while the communicator is in progress; NCCL's state of it then.
  int settle(nccl::Comm comm) const;
  /// Checks what a call has returned. A nonblocking communicator may go on behind it; then its end is waited
  /// for.
  void finish(int result, const char* call, nccl::Comm comm) const;
  void enqueue(const GpuData& data, const Lane& lane, int part);
  void enqueue_all(const GpuData& data, int set);
  void capture(const GpuData& data);

  const cuda::Driver& driver_;
  const nccl::Library& nccl_;
  RankConfig config_;
  const NcclOptions options_;
  const std::function<void()> interrupt_;
  std::vector<GpuData::Buffer> buffers_;
  std::vector<nccl::UniqueId> spare_ids_;  ///< of the communicators after an abort
  std::vector<Lane> lanes_;                ///< one set after the other; the first one's stream carries graphs
  std::span<Lane> started_;                ///< of the last operation
  cuda::Event begin_ = nullptr;
  cuda::GraphExec graph_ = nullptr;
};

}  // namespace r2bench
