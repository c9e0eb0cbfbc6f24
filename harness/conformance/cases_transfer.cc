// SPDX-License-Identifier: Apache-2.0
// Each opcode: both completions, the data, and the order of what follows each other.
#include <arpa/inet.h>

#include <cstring>

#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

void fill(Endpoint& end, size_t offset, size_t bytes, int seed) {
  for (size_t i = 0; i < bytes; ++i) end.memory()[offset + i] = char(seed + int(i * 7));
}

bool same(Endpoint& a, size_t at_a, Endpoint& b, size_t at_b, size_t bytes) {
  return std::memcmp(a.memory() + at_a, b.memory() + at_b, bytes) == 0;
}

void write(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  for (const size_t bytes : {size_t(1), size_t(4097), size_t(300'000)}) {
    fill(pair.a, 0, bytes, int(bytes));
    require(pair.a.post({.id = bytes, .bytes = bytes, .remote_offset = 3}) == 0, "post");
    const ibv_wc completion = pair.a.wait();
    const std::string size = std::to_string(bytes) + " B: ";
    notes.expect(size + "status", "SUCCESS", status_name(completion.status));
    notes.expect(size + "opcode", "RDMA_WRITE", opcode_name(completion.opcode));
    notes.expect_true(size + "wr_id and qp_num",
                      completion.wr_id == bytes && completion.qp_num == pair.a.qp()->qp_num);
    notes.expect_true(size + "data", same(pair.a, 0, pair.b, 3, bytes));
  }
  notes.expect_true("the target sees no completion", !pair.b.poll(std::chrono::milliseconds(100)));
}

void write_with_imm(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.b.post_recv(5, 0, 0) == 0, "post_recv");
  fill(pair.a, 0, 10'000, 1);
  require(pair.a.post(
              {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 1, .bytes = 10'000, .imm = htonl(0xabcd)}) == 0,
          "post");
  const ibv_wc received = pair.b.wait(), sent = pair.a.wait();
  notes.expect("sender's status", "SUCCESS", status_name(sent.status));
  notes.expect("sender's opcode", "RDMA_WRITE", opcode_name(sent.opcode));
  notes.expect("receiver's status", "SUCCESS", status_name(received.status));
  notes.expect("receiver's opcode", "RECV_RDMA_WITH_IMM", opcode_name(received.opcode));
  notes.expect_true("immediate",
                    (received.wc_flags & IBV_WC_WITH_IMM) != 0 && received.imm_data == htonl(0xabcd));
  notes.expect("byte_len", "10000", std::to_string(received.byte_len));
  notes.expect_true("the data is there at the completion", same(pair.a, 0, pair.b, 0, 10'000));
}

void send(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.b.post_recv(5, 100, 8192) == 0 && pair.b.post_recv(6, 9000, 8192) == 0, "post_recv");
  fill(pair.a, 0, 6000, 2);
  require(pair.a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 6000}) == 0, "post");
  require(pair.a.post({.opcode = IBV_WR_SEND_WITH_IMM, .id = 2, .bytes = 0, .imm = htonl(77)}) == 0, "post");
  const ibv_wc first = pair.b.wait(), second = pair.b.wait(), sent = pair.a.wait();
  notes.expect("sender's status and opcode", "SUCCESS SEND",
               status_name(sent.status) + " " + opcode_name(sent.opcode));
  notes.expect("receiver's status and opcode", "SUCCESS RECV",
               status_name(first.status) + " " + opcode_name(first.opcode));
  notes.expect("byte_len", "6000", std::to_string(first.byte_len));
  notes.expect_true("data", same(pair.a, 0, pair.b, 100, 6000));
  notes.expect_true("receives in order", first.wr_id == 5 && second.wr_id == 6);
  notes.expect("empty message's byte_len", "0", std::to_string(second.byte_len));
  notes.expect_true("its immediate",
                    (second.wc_flags & IBV_WC_WITH_IMM) != 0 && second.imm_data == htonl(77));
}

void read(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  fill(pair.b, 0, 70'000, 3);
  require(pair.a.post({.opcode = IBV_WR_RDMA_READ, .id = 1, .offset = 11, .bytes = 70'000}) == 0, "post");
  const ibv_wc completion = pair.a.wait();
  notes.expect("status and opcode", "SUCCESS RDMA_READ",
               status_name(completion.status) + " " + opcode_name(completion.opcode));
  notes.expect("byte_len", "70000", std::to_string(completion.byte_len));
  notes.expect_true("data", same(pair.a, 11, pair.b, 0, 70'000));
}

void empty_write_and_read(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  // A length of zero checks neither key nor address (IBTA volume 1, 9.7.4.1.5).
  require(pair.a.post({.id = 1, .rkey = 0xdead}) == 0, "post");
  notes.expect("write of nothing with a wrong key", "SUCCESS", status_name(pair.a.wait().status));
  Pair again(device_a, device_b);
  require(again.a.post({.opcode = IBV_WR_RDMA_READ, .id = 2}) == 0, "post");
  notes.expect("read of nothing", "SUCCESS", status_name(again.a.wait().status));
}

void atomics(Device& device_a, Device& device_b, Notes& notes) {
  if (device_a.limits().atomic_cap == IBV_ATOMIC_NONE || device_b.limits().atomic_cap == IBV_ATOMIC_NONE)
    throw NotOffered("atomics");
  EndpointOptions options;
  options.access |= IBV_ACCESS_REMOTE_ATOMIC;
  options.qp_access |= IBV_ACCESS_REMOTE_ATOMIC;
  Pair pair(device_a, device_b, options, options);
  const size_t at = (8 - pair.b.address() % 8) % 8, own = (8 - pair.a.address() % 8) % 8;
  uint64_t value = 40, old = 0;
  std::memcpy(pair.b.memory() + at, &value, 8);
  const auto run = [&](Work work) {
    work.offset = own, work.bytes = 8;
    if (const int rc = pair.a.post(work); rc != 0) return errno_name(rc == -1 ? errno : rc);
    const ibv_wc completion = pair.a.wait();
    std::memcpy(&old, pair.a.memory() + own, 8);
    std::memcpy(&value, pair.b.memory() + at, 8);
    return status_name(completion.status) +
           (completion.status == IBV_WC_SUCCESS ? " " + opcode_name(completion.opcode) : "");
  };
  notes.expect("fetch and add", "SUCCESS FETCH_ADD",
               run({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .remote_offset = at, .compare_add = 2}));
  notes.expect("old and new", "40 42", std::to_string(old) + " " + std::to_string(value));
  notes.expect("compare and swap that fits", "SUCCESS COMP_SWAP",
               run({.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .remote_offset = at, .compare_add = 42, .swap = 7}));
  notes.expect("old and new of it", "42 7", std::to_string(old) + " " + std::to_string(value));
  notes.expect("compare and swap that does not", "SUCCESS COMP_SWAP",
               run({.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .remote_offset = at, .compare_add = 42, .swap = 9}));
  notes.expect("old and new of that", "7 7", std::to_string(old) + " " + std::to_string(value));
  // The responder refuses it (IBTA volume 1, 9.7.4.1.3); a provider may do so before anything is sent.
  notes.expect("unaligned", "REM_INV_REQ_ERR|EINVAL",
               run({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .remote_offset = at + 3, .compare_add = 1}));
}

void completion_order(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  std::string order;
  for (uint64_t id = 0; id < 24; ++id) {
    Work work{.id = id, .bytes = id % 3 == 0 ? size_t(200'000) : size_t(8)};
    if (id % 4 == 2) work.opcode = IBV_WR_RDMA_READ;
    require(pair.a.post(work) == 0, "post");
  }
  bool in_order = true, good = true;
  for (uint64_t id = 0; id < 24; ++id) {
    const ibv_wc completion = pair.a.wait();
    in_order = in_order && completion.wr_id == id;
    good = good && completion.status == IBV_WC_SUCCESS;
  }
  notes.expect_true("writes and reads of mixed sizes complete in posting order", in_order);
  notes.expect_true("all with success", good);
}

void unsignaled(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.send_depth = 8});
  bool good = true;
  for (uint64_t round = 0; round < 20; ++round) {
    for (uint64_t id = 0; id < 7; ++id) good = good && pair.a.post({.id = id, .bytes = 64, .flags = 0}) == 0;
    good = good && pair.a.post({.id = 100 + round, .bytes = 64}) == 0;
    if (!good) break;
    const ibv_wc completion = pair.a.wait();
    good = completion.wr_id == 100 + round && completion.status == IBV_WC_SUCCESS;
  }
  notes.expect_true("one signaled of eight frees the slots of all, and is alone in the queue", good);
}

void last_write_before_send(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  bool good = true;
  for (int round = 1; round <= 50 && good; ++round) {
    fill(pair.a, 0, 20'000, round);
    require(pair.b.post_recv(uint64_t(round), 500'000, 64) == 0, "post_recv");
    require(pair.a.post({.id = 1, .bytes = 20'000, .flags = 0}) == 0, "post");
    require(pair.a.post({.opcode = IBV_WR_SEND, .id = 2, .bytes = 8}) == 0, "post");
    good = pair.b.wait().status == IBV_WC_SUCCESS && same(pair.a, 0, pair.b, 0, 20'000);
    pair.a.wait();
  }
  notes.expect_true("a write is visible when the send after it has arrived (50 rounds)", good);
}

void scatter_gather(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  fill(pair.a, 0, 100, 9);
  fill(pair.a, 5000, 300, 21);
  ibv_sge parts[2] = {{pair.a.address(0), 100, pair.a.mr()->lkey},
                      {pair.a.address(5000), 300, pair.a.mr()->lkey}};
  ibv_send_wr request{};
  request.sg_list = parts;
  request.num_sge = 2;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = pair.b.address(64);
  request.wr.rdma.rkey = pair.b.mr()->rkey;
  ibv_send_wr* bad = nullptr;
  require(ibv_post_send(pair.a.qp(), &request, &bad) == 0, "post");
  notes.expect("status", "SUCCESS", status_name(pair.a.wait().status));
  notes.expect_true("gathered in order",
                    same(pair.a, 0, pair.b, 64, 100) && same(pair.a, 5000, pair.b, 164, 300));
}

void send_with_invalidate(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  require(pair.b.post_recv(1) == 0, "post_recv");
  ibv_sge element{pair.a.address(), 8, pair.a.mr()->lkey};
  ibv_send_wr request{};
  request.sg_list = &element;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.send_flags = IBV_SEND_SIGNALED;
  request.invalidate_rkey = pair.b.mr()->rkey;
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(pair.a.qp(), &request, &bad);
  if (rc == EOPNOTSUPP || rc == EINVAL) throw NotOffered("SEND_WITH_INV");
  // A region of ibv_reg_mr may not be invalidated from afar: the responder refuses.
  const ibv_wc completion = pair.a.wait();
  notes.expect("status", "SUCCESS|REM_INV_REQ_ERR|REM_ACCESS_ERR|REM_OP_ERR", status_name(completion.status));
}

}  // namespace

std::vector<Case> transfer_cases() {
  return {{"transfer.write", write},
          {"transfer.write_with_imm", write_with_imm},
          {"transfer.send", send},
          {"transfer.read", read},
          {"transfer.empty_write_and_read", empty_write_and_read},
          {"transfer.atomics", atomics},
          {"transfer.completion_order", completion_order},
          {"transfer.unsignaled", unsignaled},
          {"transfer.last_write_before_send", last_write_before_send},
          {"transfer.scatter_gather", scatter_gather},
          {"transfer.send_with_invalidate", send_with_invalidate}};
}

}  // namespace r2bench::conformance
