// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/expectation.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

Numeric numeric(const std::string& metric, const std::string& text) {
  return std::get<Numeric>(parse_condition(*find_metric(metric), text));
}

std::optional<double> value(const Numeric& parsed) {
  return evaluate(parsed.bound, [](Quantity quantity) -> std::optional<double> {
    switch (quantity) {
      case Quantity::kFloor:
        return 4;
      case Quantity::kWakeup:
        return 0.5;
      case Quantity::kLimit:
        return 0.5;
    }
    return std::nullopt;
  });
}

ExpressionError error_of(const std::string& metric, const std::string& text) {
  try {
    parse_condition(*find_metric(metric), text);
  } catch (const ExpressionError& error) {
    return error;
  }
  ADD_FAILURE() << metric << ": " << text << " was accepted";
  return {};
}

TEST(Expectation, adds_times_and_names) {
  const Numeric parsed = numeric("recover_ms.max", "<= floor + wakeup + 50 ms");
  EXPECT_EQ(parsed.comparison, Comparison::kLessEqual);
  EXPECT_DOUBLE_EQ(*value(parsed), 54.5);
}

TEST(Expectation, multiplies_and_subtracts) {
  EXPECT_DOUBLE_EQ(*value(numeric("retained_bw", ">= 0.95 * limit")), 0.475);
  EXPECT_DOUBLE_EQ(*value(numeric("recover_ms.p50", "< 2*floor - 500 us*2")), 7.0);
  EXPECT_DOUBLE_EQ(*value(numeric("retained_bw", ">= limit * 0.5 + 0.1")), 0.35);
}

TEST(Expectation, understands_every_unit_of_time) {
  EXPECT_DOUBLE_EQ(*value(numeric("detect_ms.p50", "<= 20 ms")), 20);
  EXPECT_DOUBLE_EQ(*value(numeric("detect_ms.p50", "<= 20ms")), 20);
  EXPECT_DOUBLE_EQ(*value(numeric("detect_ms.p50", "<= 250 us")), 0.25);
  EXPECT_DOUBLE_EQ(*value(numeric("detect_ms.p50", "<= 1.5 s")), 1500);
  EXPECT_DOUBLE_EQ(*value(numeric("detect_ms.p50", "<= 1000000 ns")), 1);
  EXPECT_DOUBLE_EQ(*value(numeric("overhead_pct", "<= 3 %")), 3);
}

TEST(Expectation, a_number_alone_means_equality) {
  const Numeric parsed = numeric("duplicated", "0");
  EXPECT_EQ(parsed.comparison, Comparison::kEqual);
  EXPECT_DOUBLE_EQ(*value(parsed), 0);
}

TEST(Expectation, every_comparison_compares) {
  EXPECT_TRUE(compare(1, Comparison::kLess, 2));
  EXPECT_FALSE(compare(2, Comparison::kLess, 2));
  EXPECT_TRUE(compare(2, Comparison::kLessEqual, 2));
  EXPECT_TRUE(compare(2, Comparison::kEqual, 2));
  EXPECT_TRUE(compare(1, Comparison::kNotEqual, 2));
  EXPECT_TRUE(compare(2, Comparison::kGreaterEqual, 2));
  EXPECT_FALSE(compare(2, Comparison::kGreater, 2));
  EXPECT_EQ(numeric("lost", "!= 3").comparison, Comparison::kNotEqual);
  EXPECT_EQ(numeric("lost", "> 3").comparison, Comparison::kGreater);
  EXPECT_EQ(numeric("lost", "== 3").comparison, Comparison::kEqual);
}

TEST(Expectation, an_unknown_name_at_run_time_makes_the_sum_unknown) {
  const Numeric parsed = numeric("recover_ms.max", "<= floor + 1 ms");
  EXPECT_EQ(evaluate(parsed.bound, [](Quantity) { return std::nullopt; }), std::nullopt);
}

TEST(Expectation, words_may_be_negated) {
  const Word word = std::get<Word>(parse_condition(*find_metric("detected_by"), "!= completion"));
  EXPECT_TRUE(word.negated);
  EXPECT_EQ(word.word, "completion");
  EXPECT_FALSE(std::get<Word>(parse_condition(*find_metric("outcome"), "error")).negated);
}

TEST(Expectation, a_text_holds_its_pieces_in_their_order) {
  const auto text = [](const std::string& wanted) {
    return std::get<Text>(parse_condition(*find_metric("error_says"), wanted));
  };
  EXPECT_EQ(text("is down").pieces, (std::vector<std::string>{"is down"}));
  EXPECT_EQ(text(" NIC a … ms ago …").pieces, (std::vector<std::string>{"NIC a", "ms ago"}));
  EXPECT_TRUE(holds("the NIC a broke, 3 ms ago", text("NIC a … ms ago")));
  EXPECT_FALSE(holds("3 ms ago the NIC a broke", text("NIC a … ms ago")));
  EXPECT_FALSE(holds("once", text("once … once"))) << "each piece is there for itself";
  EXPECT_EQ(error_of("error_says", " … ").message,
            "no words are given; write the words that the error must contain");
}

TEST(Expectation, a_time_needs_its_unit) {
  const ExpressionError error = error_of("detect_ms.p50", "<= 20");
  EXPECT_EQ(error.column, 3u);
  EXPECT_NE(error.message.find("'detect_ms.p50' is a time, but '20' is a plain number"), std::string::npos)
      << error.message;
  EXPECT_NE(error_of("detect_ms.p50", "<= floor + 5").message.find("plain number"), std::string::npos);
}

TEST(Expectation, units_must_fit_the_metric) {
  EXPECT_NE(error_of("retained_bw", ">= floor").message.find("is a time"), std::string::npos);
  EXPECT_NE(error_of("overhead_pct", "<= 3").message.find("percentage"), std::string::npos);
  EXPECT_NE(error_of("duplicated", "<= 3 ms").message.find("plain number"), std::string::npos);
  EXPECT_NE(error_of("detect_ms.p50", "<= 3 ms * 2 ms").message.find("only one value with a unit"),
            std::string::npos);
}

TEST(Expectation, near_misses_are_suggested) {
  EXPECT_NE(error_of("recover_ms.max", "<= flor + 50 ms").message.find("did you mean 'floor'?"),
            std::string::npos);
  EXPECT_NE(error_of("outcome", "eror").message.find("did you mean 'error'?"), std::string::npos);
  EXPECT_NE(error_of("detect_ms.max", "<= 3 parsec").message.find("unknown unit 'parsec'"),
            std::string::npos);
}

TEST(Expectation, broken_expressions_are_refused_where_they_break) {
  EXPECT_EQ(error_of("detect_ms.max", "<=").column, 2u);
  EXPECT_EQ(error_of("detect_ms.max", "<= 3 ms +").column, 9u);
  EXPECT_EQ(error_of("detect_ms.max", "<= 3 ms 4 ms").column, 8u);
  EXPECT_EQ(error_of("detect_ms.max", "").column, 0u);
  EXPECT_EQ(error_of("detect_ms.max", "= 3 ms").column, 0u);
  EXPECT_EQ(error_of("detect_ms.max", "about 3 ms").column, 0u);
  EXPECT_EQ(error_of("outcome", "<= ok").column, 0u);
  EXPECT_EQ(error_of("detect_ms.max", "<= 3 ms * * 2").column, 10u);
}

TEST(Expectation, every_metric_has_a_meaning) {
  for (const MetricInfo& metric : metrics()) EXPECT_FALSE(metric.meaning.empty()) << metric.name;
}

}  // namespace
}  // namespace r2bench
