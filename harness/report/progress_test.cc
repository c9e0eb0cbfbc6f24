// SPDX-License-Identifier: Apache-2.0
#include "harness/report/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace r2bench {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

Progress at(uint64_t iteration, int elapsed_ms, const std::string& note = "") {
  Progress p;
  p.mode = "migrate";
  p.mode_index = 1;
  p.mode_count = 2;
  p.phase = "running";
  p.iteration = iteration;
  p.iterations = 200;
  p.gbps = 3.9;
  p.note = note;
  p.elapsed = milliseconds(elapsed_ms);
  return p;
}

TEST(Progress, plain_lines_come_once_a_second_and_at_events) {
  std::ostringstream out;
  ProgressPrinter printer(out, {});
  const Time start{};
  for (int ms = 0; ms <= 2000; ms += 100) {
    printer.show(at(static_cast<uint64_t>(ms / 10), ms, ms >= 500 ? "node1/nic0 port_down" : ""),
                 start + milliseconds(ms));
  }
  printer.clear();
  EXPECT_EQ(out.str(),
            "  mode 2 of 2: migrate\n"
            "  migrate  0/200   3.90 Gbit/s   0.0 s\n"
            "    0.5 s  migrate  node1/nic0 port_down\n"
            "  migrate  100/200   3.90 Gbit/s   1.0 s\n"
            "  migrate  200/200   3.90 Gbit/s   2.0 s\n");
}

TEST(Progress, a_live_line_is_written_over_and_fits_the_terminal) {
  std::ostringstream out;
  ProgressPrinter printer(out, {true, false, 40});
  printer.show(at(100, 0), Time{});
  printer.show(at(101, 5), Time{} + milliseconds(5));
  const std::string text = out.str();
  EXPECT_EQ(text.find('\n'), text.rfind('\n'));
  const std::string line = text.substr(text.rfind("\033[K") + 3);
  EXPECT_NE(line.find("…"), std::string::npos);
  printer.clear();
  EXPECT_EQ(out.str(), text + "\r\033[K");
}

TEST(Progress, no_live_line_is_left_where_an_error_ends_the_job) {
  std::ostringstream out;
  std::string text;
  {
    ProgressPrinter printer(out, {true, false, 100});
    printer.show(at(100, 0), Time{});
    text = out.str();
  }
  EXPECT_EQ(out.str(), text + "\r\033[K");
}

TEST(Progress, each_event_is_told_once) {
  std::ostringstream out;
  ProgressPrinter printer(out, {true, false, 100});
  for (int i = 0; i < 50; ++i) printer.show(at(1, i, "migrated in 3.1 ms"), Time{} + milliseconds(i));
  const std::string text = out.str();
  EXPECT_NE(text.find("migrated in 3.1 ms"), std::string::npos);
  EXPECT_EQ(text.find("migrated in 3.1 ms"), text.rfind("migrated in 3.1 ms"));
}

}  // namespace
}  // namespace r2bench
