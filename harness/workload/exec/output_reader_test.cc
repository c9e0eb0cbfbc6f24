// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/output_reader.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

TEST(OutputReader, without_expressions_the_command_is_one_operation) {
  OutputReader reader(ExecOptions{});
  EXPECT_TRUE(reader.begins_at_once());
  EXPECT_FALSE(reader.has_iterations());
  EXPECT_FALSE(reader.read("step 1 took 3 ms").iteration);
  EXPECT_EQ(reader.checked(), 0u);
}

TEST(OutputReader, an_expression_ends_operations_and_its_group_is_kept) {
  ExecOptions options;
  options.begin = "^training";
  options.iteration = R"(step \d+ took ([0-9.]+) ms)";
  OutputReader reader(options);
  EXPECT_FALSE(reader.begins_at_once());
  EXPECT_FALSE(reader.read("step 0 took 900 ms").iteration);  // not begun
  EXPECT_TRUE(reader.read("training begins").begun);
  EXPECT_FALSE(reader.read("training goes on").begun);
  const auto found = reader.read("[rank0] step 1 took 12.5 ms, loss 3.2");
  EXPECT_TRUE(found.iteration);
  EXPECT_EQ(found.value, 12.5);
  EXPECT_FALSE(reader.read("evaluation took 3 ms").iteration);
  EXPECT_EQ(reader.printed().at("values"), nlohmann::json::array({12.5}));
  EXPECT_EQ(reader.last_words(), "its last line: evaluation took 3 ms");
}

TEST(OutputReader, the_last_words_are_an_exception_rather_than_the_frame_that_torchrun_draws) {
  OutputReader reader(ExecOptions{});
  EXPECT_EQ(reader.last_words(), "");
  reader.read("ready: go");
  reader.read("=====");
  EXPECT_EQ(reader.last_words(), "its last line: ready: go");
  for (const char* line :
       {"[rank0]:     sys.exit(main())", "[rank0]: RuntimeError: PyTorch finds no GPU",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "  traceback : To enable traceback see: https://pytorch.org", "Error count is 3: bad",
        "============================================================"})
    reader.read(line);
  EXPECT_EQ(reader.last_words(), "its last error: RuntimeError: PyTorch finds no GPU");
  reader.read("torch.distributed.DistBackendError: NCCL error in: a.cpp:94");
  EXPECT_EQ(reader.last_words(),
            "its last error: torch.distributed.DistBackendError: NCCL error in: a.cpp:94");
  reader.read("h: Test CUDA failure common.cu:936 'no CUDA-capable device is detected'");
  reader.read(" .. h pid 7: Test failure common.cu:886");
  EXPECT_EQ(reader.last_words(),
            "its last error: h: Test CUDA failure common.cu:936 'no CUDA-capable device is detected'");
}

TEST(OutputReader, what_is_told_of_a_long_output_fits_into_a_message) {
  constexpr size_t kFrame = 4u << 20;
  ExecOptions options;
  options.iteration = "([0-9.]+) ms";
  OutputReader reader(options);
  for (int i = 0; i < 300'000; ++i) reader.read("0.123456789012" + std::to_string(i) + " ms");
  nlohmann::json printed = reader.printed();
  EXPECT_LT(printed.dump().size(), kFrame);
  EXPECT_EQ(printed.at("values").size() + printed.at("values_left_out").get<size_t>(), 300'000u);
  options = {};
  options.nccl_tests = true;
  OutputReader table(options);
  table.read(
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw "
      "  busbw #wrong");
  for (int i = 0; i < 40'000; ++i)
    table.read(
        "  1073741824     268435456     float     sum      -1   1234.56   12.34   12.34      0   1234.56   "
        "12.34   12.34      1");
  printed = table.printed();
  EXPECT_LT(printed.dump().size(), kFrame);
  EXPECT_EQ(printed.at("rows").size() + printed.at("rows_left_out").get<size_t>(), 40'000u);
  EXPECT_EQ(table.wrong(), 40'000u) << "all are judged";
}

TEST(OutputReader, rows_of_nccl_tests_are_operations_and_their_wrong_elements_count) {
  ExecOptions options;
  options.nccl_tests = true;
  OutputReader reader(options);
  EXPECT_FALSE(reader.begins_at_once());
  EXPECT_TRUE(reader
                  .read("#       size         count      type   redop    root     time   algbw   busbw "
                        "#wrong     time   algbw   busbw #wrong")
                  .begun);
  EXPECT_TRUE(reader
                  .read("      204800         51200     float     min      -1    125.3    1.63    3.06      "
                        "2    124.6    1.64    3.08    N/A")
                  .iteration);
  EXPECT_EQ(reader.wrong(), 2u);
  EXPECT_EQ(reader.checked(), 51200u);  // N/A: not compared
  EXPECT_EQ(reader.printed().at("rows").size(), 1u);
  EXPECT_TRUE(reader.printed().at("rows")[0].at("in_place").at("wrong").is_null());
}

TEST(OutputReader, an_older_versions_failed_check_is_wrong_though_it_counts_nothing) {
  ExecOptions options;
  options.nccl_tests = true;
  OutputReader reader(options);
  reader.read("       size         count    type     time   algbw   busbw  error");
  EXPECT_TRUE(reader.read("  4294967296     134217728   float    29122  129.05  129.05  1e+00").iteration);
  reader.read(" Out of bounds values : 2 FAILED");
  EXPECT_EQ(reader.wrong(), 2u);
  EXPECT_EQ(reader.checked(), 0u);
}

}  // namespace
}  // namespace r2bench
