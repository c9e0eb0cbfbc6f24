// SPDX-License-Identifier: Apache-2.0
// The kernels' formulas against the cpu workload's: for every type and reduction what is filled in is the
// same, byte for byte, and the comparison finds the same elements wrong.
#include "harness/workload/nccl/gpu/gpu_pattern.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "harness/workload/cpu/pattern.h"
#include "harness/workload/nccl/gpu_data.h"

namespace r2bench {
namespace {

constexpr size_t kCount = 3000, kFirst = 5;
constexpr uint64_t kOperation = data_operation(42, 7);

class GpuPattern : public testing::TestWithParam<std::tuple<DataType, Reduction, uint32_t>> {
 protected:
  Data data() const { return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())}; }
  size_t bytes() const { return kCount * element_size(data().type); }

  /// As ranks add the cpu workload's inputs up.
  std::vector<char> combined() const {
    std::vector<char> total(bytes()), more(bytes());
    fill_input(data(), total.data(), kFirst, kCount, 0, kOperation);
    for (uint32_t rank = 1; rank < data().ranks; ++rank) {
      fill_input(data(), more.data(), kFirst, kCount, rank, kOperation);
      reduce(data(), total.data(), total.data(), more.data(), kCount);
    }
    return total;
  }
  uint64_t wrong(const std::vector<char>& result, uint64_t operation, uint32_t ranks) const {
    const gpu::Pattern pattern = make_pattern(data(), operation, true, false);
    std::vector<uint32_t> factors;
    for (uint32_t rank = 0; rank < ranks; ++rank) factors.push_back(factor_of(rank, operation));
    uint64_t count = 0;
    for (size_t k = 0; k < kCount; ++k)
      count += gpu::is_wrong(pattern, result.data(), kFirst, k, factors.data(), ranks, allowed_error(data()));
    return count;
  }
};

TEST_P(GpuPattern, fills_in_what_the_cpu_workload_fills_in) {
  for (const uint32_t rank : {0u, 1u, 6u}) {
    std::vector<char> wanted(bytes()), got(bytes());
    fill_input(data(), wanted.data(), kFirst, kCount, rank, kOperation);
    const gpu::Pattern pattern = make_pattern(data(), kOperation, true, false);
    for (size_t k = 0; k < kCount; ++k)
      gpu::fill_element(pattern, got.data(), kFirst, k, factor_of(rank, kOperation));
    EXPECT_EQ(got, wanted) << "rank " << rank;
  }
}

TEST_P(GpuPattern, finds_the_same_elements_wrong) {
  std::vector<char> result = combined();
  EXPECT_EQ(wrong(result, kOperation, data().ranks), 0u);
  EXPECT_EQ(wrong(result, kOperation + 1, data().ranks),
            count_wrong_sums(data(), result.data(), kFirst, kCount, {data().ranks}, kOperation + 1));
  result[18 * element_size(data().type) - 1] ^= 0x40;
  EXPECT_EQ(wrong(result, kOperation, data().ranks), 1u);
  poison(result.data(), result.size());
  EXPECT_EQ(wrong(result, kOperation, data().ranks),
            count_wrong_sums(data(), result.data(), kFirst, kCount, {data().ranks}, kOperation));
}

std::vector<std::tuple<DataType, Reduction, uint32_t>> cases() {
  std::vector<std::tuple<DataType, Reduction, uint32_t>> all;
  for (int type = 0; type <= int(DataType::kFloat8e5m2); ++type)
    for (int reduction = 0; reduction <= int(Reduction::kPremulSum); ++reduction)
      for (const uint32_t ranks : {2u, 3u, 7u}) {
        const bool coarse = size_of(DataType(type)) == 1 && largest_exact_sum(DataType(type)) > 0;
        if (coarse && Reduction(reduction) == Reduction::kAvg && (ranks & (ranks - 1)) != 0)
          continue;  // refused
        all.emplace_back(DataType(type), Reduction(reduction), ranks);
      }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuPattern, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(name(std::get<0>(info.param))) + "_" + name(std::get<1>(info.param)) + "_of_" +
         std::to_string(std::get<2>(info.param));
});

TEST(GpuAverage, of_whole_numbers_is_divided_as_nccl_does) {
  const Data data(DataType::kInt32, Reduction::kAvg, 3);
  const gpu::Pattern pattern = make_pattern(data, kOperation, true, true);
  const uint32_t factors[] = {factor_of(0, kOperation), factor_of(1, kOperation), factor_of(2, kOperation)};
  for (size_t k = 0; k < 100; ++k) {
    int32_t sum = 0;
    for (const uint32_t factor : factors) {
      int32_t one = 0;
      gpu::fill_element(pattern, &one, k, 0, factor);
      sum += one;
    }
    const int32_t average = sum / 3;
    EXPECT_FALSE(gpu::is_wrong(pattern, &average, k, 0, factors, 3, 0));
    EXPECT_TRUE(gpu::is_wrong(pattern, &sum, k, 0, factors, 3, 0));
  }
}

}  // namespace
}  // namespace r2bench
