// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/gpu_data.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "harness/workload/cpu/pattern_hash.h"
#include "harness/workload/nccl/gpu/kernel_text.h"

namespace r2bench {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMostBlocks = 2048;
constexpr size_t kProvenElements = 2000;
constexpr size_t kMostRanks = 1024;

RankConfig with_bytes(RankConfig config, size_t bytes) {
  config.bytes = bytes;
  return config;
}

gpu::Family family_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kInt32:
    case DataType::kInt64:
      return gpu::Family::kSigned;
    case DataType::kUint8:
    case DataType::kUint32:
    case DataType::kUint64:
      return gpu::Family::kUnsigned;
    case DataType::kFloat64:
      return gpu::Family::kFloat64;
    case DataType::kFloat16:
      return gpu::Family::kFloat16;
    case DataType::kBfloat16:
      return gpu::Family::kBfloat16;
    case DataType::kFloat8e4m3:
      return gpu::Family::kFloat8e4m3;
    case DataType::kFloat8e5m2:
      return gpu::Family::kFloat8e5m2;
    case DataType::kFloat32:
      break;
  }
  return gpu::Family::kFloat32;
}

int mantissa_of(gpu::Family family) {
  switch (family) {
    case gpu::Family::kFloat64:
      return 52;
    case gpu::Family::kFloat32:
      return 23;
    default:
      return gpu::small_format(family).mantissa;
  }
}

constexpr uint32_t kLargestWhole = 1 << 14;  // where the type is exact far beyond it

}  // namespace

gpu::Pattern make_pattern(const Data& data, uint64_t operation, bool scaled, bool divides) {
  const OperationKey key = key_of(operation);
  const uint32_t ranks = std::max(1u, data.ranks), exact = uint32_t(largest_exact_sum(data.type));
  gpu::Pattern p{};
  p.offset = key.offset;
  p.factor = key.factor;
  p.width = uint32_t(element_size(data.type));
  p.family = family_of(data.type);
  p.rule = gpu::Rule(data.reduction);
  p.plain = data.reduction == Reduction::kSum && exact == 0;
  p.ranks = data.ranks;
  p.largest = exact > 0      ? std::max(1u, exact / (ranks + 1))
              : p.width == 1 ? std::max(1u, 127 / ranks)
                             : kLargestWhole;
  p.most = exact > 0 ? exact : kLargestWhole;
  p.scaled = scaled;
  p.divisor = divides && data.reduction == Reduction::kAvg ? ranks : 1;
  return p;
}

double allowed_error(const Data& data) {
  const gpu::Family family = family_of(data.type);
  if (family <= gpu::Family::kUnsigned || data.reduction != Reduction::kAvg) return 0;
  if ((data.ranks & (data.ranks - 1)) == 0) return 0;  // a power of two: exact
  return (double(data.ranks) + 2) * std::ldexp(1.0, -mantissa_of(family) - 1);
}

GpuData::GpuData(const RankConfig& config, int parts)
    : driver_(cuda::Driver::instance()),
      part_(with_bytes(config, config.bytes / size_t(parts))),
      parts_(parts),
      seed_(config.seed),
      plan_(plan_collective(part_)),
      element_(element_size(config.dtype)),
      allocated_(std::max(config.bytes, kProvenElements * element_)) {
  char log[4096] = "";
  int options[] = {cuda::kJitErrorLog, cuda::kJitErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  cuda::Module module = nullptr;
  if (const int result = driver_.ModuleLoadDataEx(&module, kKernelText, 2, options, values);
      result != cuda::kSuccess)
    throw cuda::CudaError("the kernels that check the data cannot be compiled for this GPU: " +
                          driver_.describe(result) + (log[0] ? std::string(": ") + log : ""));
  driver_.check(driver_.ModuleGetFunction(&fill_, module, "r2bench_fill"), "cuModuleGetFunction");
  driver_.check(driver_.ModuleGetFunction(&count_wrong_, module, "r2bench_count_wrong"),
                "cuModuleGetFunction");
  driver_.check(driver_.ModuleGetFunction(&count_touched_, module, "r2bench_count_touched"),
                "cuModuleGetFunction");
  driver_.check(driver_.StreamCreate(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate");
  driver_.check(driver_.MemAlloc(&output_, allocated_), "cuMemAlloc");
  if (config.in_place)
    input_ = output_;
  else
    driver_.check(driver_.MemAlloc(&input_, allocated_), "cuMemAlloc");
  driver_.check(driver_.MemAlloc(&factors_, kMostRanks * sizeof(uint32_t)), "cuMemAlloc");
  driver_.check(driver_.MemAlloc(&total_, sizeof(uint64_t)), "cuMemAlloc");
}

void GpuData::regroup(const Communicator& group) {
  part_.group = group;
  plan_ = plan_collective(part_);
}

std::vector<GpuData::Buffer> GpuData::buffers() const {
  std::vector<Buffer> all = {{reinterpret_cast<void*>(output_), allocated_}};
  if (input_ != output_) all.push_back({reinterpret_cast<void*>(input_), allocated_});
  return all;
}

void* GpuData::pointer(cuda::Address buffer, int part, size_t first) const {
  return reinterpret_cast<void*>(buffer + size_t(part) * part_.bytes + first * element_);
}

uint64_t GpuData::operation(uint64_t number, int part) const {
  return data_operation(seed_, number * uint64_t(parts_) + uint64_t(part));
}

void GpuData::launch(cuda::Function kernel, uint64_t elements, void** arguments) {
  if (elements == 0) return;
  const auto blocks = unsigned(std::min(kMostBlocks, (elements + kThreads - 1) / kThreads));
  driver_.check(driver_.LaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
                "cuLaunchKernel");
}

void GpuData::fill(cuda::Address at, size_t first, size_t count, const gpu::Pattern& pattern, uint32_t rank,
                   uint64_t op) {
  uint64_t from = first, elements = count;
  gpu::Pattern copy = pattern;
  uint32_t factor = factor_of(rank, op);
  void* arguments[] = {&at, &from, &elements, &copy, &factor};
  launch(fill_, elements, arguments);
}

void GpuData::poison(cuda::Address at, size_t bytes) {
  if (bytes > 0) driver_.check(driver_.MemsetD8Async(at, 0xff, bytes, stream_), "cuMemsetD8Async");
}

void GpuData::compare(cuda::Address at, const Wanted& wanted, uint64_t op) {
  const Data data = part_.data();
  // One contribution alone is what its rank put in: nobody has scaled it.
  const bool several = wanted.from.count > 1;
  gpu::Pattern pattern = make_pattern(data, op, several, true);
  double error = several ? allowed_error(data) : 0;
  uint32_t members = wanted.from.count;
  std::vector<uint32_t> factors;
  for (uint32_t m = 0; m < members; ++m)
    factors.push_back(factor_of(wanted.from.first + m * wanted.from.step, op));
  // In the stream's order: behind the kernel that may still read the last ones. Pageable memory is copied at
  // the call.
  driver_.check(driver_.MemcpyHtoDAsync(factors_, factors.data(), factors.size() * sizeof(uint32_t), stream_),
                "cuMemcpyHtoDAsync");
  uint64_t from = wanted.pattern_first, elements = wanted.at.count;
  at += wanted.at.first * element_;
  void* arguments[] = {&at, &from, &elements, &pattern, &factors_, &members, &error, &total_};
  launch(count_wrong_, elements, arguments);
}

void GpuData::count_touched(cuda::Address at, size_t bytes) {
  uint64_t count = bytes;
  void* arguments[] = {&at, &count, &total_};
  launch(count_touched_, count, arguments);
}

void GpuData::clear_total() {
  driver_.check(driver_.MemsetD8Async(total_, 0, sizeof(uint64_t), stream_), "cuMemsetD8Async");
}

uint64_t GpuData::total() {
  uint64_t value = 0;
  driver_.check(driver_.StreamSynchronize(stream_), "cuStreamSynchronize");
  driver_.check(driver_.MemcpyDtoH(&value, total_, sizeof(value)), "cuMemcpyDtoH");
  return value;
}

void GpuData::prove_kernels() {
  const uint64_t op = operation(0x5eed, 0);
  const uint32_t rank = part_.job_rank(part_.rank());
  const Data data = part_.data();
  std::vector<char> wanted(kProvenElements * element_), got(wanted.size());
  fill_input(data, wanted.data(), 7, kProvenElements, rank, op);
  fill(output_, 7, kProvenElements, make_pattern(data, op, true, false), rank, op);
  driver_.check(driver_.StreamSynchronize(stream_), "cuStreamSynchronize");
  driver_.check(driver_.MemcpyDtoH(got.data(), output_, got.size()), "cuMemcpyDtoH");
  if (got != wanted)
    throw cuda::CudaError("the GPU's kernels write other values than the cpu workload's pattern has");
  // The comparison finds what is right right, and what is not there at all wrong.
  fill(output_, 7, kProvenElements, make_pattern(data, op, false, false), rank, op);
  for (const bool poisoned : {false, true}) {
    if (poisoned) poison(output_, wanted.size());
    clear_total();
    compare(output_, {{0, kProvenElements}, 7, {1, rank, 1}}, op);
    const uint64_t wrong = total();
    if (poisoned ? wrong < kProvenElements * 9 / 10 : wrong != 0)
      throw cuda::CudaError("the GPU's comparison finds " + std::to_string(wrong) + " of " +
                            std::to_string(kProvenElements) +
                            (poisoned ? " elements of poison" : " right elements") + " wrong");
  }
}

void GpuData::prepare(uint64_t number) {
  if (plan_.poisoned) poison(output_, part_.bytes * size_t(parts_));
  for (int part = 0; part < parts_; ++part) {
    const uint64_t op = operation(number, part);
    fill(cuda::Address(pointer(input_, part, plan_.filled.first)), plan_.filled.first, plan_.filled.count,
         make_pattern(part_.data(), op, false, false), part_.job_rank(part_.rank()), op);
  }
  driver_.check(driver_.StreamSynchronize(stream_), "cuStreamSynchronize");
}

uint64_t GpuData::count_wrong(uint64_t number) {
  clear_total();
  for (int part = 0; part < parts_; ++part) {
    const auto at = cuda::Address(pointer(output_, part, 0));
    for (const Wanted& wanted : plan_.wanted) compare(at, wanted, operation(number, part));
    for (const Stretch& stretch : plan_.untouched)
      count_touched(at + stretch.first * element_, stretch.count * element_);
  }
  return total();
}

}  // namespace r2bench
