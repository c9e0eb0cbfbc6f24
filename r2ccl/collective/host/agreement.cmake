# SPDX-License-Identifier: Apache-2.0
# Which plan, and whether CollNet is worth it: pure.
add_library(r2ccl_advice STATIC host/advise.cc host/engine_judge.cc host/engine_pace.cc host/least_size.cc)
target_link_libraries(r2ccl_advice PUBLIC r2ccl_collective)
set_target_properties(r2ccl_advice PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
# The agreement on capacities among the processes of a group, and what NCCL's tuner decides by it.
add_library(r2ccl_agreement STATIC host/agreement_star.cc host/gate.cc host/node_counter.cc host/plan_agreement.cc host/selection.cc)
target_link_libraries(r2ccl_agreement PUBLIC r2ccl_advice r2ccl_collective r2ccl_control r2ccl_trace Threads::Threads)
set_target_properties(r2ccl_agreement PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
r2ccl_use_headers(r2ccl_agreement core)

r2ccl_add_test(NAME collective_agreement_star_test SOURCES host/agreement_star_test.cc LIBRARIES r2ccl_agreement LABEL unit)
r2ccl_add_test(NAME collective_gate_test SOURCES host/gate_test.cc LIBRARIES r2ccl_agreement LABEL unit)
r2ccl_add_test(NAME collective_plan_agreement_test SOURCES host/plan_agreement_test.cc LIBRARIES r2ccl_agreement LABEL unit TIMEOUT 240)
r2ccl_add_test(NAME collective_plan_agreement_faults_test SOURCES host/plan_agreement_faults_test.cc LIBRARIES r2ccl_agreement LABEL unit TIMEOUT 240)
r2ccl_add_test(NAME collective_node_counter_test SOURCES host/node_counter_test.cc LIBRARIES r2ccl_agreement LABEL unit)
r2ccl_add_test(NAME collective_selection_test SOURCES host/selection_test.cc LIBRARIES r2ccl_agreement LABEL unit)
