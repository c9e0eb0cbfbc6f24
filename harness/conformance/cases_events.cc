// SPDX-License-Identifier: Apache-2.0
// Completion channels and async events.
#include <poll.h>

#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

bool readable(const ibv_comp_channel* channel, int milliseconds) {
  pollfd wait{channel->fd, POLLIN, 0};
  return ::poll(&wait, 1, milliseconds) > 0 && (wait.revents & POLLIN) != 0;
}

/// Takes the event that waits; whether it is the endpoint's.
bool take_event(Endpoint& end) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  require(ibv_get_cq_event(end.channel(), &cq, &context) == 0, "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  return cq == end.cq() && context == &end;
}

constexpr int kSoonMs = 20'000, kNotNowMs = 200;

void channel(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.channel = true});
  require(pair.a.post({.id = 1, .bytes = 8}) == 0, "post");
  require(pair.a.wait().status == IBV_WC_SUCCESS, "write");
  notes.expect_true("no event for a queue that was not armed", !readable(pair.a.channel(), kNotNowMs));
  notes.expect("ibv_req_notify_cq", "0", errno_name(ibv_req_notify_cq(pair.a.cq(), 0)));
  notes.expect_true("none before a completion", !readable(pair.a.channel(), kNotNowMs));
  require(pair.a.post({.id = 2, .bytes = 8}) == 0, "post");
  notes.expect_true("one with the completion", readable(pair.a.channel(), kSoonMs));
  notes.expect_true("of this queue and its context", take_event(pair.a));
  require(pair.a.wait().status == IBV_WC_SUCCESS, "write");
  require(pair.a.post({.id = 3, .bytes = 8}) == 0, "post");
  require(pair.a.wait().status == IBV_WC_SUCCESS, "write");
  notes.expect_true("one request gives one event", !readable(pair.a.channel(), kNotNowMs));
}

void solicited(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {}, {.channel = true});
  require(pair.b.post_recv(1) == 0 && pair.b.post_recv(2) == 0, "post_recv");
  notes.expect("ibv_req_notify_cq", "0", errno_name(ibv_req_notify_cq(pair.b.cq(), 1)));
  require(pair.a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8}) == 0, "post");
  require(pair.a.wait().status == IBV_WC_SUCCESS, "send");
  notes.expect_true("no event without IBV_SEND_SOLICITED", !readable(pair.b.channel(), kNotNowMs));
  require(
      pair.a.post(
          {.opcode = IBV_WR_SEND, .id = 2, .bytes = 8, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED}) == 0,
      "post");
  notes.expect_true("one with it", readable(pair.b.channel(), kSoonMs));
  if (readable(pair.b.channel(), 0)) take_event(pair.b);
}

void error_is_solicited(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.channel = true});
  require(pair.a.post_recv(1) == 0, "post_recv");
  require(ibv_req_notify_cq(pair.a.cq(), 1) == 0, "ibv_req_notify_cq");
  require(pair.a.to(IBV_QPS_ERR) == 0, "ERR");
  // IBTA volume 1, 11.4.2.2: a completion in error counts as solicited.
  notes.expect_true("an event for a flush", readable(pair.a.channel(), 2000));
  if (readable(pair.a.channel(), 0)) take_event(pair.a);
}

void cq_overrun(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions small;
  small.cq_depth = 4;
  small.send_depth = 200;
  Pair pair(device_a, device_b, small);
  device_a.events();
  const int room = pair.a.cq()->cqe;
  if (room >= 200) throw NotOffered("a small completion queue");
  for (int i = 0; i <= room + 8; ++i)
    if (pair.a.post({.id = uint64_t(i), .bytes = 8}) != 0) break;
  const auto events = device_a.events("CQ_ERR", std::chrono::seconds(5));
  notes.expect("event", "CQ_ERR", events.empty() ? "none" : events.back());
}

void communication_established(Device& device_a, Device& device_b, Notes& notes) {
  Endpoint a(device_a), b(device_b);
  device_b.events();
  require(a.to_init() == 0 && b.to_init() == 0 && b.to_rtr(a) == 0 && a.to_rtr(b) == 0 && a.to_rts() == 0,
          "connect");
  require(b.post_recv(1) == 0, "post_recv");
  require(a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8}) == 0, "post");
  require(a.wait().status == IBV_WC_SUCCESS, "send");
  const auto events = device_b.events("COMM_EST", std::chrono::milliseconds(500));
  notes.expect("a message in RTR", "COMM_EST", events.empty() ? "none" : events.back());
}

}  // namespace

std::vector<Case> event_cases() {
  return {{"events.channel", channel},
          {"events.solicited", solicited},
          {"events.error_is_solicited", error_is_solicited},
          {"events.cq_overrun", cq_overrun},
          {"events.communication_established", communication_established}};
}

}  // namespace r2bench::conformance
