// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/table.h"

#include <gtest/gtest.h>

#include <vector>

#include "harness/conformance/suite.h"

namespace r2bench::conformance {
namespace {

using nlohmann::json;

json fabric(const std::string& name, json cases, json faults = json::array()) {
  return {{"fabric", name},
          {"environment", {{"kernel", "Linux 1"}, {"machine", "x"}, {"cores", 2}}},
          {"cases", std::move(cases)},
          {"faults", std::move(faults)}};
}
json a_case(const std::string& name, const std::string& wanted, const std::string& got) {
  const json observation = {{"what", "status"}, {"wanted", wanted}, {"got", got}};
  return {{"case", name}, {"outcome", "ran"}, {"observations", json::array({observation})}};
}
/// nlohmann takes {x} for x itself with some compilers.
json list(const std::vector<json>& elements) {
  json all = json::array();
  for (const json& element : elements) all.push_back(element);
  return all;
}
json a_fault(const std::string& source, const std::string& completions) {
  return {{"fault", "port_down"}, {"source", source}, {"seen", {{"completions", completions}}}};
}

TEST(ConformanceTable, what_is_as_wanted_is_no_deviation) {
  const Table table = make_table({fabric("vhca", list({a_case("a", "EINVAL|ENOMEM", "ENOMEM")}))}, {}, {});
  EXPECT_TRUE(table.deviations.empty());
  EXPECT_EQ(table.observations, 1u);
}

TEST(ConformanceTable, an_explanation_is_for_its_fabric_and_case_only) {
  const std::vector<Explanation> known = {{"rxe", "a", "status", true, "because"},
                                          {"rxe", "b", "*", false, "a bug"}};
  const Table table =
      make_table({fabric("vhca", list({a_case("a", "SUCCESS", "RETRY_EXC_ERR")})),
                  fabric("rxe", list({a_case("a", "SUCCESS", "FATAL_ERR"), a_case("b", "1", "2")}))},
                 {}, known);
  ASSERT_EQ(table.deviations.size(), 3u);
  EXPECT_FALSE(table.deviations[0].explained);
  EXPECT_TRUE(table.deviations[1].acceptable);
  EXPECT_TRUE(table.deviations[2].explained);
  EXPECT_FALSE(table.deviations[2].acceptable);
  EXPECT_EQ(table.unexplained(), 2u);
}

TEST(ConformanceTable, a_case_that_did_not_run_is_one) {
  const json broken = {
      {"case", "a"}, {"outcome", "broken"}, {"reason", "died"}, {"observations", json::array()}};
  const Table table = make_table({fabric("vhca", list({broken}))}, {}, {});
  ASSERT_EQ(table.deviations.size(), 1u);
  EXPECT_EQ(table.deviations[0].got, "broken: died");
}

TEST(ConformanceTable, an_injected_fault_is_measured_by_the_real_one) {
  const Table table = make_table(
      {fabric("vhca", json::array(), list({a_fault("injected", "SUCCESS+ RETRY_EXC_ERR")})),
       fabric(
           "rxe", json::array(),
           list({a_fault("injected", "SUCCESS+ LOC_QP_OP_ERR"), a_fault("real", "SUCCESS+ LOC_QP_OP_ERR")}))},
      {}, {});
  ASSERT_EQ(table.deviations.size(), 1u);
  EXPECT_EQ(table.deviations[0].fabric, "vhca injected");
  EXPECT_EQ(table.deviations[0].wanted, "SUCCESS+ LOC_QP_OP_ERR");
}

TEST(ConformanceTable, a_fault_without_a_witness_is_a_deviation) {
  json fault = a_fault("injected", "SUCCESS+");
  fault["seen"]["broken"] = "the fault left no witness";
  EXPECT_EQ(make_table({fabric("vhca", json::array(), list({fault}))}, {}, {}).unexplained(), 1u);
}

TEST(ConformanceTable, markdown_has_a_row_for_each_deviation_and_escapes_bars) {
  const std::string text = markdown(
      make_table({fabric("vhca", list({a_case("a", "EINVAL|ENOMEM", "0")}))}, {{"date", "today"}}, {}));
  EXPECT_NE(text.find("| a | vhca | status | EINVAL\\|ENOMEM | 0 | ? | not explained yet |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 of 1 differ"), std::string::npos);
  EXPECT_NE(text.find("* date: today"), std::string::npos);
}

// Without a case there was no deviation, and the exit status said that all is well.
TEST(ConformanceSuite, a_case_that_does_not_exist_is_named) {
  const json ran = list({a_case("send.inline", "0", "0"), a_case("states.reset", "0", "0")});
  EXPECT_EQ(why_not_run(ran, {}), "");
  EXPECT_EQ(why_not_run(ran, {"send", "states.reset"}), "");
  EXPECT_EQ(why_not_run(ran, {"send", "stats"}).rfind("--case stats: the name of no case begins", 0), 0u);
  EXPECT_EQ(why_not_run(json{{"broken", "no result"}}, {"x"}), "");
}

}  // namespace
}  // namespace r2bench::conformance
