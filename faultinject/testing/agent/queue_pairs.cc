// SPDX-License-Identifier: Apache-2.0
// Queue pairs: made, connected, moved from state to state, destroyed.
#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "faultinject/testing/agent/agent.h"
#include "faultinject/testing/agent/interface.h"

namespace agent {
namespace {

ibv_gid unhex(const std::string& text) {
  ibv_gid gid{};
  for (int i = 0; i < 16; i++) gid.raw[i] = uint8_t(std::stoul(text.substr(size_t(2 * i), 2), nullptr, 16));
  return gid;
}

std::string make_pair(std::istringstream& in) {
  Pair pair;
  int depth = 0, entries = 0;
  std::string queues, sleeping, access;
  in >> pair.timeout >> pair.retries >> depth >> queues >> sleeping >> access;
  if (!(in >> entries)) entries = 4 * depth + 16;
  pair.only_receives_sends = access == "no_access";
  const ibv_qp_type type = sleeping == "uc" ? IBV_QPT_UC : sleeping == "ud" ? IBV_QPT_UD : IBV_QPT_RC;
  if (sleeping == "channel") pair.channel = V(ibv_create_comp_channel)(context);
  pair.send_cq = create_cq(entries, pair.channel);
  pair.recv_cq = queues == "split" ? create_cq(entries, pair.channel) : pair.send_cq;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = pair.send_cq;
  attributes.recv_cq = pair.recv_cq;
  attributes.qp_type = type;
  attributes.cap.max_send_wr = uint32_t(depth);
  attributes.cap.max_recv_wr = uint32_t(depth);
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 2;
  attributes.cap.max_inline_data = 64;
  if (sleeping == "srq") {
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = 16;
    shared.attr.max_sge = 1;
    attributes.srq = V(ibv_create_srq)(pd, &shared);
    if (attributes.srq == nullptr) return "error create_srq " + std::to_string(errno);
    pair.srq = attributes.srq;
  }
  pair.qp = create_qp(attributes);
  if (pair.qp == nullptr) return "error create_qp " + std::to_string(errno);
  pairs.push_back(pair);
  return "ok " + std::to_string(pairs.size() - 1) + " " + std::to_string(pair.qp->qp_num) + " " +
         std::to_string(attributes.cap.max_send_wr);
}

std::string to_init(Pair& pair) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kDatagramKey;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (pair.qp->qp_type == IBV_QPT_RC) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
  if (pair.only_receives_sends) attr.qp_access_flags = 0;
  const int more = pair.qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | more);
  return rc == 0 ? "" : "error init " + std::to_string(rc);
}

std::string to_rts(Pair& pair) {
  const bool reliable = pair.qp->qp_type == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = uint8_t(pair.timeout);
  attr.retry_cnt = uint8_t(pair.retries);
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  const int more =
      reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | more);
  return rc == 0 ? "ok" : "error rts " + std::to_string(rc);
}

// connect ID NUMBER GID ADDRESS KEY [receive]: to RTS, or only to RTR.
std::string connect(std::istringstream& in) {
  size_t id = 0;
  uint32_t number = 0;
  std::string gid, only;
  in >> id >> number >> gid;
  Pair& pair = pairs.at(id);
  in >> pair.remote_address >> pair.remote_key >> only;
  pair.remote_number = number;
  if (const std::string error = to_init(pair); !error.empty()) return error;
  const ibv_qp_type type = pair.qp->qp_type;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = number;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = unhex(gid);
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  if (type == IBV_QPT_UD) {
    ibv_ah_attr to = attr.ah_attr;
    pair.ah = V(ibv_create_ah)(pd, &to);
    if (pair.ah == nullptr) return "error create_ah " + std::to_string(errno);
  }
  const int reliable = type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  const int connected =
      type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | connected);
  if (rc != 0) return "error rtr " + std::to_string(rc);
  return only == "receive" ? "ok" : to_rts(pair);
}

// aim ID NUMBER GID: datagrams go to that queue pair from now on.
std::string aim(std::istringstream& in) {
  size_t id = 0;
  std::string gid;
  in >> id;
  Pair& pair = pairs.at(id);
  in >> pair.remote_number >> gid;
  ibv_ah_attr to{};
  to.is_global = 1;
  to.grh.dgid = unhex(gid);
  to.grh.sgid_index = 1;
  to.grh.hop_limit = 64;
  to.port_num = 1;
  pair.other_ahs.push_back(pair.ah);
  pair.ah = V(ibv_create_ah)(pd, &to);
  return pair.ah != nullptr ? "ok" : "error create_ah " + std::to_string(errno);
}

std::string qp_state(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int rc = V(ibv_query_qp)(pairs.at(id).qp, &attr, IBV_QP_STATE, &init);
  if (rc != 0) return "errno " + std::to_string(rc);
  return "ok " + std::to_string(attr.qp_state) + " " +
         std::to_string(__atomic_load_n(&pairs.at(id).qp->state, __ATOMIC_RELAXED));
}

// gaze: a thread reads ibv_qp::state of every queue pair, over and over; answers once it has begun. gazed:
// ends it when it has read all of them COUNT times; how often it did, and how often one was ERR. No queue
// pair may be made or destroyed in between.
std::thread gazer;
std::atomic<bool> gazing{false};
std::atomic<uint64_t> gazes{0};
uint64_t errs_gazed = 0;

void wait_for_gazes(uint64_t count) {
  while (gazes.load() < count) std::this_thread::yield();
}

std::string gaze() {
  gazing = true;
  gazes = errs_gazed = 0;
  gazer = std::thread([] {
    for (; gazing.load(std::memory_order_relaxed); gazes++)
      for (const Pair& pair : pairs)
        errs_gazed += __atomic_load_n(&pair.qp->state, __ATOMIC_RELAXED) == IBV_QPS_ERR;
  });
  wait_for_gazes(1);
  return "ok";
}

std::string gazed(std::istringstream& in) {
  uint64_t count = 0;
  in >> count;
  wait_for_gazes(count);  // a busy machine may have let it read only a few times
  gazing = false;
  gazer.join();
  return "ok " + std::to_string(gazes) + " " + std::to_string(errs_gazed);
}

std::string move_to(std::istringstream& in, ibv_qp_state state) {
  size_t id = 0;
  in >> id;
  ibv_qp_attr attr{};
  attr.qp_state = state;
  const int rc = V(ibv_modify_qp)(pairs.at(id).qp, &attr, IBV_QP_STATE);
  return rc == 0 ? "ok" : "errno " + std::to_string(rc);
}

std::string destroy_qp(std::istringstream& in) {
  Pair& pair = pair_of(in);
  const int rc = V(ibv_destroy_qp)(pair.qp);
  if (rc == 0) pair.qp = nullptr;
  return ok_or_errno(rc);
}

// at_exit destroy|poll ID: what a global object does with that queue pair as the program leaves, after all
// handlers of atexit(). The exit status is 7, or 8 when that failed.
class AtExit {
 public:
  ~AtExit() {
    if (qp_ == nullptr) return;
    int done = 0;
    ibv_wc wc{};
    for (const uint64_t end = now_ns() + 10'000'000'000; polls_ && done == 0 && now_ns() < end;)
      done = poll_cq(qp_->send_cq, 1, &wc);
    _exit((polls_ ? done == 1 : V(ibv_destroy_qp)(qp_) == 0) ? 7 : 8);
  }
  std::string set(std::istringstream& in) {
    std::string what;
    in >> what;
    polls_ = what == "poll";
    qp_ = pair_of(in).qp;
    return "ok";
  }

 private:
  ibv_qp* qp_ = nullptr;
  bool polls_ = false;
} at_exit;

}  // namespace

Commands queue_pair_commands() {
  using In = std::istringstream;
  return {
      {"qp", make_pair},
      {"connect", connect},
      {"init",
       [](In& in) {
         const std::string error = to_init(pair_of(in));
         return error.empty() ? "ok" : error;
       }},
      {"rts", [](In& in) { return to_rts(pair_of(in)); }},
      {"err", [](In& in) { return move_to(in, IBV_QPS_ERR); }},
      {"reset", [](In& in) { return move_to(in, IBV_QPS_RESET); }},
      {"state", qp_state},
      {"field",  // ibv_qp::state as it stands, without a query
       [](In& in) {
         return "ok " + std::to_string(__atomic_load_n(&pair_of(in).qp->state, __ATOMIC_RELAXED));
       }},
      {"gaze", [](In&) { return gaze(); }},
      {"gazed", gazed},
      {"aim", aim},
      {"destroy", destroy_qp},
      {"destroy_srq", [](In& in) { return ok_or_errno(V(ibv_destroy_srq)(pair_of(in).srq)); }},
      {"at_exit", [](In& in) { return at_exit.set(in); }},
  };
}

}  // namespace agent
