#include "harness/workload/cpu/pattern.h"

#include <gtest/gtest.h>

#include <cstring>
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
      add(GetParam(), total.data(), total.data(), parts[i].data(), kCount);
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

TEST_P(Pattern, a_stale_contribution_makes_every_element_wrong) {
  EXPECT_EQ(wrong(sum({input(0, 7), input(1, 6), input(2, 7)}), 3, 7), kCount);
}

TEST_P(Pattern, misplaced_data_is_wrong_nearly_everywhere) {
  std::vector<char> total = sum({input(0, 7), input(1, 7)});
  std::memmove(total.data(), total.data() + 64 * element_size(GetParam()),
               total.size() - 64 * element_size(GetParam()));
  EXPECT_GT(wrong(total, 2, 7), (kCount - 64) * 9 / 10);
}

TEST_P(Pattern, one_changed_element_counts_once) {
  std::vector<char> total = sum({input(0, 7), input(1, 7)});
  total[17 * element_size(GetParam())] ^= 1;
  EXPECT_EQ(wrong(total, 2, 7), 1u);
}

TEST_P(Pattern, poison_is_never_right) {
  std::vector<char> data(bytes());
  poison(data.data(), data.size());
  EXPECT_EQ(wrong(data, 3, 7), kCount);
  EXPECT_EQ(count_wrong_copies(GetParam(), data.data(), 0, kCount, 1, 7, 1000, 0), kCount);
}

TEST_P(Pattern, copies_are_compared_with_their_markers) {
  std::vector<char> data = input(1, 7);
  for (size_t m = 0; m < 5; ++m)
    mark_message(GetParam(), data.data() + m * 1000 * element_size(GetParam()), 35 + m);
  EXPECT_EQ(count_wrong_copies(GetParam(), data.data(), 0, kCount, 1, 7, 1000, 35), 0u);
  EXPECT_EQ(count_wrong_copies(GetParam(), data.data(), 0, kCount, 1, 7, 1000, 36), 5u);  // the markers only
  EXPECT_EQ(count_wrong_copies(GetParam(), data.data(), 0, kCount, 2, 7, 1000, 35),
            kCount - 5);  // another sender
}

TEST_P(Pattern, markers_can_be_read_back_and_data_is_none) {
  double storage = 0;  // room for any type
  for (uint64_t number : {0, 1, 59, 60, 12345}) {
    mark_message(GetParam(), &storage, number);
    EXPECT_EQ(read_marker(GetParam(), &storage), int64_t(number) % marker_modulus(GetParam()));
  }
  const std::vector<char> data = input(0, 3);
  for (size_t k = 0; k < kCount; ++k)
    ASSERT_EQ(read_marker(GetParam(), &data[k * element_size(GetParam())]), -1);
}

INSTANTIATE_TEST_SUITE_P(Types, Pattern,
                         testing::Values(DataType::kInt8, DataType::kInt32, DataType::kInt64,
                                         DataType::kFloat32, DataType::kFloat64));

}  // namespace
}  // namespace r2bench
