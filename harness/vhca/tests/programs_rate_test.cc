// SPDX-License-Identifier: Apache-2.0
// What perftest prints agrees with what the fabric was configured for, on a machine of any load.
// Bandwidth: all work is posted at once, so that the port has work until the last byte has left, however
// seldom the program runs; a program that runs late makes a run longer, once, and never shorter. Latency: the
// shortest of many trips. Late programs make none shorter, whatever the latency. A program that waits for a
// short one lends its core to others, if there are any, and no trip tells how long the port took; of a
// latency that is many times as long as a turn of others, what they take is little.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/vhca/testing/programs_fixture.h"

namespace vhca::test {
namespace {

constexpr int kTries = 8;  // the best counts

class Agreement : public Programs {
 protected:
  double number_of(const std::string& fabric, const std::string& command, std::size_t column) {
    const Pair pair = run_pair(fabric, command + " -x 1 -F");
    const std::vector<double> row = row_of(pair.client);
    EXPECT_GT(row.size(), column) << command << '\n' << pair.client;
    return row.size() > column ? row[column] : 0;
  }

  static constexpr double kTolerance = 0.03;      // of what perftest's clock tells, too
  static constexpr std::size_t kAverage = 3;      // MiB/s
  static constexpr std::size_t kMessageRate = 4;  // millions per second

  // `command` posts all its messages at once. Column `column` of perftest's row is to come close to `wanted`.
  void expect_value(const std::string& rate, const std::string& command, std::size_t column, double wanted) {
    std::string seen;
    for (int i = 0; i < kTries; ++i) {
      const double got = number_of("--rate " + rate, command, column);
      seen += " " + std::to_string(got);
      ASSERT_LE(got, wanted * (1 + kTolerance)) << command << " at " << rate << ":" << seen;
      if (got >= wanted * (1 - kTolerance)) return;
    }
    ADD_FAILURE() << command << " at " << rate << " never came close to " << wanted << ":" << seen;
  }
  // `messages` of each QP: of 64 KiB, if the command says nothing else.
  void expect_rate(const std::string& command, int messages, const std::string& rate, double bits_per_s) {
    const std::string all = std::to_string(messages);
    expect_value(rate, command + " -n " + all + " -t " + all, kAverage, bits_per_s / 8 / 1048576);
  }

  static constexpr std::size_t kShortestMicroseconds = 2;
  static constexpr double kTurns = 3000;  // us
  static constexpr double kAny = std::numeric_limits<double>::infinity();

  // Column `shortest` of perftest's row is not below the latency of so many trips, nor above by more than
  // `more` in the best of several tries.
  void expect_latency(const std::string& command, int messages, double one_way_us, double trips,
                      double more) {
    const std::string all = command + " -n " + std::to_string(messages);
    const std::string with = "--latency " + std::to_string(static_cast<int>(one_way_us)) + "us";
    const double wanted = one_way_us * trips;
    std::string seen;
    for (int i = 0; i < kTries; ++i) {
      const double took = number_of(with, all, kShortestMicroseconds);
      seen += " " + std::to_string(took);
      ASSERT_GE(took, wanted * (1 - kTolerance)) << all << ' ' << with << ":" << seen;
      if (took <= wanted + more) return;
    }
    ADD_FAILURE() << all << ' ' << with << " never came within " << more << " us of " << wanted
                  << " us:" << seen;
  }
};

TEST_F(Agreement, bandwidth_of_writes) {
  expect_rate("ib_write_bw", 4000, "1Gbit/s", 1e9);
  expect_rate("ib_write_bw -q 8", 1000, "2Gbit/s", 2e9);
  expect_rate("ib_write_bw -c UC", 4000, "1Gbit/s", 1e9);
}
TEST_F(Agreement, bandwidth_of_reads) { expect_rate("ib_read_bw", 4000, "1Gbit/s", 1e9); }
TEST_F(Agreement, bandwidth_of_sends) {
  expect_rate("ib_send_bw -r 4000", 4000, "1Gbit/s", 1e9);
  expect_rate("ib_send_bw -c UC -r 4000", 4000, "1Gbit/s", 1e9);
  expect_rate("ib_send_bw -c UD -s 4096 -r 12000", 12000, "200Mbit/s", 2e8);
}
TEST_F(Agreement, rate_of_atomics) {
  expect_value("1Mbit/s", "ib_atomic_bw -n 15000 -t 15000", kMessageRate, 1e6 / 64 / 1e6);  // 8 bytes each
}
TEST_F(Agreement, latency) {
  for (const auto& [command, trips] : {std::pair{"ib_send_lat", 1},
                                       {"ib_write_lat", 1},
                                       {"ib_send_lat -c UD", 1},
                                       {"ib_read_lat", 2},
                                       {"ib_atomic_lat", 2}}) {
    for (const double us : {20.0, 200.0}) expect_latency(command, 200, us, trips, kAny);
    expect_latency(command, 20, 50'000, trips, kTurns);
  }
}

}  // namespace
}  // namespace vhca::test
