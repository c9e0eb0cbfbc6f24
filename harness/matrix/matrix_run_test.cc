// SPDX-License-Identifier: Apache-2.0
// What is left of a matrix that does not come to its end.
#include "harness/matrix/matrix_run.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/base/testing/eventually.h"

namespace r2bench::matrix {
namespace {

namespace fs = std::filesystem;

class MatrixRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "matrix_run_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    options.out_dir = root;
    options.jobs = 1;
    for (const Cell& cell : all_cells())
      if (cell.name().starts_with("port_down/connect/SendRecv/")) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 3u);
  }
  void TearDown() override { fs::remove_all(root); }

  fs::path root;
  MatrixOptions options;
  std::vector<Cell> cells;
  std::atomic<bool> cancel{false};
};

TEST_F(MatrixRun, cells_that_were_not_run_have_no_result) {
  const CellRuns none = run_cells(cells, options, nullptr, std::atomic<bool>(true));
  EXPECT_TRUE(none.finished.empty());
  EXPECT_EQ(none.not_run, 3u);
  const CellRuns one = run_cells(
      cells, options, [&](const CellRun&, size_t, size_t) { cancel = true; }, cancel);
  ASSERT_EQ(one.finished.size(), 1u);
  EXPECT_EQ(one.finished[0].cell.name(), cells[0].name());
  EXPECT_EQ(one.not_run, 2u);
  EXPECT_EQ(one.error, nullptr);
}

TEST_F(MatrixRun, a_cell_whose_job_was_broken_off_has_not_failed) {
  std::thread user([&] {
    eventually([&] { return fs::exists(root / "failed"); });
    cancel = true;
  });
  const CellRuns runs = run_cells(cells, options, nullptr, cancel);
  user.join();
  EXPECT_GE(runs.not_run, 1u);
  for (const CellRun& run : runs.finished)
    EXPECT_EQ(run.result.verdict, CellVerdict::kPass) << run.result.why;
  EXPECT_TRUE(fs::is_empty(root / "failed"));
}

// The cell counts the messages that the host engine posts. If it sends fewer or larger ones, the last never
// comes, and every cell of this moment is missed.
TEST_F(MatrixRun, the_last_message_on_the_engine_comes) {
  options.mode = "allreduce";
  cells.clear();
  for (const Cell& cell : all_cells())
    if (cell.name() == "noop/last_segment/AllReduce/sender") cells.push_back(cell);
  const CellRuns runs = run_cells(cells, options, nullptr, cancel);
  ASSERT_EQ(runs.finished.size(), 1u);
  EXPECT_EQ(runs.finished[0].result.verdict, CellVerdict::kPass) << runs.finished[0].result.why;
}

// As on a disk that is full by then.
TEST_F(MatrixRun, an_error_of_one_cell_leaves_the_results_of_the_others) {
  const CellRuns runs = run_cells(
      cells, options,
      [&](const CellRun&, size_t done, size_t) {
        if (done < 2) return;
        fs::remove_all(root / "failed");
        std::ofstream(root / "failed") << "in the way";
      },
      cancel);
  EXPECT_EQ(runs.finished.size(), 2u);
  EXPECT_EQ(runs.not_run, 1u);
  EXPECT_THROW(std::rethrow_exception(runs.error), fs::filesystem_error);
}

}  // namespace
}  // namespace r2bench::matrix
