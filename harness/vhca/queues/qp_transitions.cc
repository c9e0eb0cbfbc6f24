// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/qp_transitions.h"

#include <cerrno>

namespace vhca {
namespace {

// IBTA vol. 1, the tables of the QP modifiers that are required and optional for each transition, per
// transport service.
struct Step {
  ibv_qp_state from;
  ibv_qp_state to;
  int required[3];  // RC, UC, UD
  int optional[3];
};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitUd = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kConnect = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kChangeableUc = IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kChangeable = kChangeableUc | IBV_QP_MIN_RNR_TIMER;
constexpr int kTimers = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kConnectOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;

constexpr Step kSteps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {kInit, kInit, kInitUd}, {0, 0, 0}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {0, 0, 0}, {kInit, kInit, kInitUd}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {kConnect | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, kConnect, 0},
     {kConnectOptional, kConnectOptional, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {kTimers | IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
     {kChangeable, kChangeableUc, IBV_QP_QKEY}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {0, 0, 0}, {kChangeable, kChangeableUc, IBV_QP_QKEY}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {0, 0, 0}, {kNotify, kNotify, kNotify}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {0, 0, 0}, {kChangeable, kChangeableUc, IBV_QP_QKEY}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {0, 0, 0},
     {kChangeable | kTimers | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_AV | IBV_QP_PKEY_INDEX,
      kChangeableUc | IBV_QP_AV | IBV_QP_PKEY_INDEX, IBV_QP_QKEY | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {-1, 0, 0}, {0, IBV_QP_ACCESS_FLAGS, IBV_QP_QKEY}},
};

}  // namespace

int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (from == IBV_QPS_RESET && to == IBV_QPS_ERR) return EINVAL;  // the kernel's table has no such step
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return given == 0 && (mask & IBV_QP_STATE) ? 0 : EINVAL;
  if (from == to && given == 0 && !(mask & IBV_QP_STATE)) return EINVAL;
  const int service = type - IBV_QPT_RC;
  if (service < 0 || service > 2) return EINVAL;
  for (const Step& step : kSteps) {
    if (step.from != from || step.to != to || step.required[service] == -1) continue;
    if ((given & step.required[service]) != step.required[service]) return EINVAL;
    if ((given & ~(step.required[service] | step.optional[service])) != 0) return EINVAL;
    return 0;
  }
  return EINVAL;
}

}  // namespace vhca
