// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/plan_text.h"

#include <gtest/gtest.h>

namespace faultinject {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_plan(text, "plan.yaml");
  } catch (const PlanError& error) {
    return error.what();
  }
  return "none";
}

TEST(PlanText, takes_a_list_a_mapping_with_faults_and_a_single_fault) {
  const std::string fault = "{at: now, target: node1/nic0, kind: port_down}";
  EXPECT_EQ(parse_plan("- " + fault + "\n- " + fault, "f").size(), 2u);
  EXPECT_EQ(parse_plan("faults:\n  - " + fault, "f").size(), 1u);
  const auto one = parse_plan(fault, "f");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].kind, &fault_kind("port_down"));
  EXPECT_EQ(one[0].target.text, "node1/nic0");
}

TEST(PlanText, tells_file_line_and_what_is_meant) {
  const std::string wrong = error_of("# plan\n- {at: now, target: node1/nic0, kind: port_dwn}");
  EXPECT_EQ(wrong.rfind("plan.yaml:2:", 0), 0u) << wrong;
  EXPECT_NE(wrong.find("unknown kind 'port_dwn'; did you mean 'port_down'?"), std::string::npos) << wrong;
  EXPECT_EQ(error_of("faults: []\nseed: 3"), "plan.yaml:2:1: unknown key 'seed' beside 'faults'");
}

TEST(PlanText, what_is_not_yaml_has_a_place_too) {
  EXPECT_EQ(error_of("- {at: now,\n  target: [").substr(0, 12), "plan.yaml:2:");
  EXPECT_NE(error_of("- {at: now").find("this is not YAML"), std::string::npos);
}

TEST(PlanText, a_plan_must_hold_a_fault_and_each_fault_a_trigger) {
  EXPECT_NE(error_of("").find("there is no fault in it"), std::string::npos);
  EXPECT_NE(error_of("faults:\n").find("there is no fault in it"), std::string::npos);
  EXPECT_EQ(error_of("- {target: node1/nic0, kind: port_down}").substr(0, 39),
            "plan.yaml:1:3: nothing triggers this fa");
  EXPECT_NE(error_of("port_down").find("must be a list"), std::string::npos);
}

TEST(PlanText, a_plan_is_one_document) {
  const std::string fault = "- {at: now, target: node1/nic0, kind: port_down}\n";
  EXPECT_EQ(error_of(fault + "---\n" + fault),
            "plan.yaml:2:1: a plan is one YAML document, and this is behind it");
  EXPECT_EQ(parse_plan("---\n" + fault, "f").size(), 1u);
  EXPECT_EQ(parse_plan(fault + "---\n", "f").size(), 1u) << "nothing comes behind it";
}

TEST(PlanText, a_name_is_given_to_one_fault) {
  const std::string fault = "at: now, target: node1/nic0, kind: port_down}\n";
  EXPECT_EQ(error_of("- {name: a, " + fault + "- {name: a, " + fault),
            "plan.yaml:2:10: a fault before this one is called 'a', too");
  EXPECT_EQ(error_of("- {" + fault + "- {name: port_down node1/nic0, " + fault),
            "plan.yaml:2:10: a fault before this one is called 'port_down node1/nic0', too");
  EXPECT_EQ(error_of("- {" + fault + "- {" + fault), "none") << "they have no names";
  EXPECT_NE(error_of("- {" + fault + "- {" + fault +
                     "- {after: port_down node1/nic0, target: node1/nic0, kind: noop}")
                .find("several faults before this one are called 'port_down node1/nic0'"),
            std::string::npos);
}

}  // namespace
}  // namespace faultinject
