// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/units.h"

#include <gtest/gtest.h>

namespace faultinject {
namespace {

using namespace std::chrono_literals;

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const UnitError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Units, rates_are_decimal_and_bytes_per_second_are_eight_bits) {
  EXPECT_EQ(parse_rate("1 Gbit/s"), 1000000000u);
  EXPECT_EQ(parse_rate("2.5Gbit/s"), 2500000000u);
  EXPECT_EQ(parse_rate("100 Mbps"), 100000000u);
  EXPECT_EQ(parse_rate("1 MiB/s"), 8u * 1024 * 1024);
  EXPECT_EQ(parse_rate("unlimited"), 0u);
}

TEST(Units, sizes_know_binary_and_decimal_units) {
  EXPECT_EQ(parse_bytes("16 MiB"), 16u << 20);
  EXPECT_EQ(parse_bytes("16 MB"), 16000000u);
  EXPECT_EQ(parse_bytes("0.5 KiB"), 512u);
  EXPECT_EQ(parse_bytes("0"), 0u);
}

TEST(Units, durations_know_their_units) {
  EXPECT_EQ(parse_duration("50 ms"), 50ms);
  EXPECT_EQ(parse_duration("1.5us"), 1500ns);
  EXPECT_EQ(parse_duration("2 µs"), 2us);
  EXPECT_EQ(parse_duration("2 min"), 2min);
}

TEST(Units, a_rate_without_unit_is_an_error_that_shows_how_to_write_it) {
  const std::string error = error_of([] { parse_rate("100"); });
  EXPECT_NE(error.find("'100' has no unit"), std::string::npos) << error;
  EXPECT_NE(error.find("1 Gbit/s"), std::string::npos) << error;
  EXPECT_NE(error_of([] { parse_bytes("64"); }).find("has no unit"), std::string::npos);
  EXPECT_NE(error_of([] { parse_duration("20"); }).find("has no unit"), std::string::npos);
}

TEST(Units, a_unit_in_the_wrong_case_is_suggested) {
  EXPECT_NE(error_of([] { parse_rate("1 gbit/s"); }).find("did you mean 'Gbit/s'"), std::string::npos);
  EXPECT_NE(error_of([] { parse_bytes("1 mib"); }).find("did you mean 'MiB'"), std::string::npos);
}

TEST(Units, nonsense_is_refused) {
  for (const char* text : {"", "   ", "fast", "-1 ms", ".", "1 parsec", "1 ms ms", "1e9 ms", "99999999999 h"})
    EXPECT_THROW(parse_duration(text), UnitError) << text;
  EXPECT_THROW(parse_rate("0 Gbit/s"), UnitError);
  EXPECT_EQ(parse_duration("8784 h"), kLongestDuration);
  for (const char* text : {"8784.1 h", "4611686018427387904 ns"})
    EXPECT_NE(error_of([&] { parse_duration(text); }).find("the most is a year"), std::string::npos) << text;
}

TEST(Units, what_is_formatted_reads_back_the_same) {
  for (const uint64_t rate : {1ul, 1000ul, 100000000ul, 25000000000ul})
    EXPECT_EQ(parse_rate(format_rate(rate)), rate);
  for (const uint64_t bytes : {1ul, 4096ul, 16ul << 20, 4ul << 30})
    EXPECT_EQ(parse_bytes(format_bytes(bytes)), bytes);
  for (const std::chrono::nanoseconds span :
       std::initializer_list<std::chrono::nanoseconds>{1ns, 20us, 1500us, 2s})
    EXPECT_EQ(parse_duration(format_duration(span)), span);
}

}  // namespace
}  // namespace faultinject
