// SPDX-License-Identifier: Apache-2.0
// The buffers of a rank on its GPU: filled with the cpu workload's pattern and compared element by element,
// by kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/workload/cpu/pattern.h"
#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/nccl/collective_plan.h"
#include "harness/workload/nccl/cuda_driver.h"
#include "harness/workload/nccl/gpu/gpu_pattern.h"

namespace r2bench {

/// The kernels' view of what fill_input() writes and count_wrong_sums() wants. `scaled`: contributions to
/// averages and premultiplied sums as the cpu workload has them; NCCL scales by itself. `divides`: averages
/// of whole numbers are divided, as NCCL does.
gpu::Pattern make_pattern(const Data& data, uint64_t operation, bool scaled, bool divides);
/// Relative error that is allowed of a result of several contributions.
double allowed_error(const Data& data);

class GpuData {
 public:
  /// `parts`: equal pieces, each an operation of its own. Needs a current GPU. Throws CudaError.
  GpuData(const RankConfig& config, int parts);

  /// Compares the kernels with the cpu workload's functions. Throws CudaError when they disagree.
  void prove_kernels();
  /// Fills and poisons for the operation with this number, and waits until it is done.
  void prepare(uint64_t number);
  /// How many elements are wrong after it, of all parts.
  uint64_t count_wrong(uint64_t number);

  /// From now on the operations are those of this group.
  void regroup(const Communicator& group);

  /// Address and bytes of each buffer that NCCL is told of.
  struct Buffer {
    void* at = nullptr;
    size_t bytes = 0;
  };
  std::vector<Buffer> buffers() const;

  const CollectivePlan& plan() const { return plan_; }
  /// What NCCL is told for a part.
  void* send_buffer(int part) const { return pointer(input_, part, plan_.send_first); }
  void* receive_buffer(int part) const { return pointer(output_, part, plan_.receive_first); }
  /// Elements of one part's buffer from `first` on.
  void* sent(int part, size_t first) const { return pointer(input_, part, first); }
  void* received(int part, size_t first) const { return pointer(output_, part, first); }

 private:
  void* pointer(cuda::Address buffer, int part, size_t first) const;
  uint64_t operation(uint64_t number, int part) const;
  void launch(cuda::Function kernel, uint64_t elements, void** arguments);
  void fill(cuda::Address at, size_t first, size_t count, const gpu::Pattern& pattern, uint32_t rank,
            uint64_t op);
  void poison(cuda::Address at, size_t bytes);
  void compare(cuda::Address at, const Wanted& wanted, uint64_t op);
  void count_touched(cuda::Address at, size_t bytes);
  void clear_total();
  uint64_t total();

  const cuda::Driver& driver_;
  RankConfig part_;  ///< bytes: of one part
  const int parts_;
  const uint64_t seed_;
  CollectivePlan plan_;
  size_t element_;
  size_t allocated_;  ///< bytes of each buffer
  cuda::Stream stream_ = nullptr;
  cuda::Function fill_ = nullptr, count_wrong_ = nullptr, count_touched_ = nullptr;
  cuda::Address input_ = 0, output_ = 0, factors_ = 0, total_ = 0;
};

}  // namespace r2bench
