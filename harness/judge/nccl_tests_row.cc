// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/nccl_tests_row.h"

#include <numeric>

namespace r2bench {
namespace {

const char* name_in_nccl_tests(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return "int8";
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt32:
      return "int32";
    case DataType::kUint32:
      return "uint32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint64:
      return "uint64";
    case DataType::kFloat16:
      return "half";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat32:
      return "float";
    case DataType::kFloat64:
      return "double";
    case DataType::kFloat8e4m3:
      return "f8e4m3";
    case DataType::kFloat8e5m2:
      return "f8e5m2";
  }
  return "";
}

}  // namespace

NcclTestsRow nccl_tests_row(const Workload& work, int ranks, const std::vector<double>& iteration_ms) {
  NcclTestsRow row;
  const double n = ranks;
  row.size_bytes = work.bytes;
  row.count = work.bytes / uint64_t(size_of(work.dtype));
  row.type = name_in_nccl_tests(work.dtype);
  if (in_chunks(work.op)) row.count /= uint64_t(ranks);  // as nccl-tests prints it: of one rank
  row.redop = reduces(work.op) ? name(work.reduction) : "none";
  row.root = work.op == Operation::kBroadcast ? 0 : -1;
  row.iterations = iteration_ms.size();
  if (work.engine == Engine::kExec) {
    row.size_bytes = row.count = 0;  // the command knows
    row.type = row.redop = "-";
    row.root = -1;
  }
  if (iteration_ms.empty()) return row;
  const double sum_ms = std::accumulate(iteration_ms.begin(), iteration_ms.end(), 0.0);
  row.time_us = 1e3 * sum_ms / double(iteration_ms.size());
  if (row.size_bytes == 0) return row;
  row.algbw = double(row.size_bytes) / (row.time_us * 1e3);
  row.busbw = row.algbw * (work.op == Operation::kAllReduce ? 2 * (n - 1) / n
                           : in_chunks(work.op)             ? (n - 1) / n
                                                            : 1);
  return row;
}

}  // namespace r2bench
