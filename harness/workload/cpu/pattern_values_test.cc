// SPDX-License-Identifier: Apache-2.0
// Every type and reduction: what goes in, what must come out, and what the comparison catches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "harness/workload/cpu/pattern.h"
#include "harness/workload/cpu/small_float.h"

namespace r2bench {
namespace {

constexpr size_t kCount = 4000;

class Values : public testing::TestWithParam<std::tuple<DataType, Reduction, uint32_t>> {
 protected:
  Data data() const { return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())}; }
  std::vector<char> input(uint32_t rank, uint64_t operation = 7) const {
    std::vector<char> out(kCount * element_size(data().type));
    fill_input(data(), out.data(), 0, kCount, rank, operation);
    return out;
  }
  /// As a plugin combines the inputs of these ranks, in this order.
  std::vector<char> combined(const std::vector<uint32_t>& ranks) const {
    std::vector<char> total = input(ranks[0]);
    for (size_t i = 1; i < ranks.size(); ++i)
      reduce(data(), total.data(), total.data(), input(ranks[i]).data(), kCount);
    return total;
  }
  std::vector<uint32_t> all() const {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < data().ranks; ++rank) ranks.push_back(rank);
    return ranks;
  }
  uint64_t wrong(const std::vector<char>& result) const {
    return count_wrong_sums(data(), result.data(), 0, kCount, {data().ranks}, 7);
  }
  bool exact() const {
    return data().reduction != Reduction::kAvg || (data().ranks & (data().ranks - 1)) == 0 ||
           data().type == DataType::kInt8 || data().type == DataType::kUint64;
  }
};

TEST_P(Values, are_combined_exactly_in_any_order) {
  std::vector<uint32_t> order = all();
  const std::vector<char> forward = combined(order);
  EXPECT_EQ(wrong(forward), 0u);
  std::reverse(order.begin(), order.end());
  const std::vector<char> backward = combined(order);
  EXPECT_EQ(wrong(backward), 0u);
  if (exact()) EXPECT_EQ(forward, backward);
}

TEST_P(Values, a_changed_element_counts_once) {
  std::vector<char> total = combined(all());
  total[18 * element_size(data().type) - 1] ^= 0x40;
  EXPECT_EQ(wrong(total), 1u);
}

TEST_P(Values, a_missing_or_doubled_contribution_is_caught) {
  std::vector<uint32_t> order = all();
  order.push_back(1);
  const Reduction reduction = data().reduction;
  if (reduction == Reduction::kMin || reduction == Reduction::kMax) return;  // idempotent
  if (!exact() && largest_exact_sum(data().type) > 0 && largest_exact_sum(data().type) <= 16)
    return;  // a rounding of float8 may be as large as a contribution: scenarios refuse it
  // A product is wrong where the factor is not 1, a sum everywhere, an average as far as its error allows.
  const double share = reduction == Reduction::kProd ? 0.4 : exact() ? 1 : 0.5;
  EXPECT_GE(double(wrong(combined(order))), share * kCount);
  order = all();
  order.erase(order.begin() + 1);
  EXPECT_GE(double(wrong(combined(order))), share * kCount);
}

TEST_P(Values, poison_is_hardly_ever_right) {
  std::vector<char> result(kCount * element_size(data().type));
  poison(result.data(), result.size());
  const bool wide_maximum = data().reduction == Reduction::kMax || data().reduction == Reduction::kProd;
  EXPECT_GE(double(wrong(result)), (data().type == DataType::kInt8 && wide_maximum ? 0.95 : 0.98) * kCount);
}

INSTANTIATE_TEST_SUITE_P(
    All, Values,
    testing::Combine(testing::Values(DataType::kInt8, DataType::kUint64, DataType::kFloat16,
                                     DataType::kBfloat16, DataType::kFloat32, DataType::kFloat8e4m3,
                                     DataType::kFloat8e5m2),
                     testing::Values(Reduction::kSum, Reduction::kProd, Reduction::kMin, Reduction::kMax,
                                     Reduction::kAvg, Reduction::kPremulSum),
                     testing::Values(3u, 4u, 7u)));

/// How much of a result that is stale, shifted or both differs from the right one. The shares are those of
/// README.md.
class Caught : public testing::TestWithParam<std::tuple<DataType, Reduction, uint32_t>> {
 protected:
  static constexpr size_t kWindow = 8192;
  Data data() const { return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())}; }
  /// Of these types a scenario may have so many ranks only.
  bool refused() const {
    if (const int most = largest_exact_sum(data().type); most > 0 && most <= int(data().ranks)) return true;
    return int(data().ranks) > most_ranks(data().type, data().reduction);
  }
  double least_share(size_t shift) const {
    const bool few = data().ranks <= 8, byte = element_size(data().type) == 1;
    const bool whole = data().type == DataType::kInt8 || data().type == DataType::kUint8 ||
                       data().type == DataType::kInt32 || data().type == DataType::kUint64;
    if (byte && !whole) return 0.70;
    switch (data().reduction) {
      case Reduction::kSum:
        return 0.99;
      case Reduction::kAvg:
        if (element_size(data().type) == 2 && !few && (data().ranks & (data().ranks - 1)) != 0)
          return shift % (1 << 28) == 0 && shift != 0 ? 0.84 : 0.93;  // elements so far apart are alike
        [[fallthrough]];
      case Reduction::kPremulSum:
        return !byte ? 0.99 : few ? 0.96 : 0.93;
      case Reduction::kProd:
        return whole ? (few ? 0.98 : 0.92) : few ? 0.70 : 0.48;
      case Reduction::kMin:
      case Reduction::kMax:
        break;
    }
    return byte ? (few ? 0.97 : 0.88) : few ? 0.98 : 0.92;
  }
};

TEST_P(Caught, of_a_stale_or_shifted_result_as_much_differs_as_is_stated) {
  if (refused()) return;  // no scenario has it
  std::vector<uint32_t> ranks(data().ranks);
  for (uint32_t rank = 0; rank < data().ranks; ++rank) ranks[rank] = rank;
  std::vector<char> result(kWindow * element_size(data().type));
  for (const size_t shift : {0, 1, 50549, 1 << 28})
    for (const uint64_t operation : {300, 299, 236}) {
      if (shift == 1 << 28 && operation != 300) continue;
      fill_sums(data(), result.data(), shift, kWindow, ranks, operation);
      const uint64_t differ = count_wrong_sums(data(), result.data(), 0, kWindow, {data().ranks}, 300);
      if (shift == 0 && operation == 300)
        EXPECT_EQ(differ, 0u);
      else
        EXPECT_GE(double(differ) / kWindow, least_share(shift))
            << "shifted by " << shift << ", " << 300 - operation << " operations old";
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, Caught,
    testing::Combine(testing::Values(DataType::kInt8, DataType::kUint8, DataType::kInt32, DataType::kUint64,
                                     DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                                     DataType::kFloat64, DataType::kFloat8e4m3, DataType::kFloat8e5m2),
                     testing::Values(Reduction::kSum, Reduction::kProd, Reduction::kMin, Reduction::kMax,
                                     Reduction::kAvg, Reduction::kPremulSum),
                     testing::Values(2u, 3u, 8u, 42u, 64u)));

template <typename T>
void every_number_comes_back() {
  for (uint32_t bits = 0; bits < (1u << (8 * sizeof(T))); ++bits) {
    T number;
    std::memcpy(&number, &bits, sizeof(T));
    const double value(number);
    const T back(value);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(double(back))) << bits;
    else
      EXPECT_EQ(back.bits, number.bits) << bits;
  }
}

TEST(SmallFloats, every_number_comes_back) {
  every_number_comes_back<Float16>();
  every_number_comes_back<Bfloat16>();
  every_number_comes_back<Float8e4m3>();
  every_number_comes_back<Float8e5m2>();
}

TEST(SmallFloats, are_those_of_their_standards) {
  EXPECT_EQ(Float16(1.0).bits, 0x3c00);
  EXPECT_EQ(Float16(65504.0).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0).bits, 0x7c00);  // halfway to the next: infinity
  EXPECT_EQ(Float16(std::ldexp(1, -24)).bits, 1);
  EXPECT_EQ(Bfloat16(1.0).bits, 0x3f80);
  EXPECT_EQ(Bfloat16(257.0).bits, Bfloat16(256.0).bits);  // ties to even
  EXPECT_EQ(Bfloat16(259.0).bits, Bfloat16(260.0).bits);
  EXPECT_EQ(Float8e4m3(448.0).bits, 0x7e);
  EXPECT_TRUE(std::isnan(double(Float8e4m3(1000.0))));
  EXPECT_EQ(Float8e5m2(57344.0).bits, 0x7b);
  EXPECT_EQ(Float8e5m2(1e9).bits, 0x7c);
  EXPECT_EQ(Float8e4m3(-1.0).bits, 0xb8);
}

}  // namespace
}  // namespace r2bench
