#include "harness/vhca/qp_transitions.h"

#include <cerrno>

namespace vhca {
namespace {

struct Step {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int kChangeable = IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr Step kSteps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, kChangeable},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kChangeable},
};

}  // namespace

int check_transition(ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return given == 0 && (mask & IBV_QP_STATE) ? 0 : EINVAL;
  if (from == to && given == 0 && !(mask & IBV_QP_STATE)) return EINVAL;
  for (const Step& step : kSteps) {
    if (step.from != from || step.to != to) continue;
    if ((given & step.required) != step.required) return EINVAL;
    if ((given & ~(step.required | step.optional)) != 0) return EINVAL;
    return 0;
  }
  const bool draining = to == IBV_QPS_SQD || from == IBV_QPS_SQD;
  return draining ? EOPNOTSUPP : EINVAL;
}

}  // namespace vhca
