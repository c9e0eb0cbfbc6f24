// SPDX-License-Identifier: Apache-2.0
// What goes wrong, and how it is told: statuses, flushes, the states of both ends, and real retry timers.
#include <chrono>

#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

using Clock = std::chrono::steady_clock;

/// Posts `work` and two more behind it; notes the three statuses and the states of both ends.
void one_bad_of_three(Pair& pair, Notes& notes, Work work, const std::string& wanted,
                      const std::string& responder) {
  work.id = 1;
  require(pair.a.post(work) == 0, "post");
  require(pair.a.post({.id = 2, .bytes = 8}) == 0, "post");
  require(pair.a.post({.id = 3, .bytes = 8}) == 0, "post");
  const ibv_wc bad = pair.a.wait();
  notes.expect("status", wanted, status_name(bad.status));
  notes.expect_true("of the bad one", bad.wr_id == 1);
  std::string rest;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc completion = pair.a.wait();
    rest += (i > 0 ? " " : "") + std::to_string(completion.wr_id) + ":" + status_name(completion.status);
  }
  notes.expect("those behind it", "2:WR_FLUSH_ERR 3:WR_FLUSH_ERR", rest);
  notes.expect("requester's state", "ERR", state_name(pair.a.state()));
  notes.expect("responder's state", responder, state_name(pair.b.state()));
}

void bad_rkey(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  device_b.events();
  one_bad_of_three(pair, notes, {.bytes = 64, .rkey = pair.b.mr()->rkey ^ 0x5a00}, "REM_ACCESS_ERR", "ERR");
  const auto events = device_b.events("QP_ACCESS_ERR", std::chrono::seconds(3));
  notes.expect("event at the responder", "QP_ACCESS_ERR", events.empty() ? "none" : events.back());
}

void out_of_bounds(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  one_bad_of_three(pair, notes, {.bytes = 64, .remote_offset = (1 << 20) - 63}, "REM_ACCESS_ERR", "ERR");
}

void no_write_access(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  Pair pair(device_a, device_b, {}, options);
  one_bad_of_three(pair, notes, {.bytes = 64}, "REM_ACCESS_ERR", "ERR");
}

void no_write_access_of_the_qp(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.qp_access = IBV_ACCESS_REMOTE_READ;
  Pair pair(device_a, device_b, {}, options);
  // IBTA volume 1, table 58: an opcode that the queue pair does not allow is an invalid request.
  one_bad_of_three(pair, notes, {.bytes = 64}, "REM_INV_REQ_ERR|REM_ACCESS_ERR", "ERR");
}

void read_of_deregistered(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  std::vector<char> memory(4096);
  ibv_mr* region =
      ibv_reg_mr(pair.b.pd(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  require(region != nullptr, "ibv_reg_mr");
  const uint32_t key = region->rkey;
  notes.expect("ibv_dereg_mr", "0", errno_name(ibv_dereg_mr(region)));
  one_bad_of_three(pair, notes, {.opcode = IBV_WR_RDMA_READ, .bytes = 64, .rkey = key}, "REM_ACCESS_ERR",
                   "ERR");
}

void bad_lkey(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  one_bad_of_three(pair, notes, {.bytes = 64, .lkey = pair.a.mr()->lkey ^ 0x5a00}, "LOC_PROT_ERR", "RTS");
}

void too_long_for_the_receive(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.b.post_recv(7, 0, 16) == 0, "post_recv");
  one_bad_of_three(pair, notes, {.opcode = IBV_WR_SEND, .bytes = 64}, "REM_INV_REQ_ERR", "ERR");
  const auto received = pair.b.poll(std::chrono::seconds(10));
  notes.expect("receiver's status", "LOC_LEN_ERR", received ? status_name(received->status) : "none");
}

void receive_with_bad_lkey(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  ibv_sge element{pair.b.address(), 64, pair.b.mr()->lkey ^ 0x5a00};
  ibv_recv_wr request{};
  request.wr_id = 7;
  request.sg_list = &element;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  require(ibv_post_recv(pair.b.qp(), &request, &bad) == 0, "post_recv");
  one_bad_of_three(pair, notes, {.opcode = IBV_WR_SEND, .bytes = 64}, "REM_OP_ERR", "ERR");
  const auto received = pair.b.poll(std::chrono::seconds(10));
  notes.expect("receiver's status", "LOC_PROT_ERR", received ? status_name(received->status) : "none");
}

void rnr(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.rnr_retry = 0});
  one_bad_of_three(pair, notes, {.opcode = IBV_WR_SEND, .bytes = 64}, "RNR_RETRY_EXC_ERR", "RTS");
}

void rnr_waits_for_a_receive(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.rnr_retry = 7});
  require(pair.a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 64}) == 0, "post");
  notes.expect_true("nothing completes without a receive (300 ms)",
                    !pair.a.poll(std::chrono::milliseconds(300)));
  require(pair.b.post_recv(2) == 0, "post_recv");
  notes.expect("then", "SUCCESS", status_name(pair.a.wait().status));
}

void retry_exceeded(Device& device_a, Device& device_b, Notes& notes) {
  // 4.096 us * 2^14 * 4: 268 ms at least; the specification lets a device take up to four times its timeout.
  Pair pair(device_a, device_b, {.timeout = 14, .retry = 3});
  pair.b.destroy_qp();
  const auto start = Clock::now();
  require(pair.a.post({.id = 1, .bytes = 64}) == 0, "post");
  require(pair.a.post({.id = 2, .bytes = 64}) == 0, "post");
  const ibv_wc first = pair.a.wait();
  const double took_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const ibv_wc second = pair.a.wait();
  notes.expect("status", "RETRY_EXC_ERR", status_name(first.status));
  notes.expect("the one behind it", "WR_FLUSH_ERR", status_name(second.status));
  notes.expect_true("not before (retry_cnt + 1) timeouts", took_ms >= 0.95 * 268.4);
  // retry_cnt timeouts are the least that any reading of the specification allows.
  notes.expect_true("not before retry_cnt timeouts", took_ms >= 0.95 * 201.3);
  notes.expect("state", "ERR", state_name(pair.a.state()));
}

void retries_save_a_short_outage_of_the_peer(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions patient;
  patient.timeout = 14, patient.retry = 6;
  Endpoint a(device_a, patient), b(device_b);
  require(a.to_init() == 0 && b.to_init() == 0 && a.to_rtr(b) == 0 && a.to_rts() == 0, "connect");
  require(a.post({.id = 1, .bytes = 64}) == 0, "post");  // the peer is in INIT: it drops what comes
  notes.expect_true("nothing yet (100 ms)", !a.poll(std::chrono::milliseconds(100)));
  require(b.to_rtr(a) == 0, "RTR of the peer");
  notes.expect("once the peer is in RTR", "SUCCESS", status_name(a.wait().status));
}

void remote_qp_in_error(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.timeout = 12, .retry = 2});
  require(pair.b.to(IBV_QPS_ERR) == 0, "ERR of the peer");
  require(pair.a.post({.id = 1, .bytes = 64}) == 0, "post");
  notes.expect("status at the other side", "RETRY_EXC_ERR", status_name(pair.a.wait().status));
}

void new_life_after_error(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.a.post({.id = 1, .bytes = 8, .lkey = pair.a.mr()->lkey ^ 0x5a00}) == 0, "post");
  pair.a.wait();
  for (Endpoint* end : {&pair.a, &pair.b}) {
    const int rc = end->to(IBV_QPS_RESET);
    if (rc != 0) throw Broken("RESET: " + errno_name(rc));
    require(end->to_init() == 0, "INIT");
  }
  require(pair.a.to_rtr(pair.b) == 0 && pair.b.to_rtr(pair.a) == 0 && pair.a.to_rts() == 0 &&
              pair.b.to_rts() == 0,
          "connect again");
  require(pair.a.post({.id = 2, .bytes = 8}) == 0, "post");
  notes.expect("after RESET and a new connection", "SUCCESS", status_name(pair.a.wait().status));
}

}  // namespace

std::vector<Case> error_cases() {
  return {{"errors.bad_rkey", bad_rkey},
          {"errors.out_of_bounds", out_of_bounds},
          {"errors.no_write_access", no_write_access},
          {"errors.no_write_access_of_the_qp", no_write_access_of_the_qp},
          {"errors.read_of_deregistered", read_of_deregistered},
          {"errors.bad_lkey", bad_lkey},
          {"errors.too_long_for_the_receive", too_long_for_the_receive},
          {"errors.receive_with_bad_lkey", receive_with_bad_lkey},
          {"errors.rnr", rnr},
          {"errors.rnr_waits_for_a_receive", rnr_waits_for_a_receive},
          {"errors.retry_exceeded", retry_exceeded},
          {"errors.retries_save_a_short_outage", retries_save_a_short_outage_of_the_peer},
          {"errors.remote_qp_in_error", remote_qp_in_error},
          {"errors.new_life_after_error", new_life_after_error}};
}

}  // namespace r2bench::conformance
