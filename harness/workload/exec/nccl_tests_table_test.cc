// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/nccl_tests_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace r2bench {
namespace {

// As printed by programs of nccl-tests, in the forms of 2020, 2021 and today.
constexpr const char* kToday = R"(# Using devices
#  Rank  0 Group  0 Pid 2181762 on   GENOA-01 device  0 [0x01] NVIDIA GeForce RTX 5090
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608     float    none      -1    19.56  1715.44    0.00      0     0.78  43046.10    0.00    N/A
      204800         51200     float     min      -1    125.3    1.63    3.06      2    124.6    1.64    3.08      1
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 1.535
#
)";
constexpr const char* kOf2021 =
    R"(#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608   float     sum   1464.2   22.92   45.65    N/A   1458.1   23.01   45.84    N/A
)";
constexpr const char* kOf2020 =
    R"(                                             out-of-place                       in-place
       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  4294967296     134217728   float    29122  129.05  129.05  1e+00    29169  128.84  128.84  1e+00
 Out of bounds values : 2 FAILED
 Avg bus bandwidth    : 128.942
)";
// all_reduce_perf -I
constexpr const char* kPerIteration =
    R"(#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99     i_cv     time   algbw   busbw  #wrong    i_min    i_max    i_p99     i_cv
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)              (us)     (us)     (us)      (%)     (us)  (GB/s)  (GB/s)              (us)     (us)     (us)      (%)
     1048576        262144     float     sum      -1    512.3    2.05    2.05       0    498.1    530.7    530.7     1.90    510.9    2.05    2.05       0    499.0    528.2    528.2     1.70
)";

std::vector<NcclTestsLine> rows(NcclTestsTable& table, const char* text) {
  std::vector<NcclTestsLine> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (const auto row = table.read(line)) found.push_back(*row);
  return found;
}

TEST(NcclTestsTable, reads_todays_rows_and_summary) {
  NcclTestsTable table;
  const auto found = rows(table, kToday);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].size_bytes, 33554432u);
  EXPECT_EQ(found[0].redop, "none");
  EXPECT_EQ(found[0].root, -1);
  EXPECT_EQ(found[0].out_of_place.wrong, 0u);
  ASSERT_TRUE(found[0].in_place);
  EXPECT_EQ(found[0].in_place->wrong, std::nullopt);  // N/A
  EXPECT_DOUBLE_EQ(found[0].in_place->algbw, 43046.10);
  EXPECT_EQ(found[1].out_of_place.wrong, 2u);
  EXPECT_EQ(found[1].in_place->wrong, 1u);
  EXPECT_EQ(table.out_of_bounds(), 3u);
  EXPECT_DOUBLE_EQ(*table.average_busbw(), 1.535);
}

TEST(NcclTestsTable, an_errors_size_is_no_count) {
  NcclTestsTable table;
  const auto found = rows(table, kOf2020);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].count, 134217728u);
  EXPECT_EQ(found[0].redop, "");
  EXPECT_DOUBLE_EQ(found[0].out_of_place.time_us, 29122);
  EXPECT_DOUBLE_EQ(found[0].in_place->busbw, 128.84);
  EXPECT_EQ(found[0].out_of_place.wrong, std::nullopt);
  EXPECT_EQ(table.out_of_bounds(), 2u);
}

TEST(NcclTestsTable, columns_go_by_the_header) {
  NcclTestsTable old, iterations;
  const auto without_root = rows(old, kOf2021);
  ASSERT_EQ(without_root.size(), 1u);
  EXPECT_EQ(without_root[0].redop, "sum");
  EXPECT_DOUBLE_EQ(without_root[0].out_of_place.busbw, 45.65);
  EXPECT_DOUBLE_EQ(without_root[0].in_place->time_us, 1458.1);
  const auto with_percentiles = rows(iterations, kPerIteration);
  ASSERT_EQ(with_percentiles.size(), 1u);
  EXPECT_DOUBLE_EQ(with_percentiles[0].in_place->time_us, 510.9);
  EXPECT_EQ(with_percentiles[0].in_place->wrong, 0u);
}

TEST(NcclTestsTable, other_lines_are_no_rows) {
  NcclTestsTable table;
  EXPECT_FALSE(table.read(
      "    33554432       8388608     float    none      -1    19.56  1715.44    0.00      0"));  // no header
                                                                                                  // yet
  EXPECT_FALSE(table.begun());
  rows(table, kToday);
  EXPECT_TRUE(table.begun());
  EXPECT_FALSE(table.read(
      "host:1:1 [0] NCCL INFO a line of NCCL's log that has as many words as a row of the table has"));
  EXPECT_FALSE(table.read(""));
}

}  // namespace
}  // namespace r2bench
