// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/names.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>

namespace faultinject {
namespace {

TEST(Names, have_the_numbers_of_the_headers) {
  EXPECT_EQ(opcode_number("write"), IBV_WR_RDMA_WRITE);
  EXPECT_EQ(opcode_number("write_imm"), IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(opcode_number("send"), IBV_WR_SEND);
  EXPECT_EQ(opcode_number("send_imm"), IBV_WR_SEND_WITH_IMM);
  EXPECT_EQ(opcode_number("read"), IBV_WR_RDMA_READ);
  EXPECT_EQ(opcode_number("atomic_cmp_swp"), IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(opcode_number("atomic_fetch_add"), IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(opcode_number("local_inv"), IBV_WR_LOCAL_INV);
  EXPECT_EQ(opcode_number("bind_mw"), IBV_WR_BIND_MW);
  EXPECT_EQ(opcode_number("send_inv"), IBV_WR_SEND_WITH_INV);
  EXPECT_EQ(opcode_number("tso"), IBV_WR_TSO);
  const int statuses[] = {IBV_WC_SUCCESS,
                          IBV_WC_LOC_LEN_ERR,
                          IBV_WC_LOC_QP_OP_ERR,
                          IBV_WC_LOC_EEC_OP_ERR,
                          IBV_WC_LOC_PROT_ERR,
                          IBV_WC_WR_FLUSH_ERR,
                          IBV_WC_MW_BIND_ERR,
                          IBV_WC_BAD_RESP_ERR,
                          IBV_WC_LOC_ACCESS_ERR,
                          IBV_WC_REM_INV_REQ_ERR,
                          IBV_WC_REM_ACCESS_ERR,
                          IBV_WC_REM_OP_ERR,
                          IBV_WC_RETRY_EXC_ERR,
                          IBV_WC_RNR_RETRY_EXC_ERR,
                          IBV_WC_LOC_RDD_VIOL_ERR,
                          IBV_WC_REM_INV_RD_REQ_ERR,
                          IBV_WC_REM_ABORT_ERR,
                          IBV_WC_INV_EECN_ERR,
                          IBV_WC_INV_EEC_STATE_ERR,
                          IBV_WC_FATAL_ERR,
                          IBV_WC_RESP_TIMEOUT_ERR,
                          IBV_WC_GENERAL_ERR,
                          IBV_WC_TM_ERR,
                          IBV_WC_TM_RNDV_INCOMPLETE};
  ASSERT_EQ(status_names().size(), std::size(statuses));
  for (size_t i = 0; i < std::size(statuses); i++) EXPECT_EQ(status_number(status_names()[i]), statuses[i]);
  const int events[] = {IBV_EVENT_CQ_ERR,
                        IBV_EVENT_QP_FATAL,
                        IBV_EVENT_QP_REQ_ERR,
                        IBV_EVENT_QP_ACCESS_ERR,
                        IBV_EVENT_COMM_EST,
                        IBV_EVENT_SQ_DRAINED,
                        IBV_EVENT_PATH_MIG,
                        IBV_EVENT_PATH_MIG_ERR,
                        IBV_EVENT_DEVICE_FATAL,
                        IBV_EVENT_PORT_ACTIVE,
                        IBV_EVENT_PORT_ERR,
                        IBV_EVENT_LID_CHANGE,
                        IBV_EVENT_PKEY_CHANGE,
                        IBV_EVENT_SM_CHANGE,
                        IBV_EVENT_SRQ_ERR,
                        IBV_EVENT_SRQ_LIMIT_REACHED,
                        IBV_EVENT_QP_LAST_WQE_REACHED,
                        IBV_EVENT_CLIENT_REREGISTER,
                        IBV_EVENT_GID_CHANGE,
                        IBV_EVENT_WQ_FATAL};
  ASSERT_EQ(event_names().size(), std::size(events));
  for (size_t i = 0; i < std::size(events); i++) EXPECT_EQ(event_number(event_names()[i]), events[i]);
}

TEST(Names, are_found_with_their_prefix_and_in_small_letters) {
  EXPECT_EQ(status_number("IBV_WC_RETRY_EXC_ERR"), 12);
  EXPECT_EQ(status_number("retry_exc_err"), 12);
  EXPECT_EQ(event_number("IBV_EVENT_PORT_ERR"), 10);
  EXPECT_EQ(errno_number("enomem"), ENOMEM);
  EXPECT_FALSE(status_number("RETRY_EXC"));
  EXPECT_FALSE(opcode_number("WRITE_ALL"));
}

TEST(Names, a_number_without_a_name_is_told_as_a_number) {
  EXPECT_EQ(status_name(12), "RETRY_EXC_ERR");
  EXPECT_EQ(status_name(99), "99");
  EXPECT_EQ(errno_name(ETIMEDOUT), "ETIMEDOUT");
  EXPECT_EQ(event_name(18), "GID_CHANGE");
}

}  // namespace
}  // namespace faultinject
