// SPDX-License-Identifier: Apache-2.0
// Queue pair states: the transitions of IBTA volume 1, 10.3.1, and what may be posted in which state.
#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

void reset_to_rts(Device& device_a, Device& device_b, Notes& notes) {
  Endpoint a(device_a), b(device_b);
  notes.expect("new", "RESET", state_name(a.state()));
  notes.expect("to INIT", "0", errno_name(a.to_init()));
  notes.expect("after INIT", "INIT", state_name(a.state()));
  require(b.to_init() == 0, "INIT of the peer");
  notes.expect("to RTR", "0", errno_name(a.to_rtr(b)));
  notes.expect("after RTR", "RTR", state_name(a.state()));
  notes.expect("to RTS", "0", errno_name(a.to_rts()));
  notes.expect("after RTS", "RTS", state_name(a.state()));
  notes.expect("RTS to ERR", "0", errno_name(a.to(IBV_QPS_ERR)));
  notes.expect("after ERR", "ERR", state_name(a.state()));
  notes.expect("ERR to ERR", "0", errno_name(a.to(IBV_QPS_ERR)));
  notes.expect("ERR to RESET", "0", errno_name(a.to(IBV_QPS_RESET)));
  notes.expect("after RESET", "RESET", state_name(a.state()));
  notes.expect("INIT again", "0", errno_name(a.to_init()));
}

void forbidden_transitions(Device& device_a, Device& device_b, Notes& notes) {
  Endpoint a(device_a), b(device_b);
  require(b.to_init() == 0, "INIT of the peer");
  notes.expect("RESET to RTR", "EINVAL", errno_name(a.to_rtr(b)));
  notes.expect("RESET to RTS", "EINVAL", errno_name(a.to_rts()));
  notes.expect("RESET to ERR", "EINVAL", errno_name(a.to(IBV_QPS_ERR)));
  require(a.to_init() == 0, "INIT");
  notes.expect("INIT to RTS", "EINVAL", errno_name(a.to_rts()));
  notes.expect("INIT to RTR without an address", "EINVAL", errno_name(a.to(IBV_QPS_RTR)));
  notes.expect("still", "INIT", state_name(a.state()));
  require(a.to_rtr(b) == 0, "RTR");
  notes.expect("RTR to RTS without a timeout", "EINVAL", errno_name(a.to(IBV_QPS_RTS)));
  notes.expect("RTR to INIT", "EINVAL", errno_name(a.to_init()));
  require(a.to(IBV_QPS_ERR) == 0, "ERR");
  notes.expect("ERR to RTS", "EINVAL", errno_name(a.to_rts()));
  notes.expect("ERR to INIT", "EINVAL", errno_name(a.to_init()));
}

void posting_by_state(Device& device_a, Device& device_b, Notes& notes) {
  Endpoint a(device_a), b(device_b);
  const auto refused = [](int rc) { return rc != 0; };
  a.set_peer(&b);
  notes.expect_true("post_send in RESET is refused", refused(a.post({.bytes = 8})));
  notes.expect_true("post_recv in RESET is refused", refused(a.post_recv(1)));
  require(a.to_init() == 0 && b.to_init() == 0, "INIT");
  notes.expect_true("post_send in INIT is refused", refused(a.post({.bytes = 8})));
  notes.expect_true("post_recv in INIT is taken", !refused(a.post_recv(2)));
  require(a.to_rtr(b) == 0, "RTR");
  notes.expect_true("post_send in RTR is refused", refused(a.post({.bytes = 8})));
  notes.expect_true("post_recv in RTR is taken", !refused(a.post_recv(3)));
}

void sqd(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  device_a.events();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  const int rc = ibv_modify_qp(pair.a.qp(), &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
  if (rc == EOPNOTSUPP || rc == ENOSYS) throw NotOffered("SQD");
  notes.expect("RTS to SQD", "0", errno_name(rc));
  if (rc != 0) return;
  const auto events = device_a.events("SQ_DRAINED", std::chrono::seconds(10));
  notes.expect("event", "SQ_DRAINED", events.empty() ? "none" : events.back());
  notes.expect("state", "SQD", state_name(pair.a.state()));
  notes.expect("SQD to RTS", "0", errno_name(pair.a.to(IBV_QPS_RTS)));
  require(pair.a.post({.id = 1, .bytes = 8}) == 0, "post in RTS again");
  notes.expect("work after it", "SUCCESS", status_name(pair.a.wait().status));
}

void flush_by_modify(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  for (uint64_t id = 1; id <= 3; ++id) require(pair.a.post_recv(id) == 0, "post_recv");
  require(pair.a.to(IBV_QPS_ERR) == 0, "ERR");
  std::string order, statuses;
  for (int i = 0; i < 3; ++i) {
    const ibv_wc completion = pair.a.wait();
    order += std::to_string(completion.wr_id);
    statuses = status_name(completion.status);
  }
  notes.expect("receives come back in order", "123", order);
  notes.expect("their status", "WR_FLUSH_ERR", statuses);
  require(pair.a.post({.id = 9, .bytes = 8}) == 0, "post_send in ERR");
  const auto sent = pair.a.poll(std::chrono::seconds(5));
  notes.expect("a send posted in ERR", "WR_FLUSH_ERR", sent ? status_name(sent->status) : "never completes");
  require(pair.a.post_recv(10) == 0, "post_recv in ERR");
  auto received = pair.a.poll(std::chrono::seconds(2));
  notes.expect("a receive posted in ERR", "WR_FLUSH_ERR",
               received ? status_name(received->status) : "never completes");
  if (received) return;
  require(pair.a.to(IBV_QPS_ERR) == 0, "ERR again");
  received = pair.a.poll(std::chrono::seconds(5));
  notes.expect("it, after another move to ERR", "WR_FLUSH_ERR",
               received ? status_name(received->status) : "never completes");
}

void reset_forgets(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.a.post_recv(1) == 0, "post_recv");
  require(pair.a.to(IBV_QPS_RESET) == 0, "RESET");
  notes.expect_true("nothing completes after RESET", !pair.a.poll(std::chrono::milliseconds(200)));
}

void query_tells_what_was_set(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.timeout = 15, .retry = 5, .rnr_retry = 4});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(pair.a.qp(), &attributes,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_DEST_QPN |
                           IBV_QP_CAP,
                       &init) == 0,
          "ibv_query_qp");
  notes.expect("timeout", "15", std::to_string(attributes.timeout));
  notes.expect("retry_cnt", "5", std::to_string(attributes.retry_cnt));
  notes.expect("rnr_retry", "4", std::to_string(attributes.rnr_retry));
  notes.expect_true("dest_qp_num", attributes.dest_qp_num == pair.b.qp()->qp_num);
  notes.expect_true("at least the wanted send depth", init.cap.max_send_wr >= 64);
}

}  // namespace

std::vector<Case> state_cases() {
  return {
      {"states.reset_to_rts", reset_to_rts},         {"states.forbidden_transitions", forbidden_transitions},
      {"states.posting_by_state", posting_by_state}, {"states.sqd", sqd},
      {"states.flush_by_modify", flush_by_modify},   {"states.reset_forgets", reset_forgets},
      {"states.query", query_tells_what_was_set}};
}

}  // namespace r2bench::conformance
