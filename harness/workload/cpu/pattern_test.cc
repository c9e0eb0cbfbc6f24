// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

namespace r2bench {
namespace {

constexpr size_t kCount = 5000;

class Pattern : public testing::TestWithParam<DataType> {
 protected:
  size_t bytes() const { return kCount * element_size(GetParam()); }
  std::vector<char> input(uint32_t rank, uint64_t iteration) const {
    std::vector<char> data(bytes());
    fill_input(GetParam(), data.data(), 0, kCount, rank, iteration);
    return data;
  }
  /// What an AllReduce over the given contributions gives.
  std::vector<char> sum(const std::vector<std::vector<char>>& parts) const {
    std::vector<char> total = parts[0];
    for (size_t i = 1; i < parts.size(); ++i)
      reduce(GetParam(), total.data(), total.data(), parts[i].data(), kCount);
    return total;
  }
  uint64_t wrong(const std::vector<char>& data, uint32_t ranks, uint64_t iteration) const {
    return count_wrong_sums(GetParam(), data.data(), 0, kCount, {uint32_t(ranks)}, iteration);
  }
};

TEST_P(Pattern, the_true_sum_has_no_wrong_element) {
  for (uint64_t iteration : {0, 1, 63, 64, 1000})
    EXPECT_EQ(wrong(sum({input(0, iteration), input(1, iteration), input(2, iteration)}), 3, iteration), 0u);
}

TEST_P(Pattern, a_missing_contribution_makes_every_element_wrong) {
  EXPECT_EQ(wrong(sum({input(0, 7), input(2, 7)}), 3, 7), kCount);
}

TEST_P(Pattern, a_doubled_contribution_makes_every_element_wrong) {
  EXPECT_EQ(wrong(sum({input(0, 7), input(1, 7), input(2, 7), input(1, 7)}), 3, 7), kCount);
}

TEST_P(Pattern, a_stale_contribution_makes_nearly_every_element_wrong) {
  EXPECT_GE(wrong(sum({input(0, 7), input(1, 6), input(2, 7)}), 3, 7), kCount * 99 / 100);
}

TEST_P(Pattern, another_seed_gives_other_data) {
  EXPECT_GE(wrong(sum({input(0, 7), input(1, 7)}), 2, data_operation(1, 7)), kCount * 99 / 100);
}

TEST_P(Pattern, one_changed_element_counts_once) {
  std::vector<char> total = sum({input(0, 7), input(1, 7)});
  total[17 * element_size(GetParam())] ^= 1;
  EXPECT_EQ(wrong(total, 2, 7), 1u);
}

TEST_P(Pattern, poison_is_right_in_one_byte_of_256_at_most) {
  std::vector<char> data(bytes());
  poison(data.data(), data.size());
  EXPECT_GE(wrong(data, 3, 7), GetParam() == DataType::kInt8 ? kCount * 99 / 100 : kCount);
  EXPECT_EQ(count_touched(data.data(), data.size()), 0u);
}

TEST_P(Pattern, values_are_those_of_one_contribution) {
  EXPECT_EQ(count_wrong_values(GetParam(), input(5, 7).data(), 0, kCount, 5, 7), 0u);
  EXPECT_GE(count_wrong_values(GetParam(), input(5, 7).data(), 0, kCount, 4, 7), kCount * 99 / 100);
}

TEST_P(Pattern, sums_of_any_part_are_what_adding_up_gives) {
  const std::vector<char> total = sum({input(3, 9), input(1, 9)});
  std::vector<char> part(100 * element_size(GetParam()));
  const uint32_t ranks[] = {1, 3};
  fill_sums(GetParam(), part.data(), 4000, 100, ranks, 9);
  EXPECT_EQ(std::memcmp(part.data(), total.data() + 4000 * element_size(GetParam()), part.size()), 0);
}

TEST_P(Pattern, sums_over_as_many_ranks_as_a_job_can_have_are_exact) {
  std::vector<char> total = input(0, 7);
  for (uint32_t rank = 1; rank < 1024; ++rank)
    reduce(GetParam(), total.data(), total.data(), input(rank, 7).data(), kCount);
  EXPECT_EQ(wrong(total, 1024, 7), 0u);
}

/// How much of an AllReduce's result differs from that of another operation, or from itself shifted: what the
/// comparison can catch of a plugin that delivers the wrong buffer.
class Caught : public testing::TestWithParam<std::tuple<DataType, uint32_t>> {
 protected:
  static constexpr size_t kWindow = 16384;
  std::vector<char> result(size_t first, uint64_t operation) const {
    const auto [type, ranks] = GetParam();
    std::vector<char> total(kWindow * element_size(type)), one(total.size());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      fill_input(type, rank ? one.data() : total.data(), first, kWindow, rank, operation);
      if (rank) reduce(type, total.data(), total.data(), one.data(), kWindow);
    }
    return total;
  }
  double share_that_differs(const std::vector<char>& a, const std::vector<char>& b) const {
    const size_t size = element_size(std::get<0>(GetParam()));
    size_t differ = 0;
    for (size_t at = 0; at < a.size(); at += size) differ += std::memcmp(&a[at], &b[at], size) != 0;
    return double(differ) / double(kWindow);
  }
};

TEST_P(Caught, nearly_all_of_a_shifted_buffer_differs_whatever_the_shift) {
  std::vector<uint32_t> shifts = {50549};
  for (uint32_t shift = 1; shift <= 64; ++shift) shifts.push_back(shift);
  for (int power = 7; power < 32; ++power) shifts.push_back(uint32_t{1} << power);
  // By which multiplicative hashes all but repeat themselves.
  for (uint64_t a = 55, b = 89; a < (uint64_t{1} << 32); std::tie(a, b) = std::pair(b, a + b))
    shifts.push_back(uint32_t(a));
  uint32_t random = 12345;
  for (int i = 0; i < 40; ++i) shifts.push_back((random = random * 1664525 + 1013904223) >> (i % 20));
  const std::vector<char> right = result(0, 100);
  for (const uint32_t shift : shifts)
    EXPECT_GE(share_that_differs(right, result(shift, 100)), 0.99) << "shifted by " << shift;
}

TEST_P(Caught, nearly_all_of_an_earlier_operations_buffer_differs) {
  const std::vector<char> right = result(0, 300);
  for (uint64_t back : {1, 2, 3, 4, 7, 8, 16, 32, 63, 64, 65, 128, 255, 256})
    EXPECT_GE(share_that_differs(right, result(0, 300 - back)), 0.99) << back << " operations old";
}

TEST_P(Caught, nearly_all_of_a_buffer_that_is_stale_and_shifted_differs) {
  const std::vector<char> right = result(0, 300);
  for (uint32_t shift : {1, 2, 16, 1024, 4096, 50549, 65536, 131072})
    EXPECT_GE(share_that_differs(right, result(shift, 299)), 0.99) << "shifted by " << shift;
}

INSTANTIATE_TEST_SUITE_P(TypesAndRanks, Caught,
                         testing::Combine(testing::Values(DataType::kInt8, DataType::kInt32, DataType::kInt64,
                                                          DataType::kFloat32, DataType::kFloat64),
                                          testing::Values(1u, 2u, 3u, 8u, 64u)));

INSTANTIATE_TEST_SUITE_P(Types, Pattern,
                         testing::Values(DataType::kInt8, DataType::kInt32, DataType::kInt64,
                                         DataType::kFloat32, DataType::kFloat64));

}  // namespace
}  // namespace r2bench
