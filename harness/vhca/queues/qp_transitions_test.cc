// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/qp_transitions.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace vhca {
namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC;

TEST(QpTransitions, the_usual_life_is_allowed) {
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts), 0);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
}

TEST(QpTransitions, every_state_may_go_to_err_and_reset_with_nothing_but_the_state_but_reset_not_to_err) {
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
    for (const auto from :
         {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR})
      for (const auto to : {IBV_QPS_ERR, IBV_QPS_RESET}) {
        const bool allowed = from != IBV_QPS_RESET || to != IBV_QPS_ERR;
        EXPECT_EQ(check_transition(type, from, to, IBV_QP_STATE), allowed ? 0 : EINVAL);
        EXPECT_EQ(check_transition(type, from, to, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
      }
}

TEST(QpTransitions, each_attribute_that_a_step_needs_must_be_there) {
  for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
    if (bit == IBV_QP_STATE) continue;
    if (kInit & bit) {
      EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit & ~bit), EINVAL) << bit;
    }
    if (kRtr & bit) {
      EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr & ~bit), EINVAL) << bit;
    }
    if (kRts & bit) {
      EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts & ~bit), EINVAL) << bit;
    }
  }
}

TEST(QpTransitions, what_a_step_does_not_take_is_refused) {
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRts | IBV_QP_AV), EINVAL);
}

TEST(QpTransitions, no_state_is_skipped) {
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTR, kRtr), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_RTS, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_ERR, IBV_QPS_INIT, kInit), EINVAL);
}

TEST(QpTransitions, a_send_queue_may_be_drained_and_its_path_changed_then) {
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    EXPECT_EQ(check_transition(type, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    EXPECT_EQ(check_transition(type, IBV_QPS_SQD, IBV_QPS_RTS, IBV_QP_STATE), 0);
    EXPECT_EQ(check_transition(type, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QP_STATE), EINVAL);
  }
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_AV | IBV_QP_TIMEOUT), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_AV), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_AV), EINVAL);
}

TEST(QpTransitions, each_service_needs_its_own_attributes) {
  constexpr int kRtrUc = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kInitUd = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUc), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kRtr), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, kRts), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInitUd), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInitUd), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_STATE), 0);
  EXPECT_EQ(check_transition(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, kRtrUc), EINVAL);
  for (const auto type : {IBV_QPT_UC, IBV_QPT_UD}) {
    EXPECT_EQ(check_transition(type, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    EXPECT_EQ(check_transition(type, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE), 0);
  }
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE), EINVAL);
}

}  // namespace
}  // namespace vhca
