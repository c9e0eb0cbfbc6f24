// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/cell_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <sstream>

namespace r2bench {
namespace {

matrix::CellRun cell_run(matrix::Side side, matrix::CellVerdict verdict) {
  matrix::CellRun run;
  run.cell.fault = &matrix::fault_rows().front();
  run.cell.side = side;
  run.result.verdict = verdict;
  run.result.why = "hang";
  return run;
}

std::string line(const matrix::CellRun& run) {
  return run.cell.name() + ": " + name(run.result.verdict) + ": hang\n";
}

TEST(CellLines, of_failed_cells_wait_for_a_full_pipe_and_progress_is_dropped) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const std::array<char, 4096> page{};
  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  std::ostringstream out, err;
  Console console{out, err};
  console.live = true;
  console.descriptor = ends[1];
  const auto failed = cell_run(matrix::Side::kSender, matrix::CellVerdict::kFail);
  const auto missed = cell_run(matrix::Side::kReceiver, matrix::CellVerdict::kMissed);
  const auto passed = cell_run(matrix::Side::kBoth, matrix::CellVerdict::kPass);
  CellLines lines(console);
  lines.show(failed, 1, 4);
  lines.show(missed, 2, 4);
  EXPECT_EQ(out.str(), "") << "the jobs do not wait";

  std::array<char, 1 << 16> read{};
  while (::read(ends[0], read.data(), read.size()) > 0) {
  }
  lines.show(passed, 3, 4);
  EXPECT_EQ(out.str(), "\r\033[K" + line(failed) + line(missed) + "3 of 4  " + passed.cell.name());

  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  out.str("");
  lines.show(failed, 4, 4);
  EXPECT_EQ(out.str(), "");
  lines.finish();
  EXPECT_EQ(out.str(), "\r\033[K" + line(failed));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace r2bench
