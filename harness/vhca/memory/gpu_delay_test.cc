// SPDX-License-Identifier: Apache-2.0
// Delayed visibility: what a NIC wrote into GPU memory is seen after a READ through that NIC, or late.
#include <gtest/gtest.h>

#include "harness/vhca/testing/gpu_fixture.h"
#include "harness/vhca/testing/shared_page.h"

namespace vhca::test {
namespace {

// One process with a connection on each of two NICs, and GPU memory that both know. `a` writes, the GPU is
// b's: each endpoint's memory region is its NIC's own.
struct TwoNics {
  explicit TwoNics(const char* delay_ms) {
    ::setenv("VHCA_DELAY_VISIBILITY", delay_ms, 1);
    at = gpu.allocate(kBytes);
    view = gpu.view(at);
    for (int nic : {0, 1}) {
      from[nic] = std::make_unique<Endpoint>(Options{.nic = nic});
      to[nic] = std::make_unique<Endpoint>(Options{.nic = nic});
      connect(*from[nic], *to[nic]);
      mr[nic] = ibv_reg_mr(to[nic]->pd(), reinterpret_cast<void*>(at), kBytes, kAll);
      VHCA_REQUIRE(mr[nic] != nullptr);
    }
  }
  ~TwoNics() {
    for (ibv_mr* region : mr) ibv_dereg_mr(region);
  }
  TwoNics(const TwoNics&) = delete;
  TwoNics& operator=(const TwoNics&) = delete;
  void write(int nic, std::size_t offset, std::size_t bytes, int value) {
    std::memset(from[nic]->memory(), value, bytes);
    carry(*from[nic], {IBV_WR_RDMA_WRITE, {host_piece(*from[nic], 0, bytes)}, {at + offset, mr[nic]->rkey}});
  }
  unsigned char flush(int nic, std::size_t offset) {
    carry(*from[nic], {IBV_WR_RDMA_READ, {host_piece(*from[nic], 4096, 1)}, {at + offset, mr[nic]->rkey}});
    return static_cast<unsigned char>(from[nic]->memory()[4096]);
  }
  StandInGpu gpu;
  std::uint64_t at = 0;
  unsigned char* view = nullptr;
  std::unique_ptr<Endpoint> from[2], to[2];
  ibv_mr* mr[2] = {};
};

constexpr const char* kNever = "60000";

class GpuDelay : public GpuTest {};

TEST_F(GpuDelay, is_ended_by_a_read_through_that_nic_alone) {
  run([] {
    TwoNics two(kNever);
    two.write(0, 64, 1000, 7);
    VHCA_REQUIRE_EQ(two.view[64], 0);
    VHCA_REQUIRE_EQ(two.flush(1, 64), 0);  // the other NIC's read does not push them
    VHCA_REQUIRE_EQ(two.view[64], 0);
    VHCA_REQUIRE_EQ(two.flush(0, 100'000), 0);  // of any byte
    VHCA_REQUIRE_EQ(two.view[64], 7);
    VHCA_REQUIRE_EQ(two.view[1063], 7);
    VHCA_REQUIRE_EQ(two.view[1064], 0);
  });
}

TEST_F(GpuDelay, each_nic_holds_its_own_part) {
  run([] {
    TwoNics two(kNever);
    two.write(0, 0, 500, 1);
    two.write(1, 500, 500, 2);
    VHCA_REQUIRE_EQ(two.flush(1, 0), 0);
    VHCA_REQUIRE_EQ(two.view[0], 0);
    VHCA_REQUIRE_EQ(two.view[500], 2);
    VHCA_REQUIRE_EQ(two.flush(0, 0), 1);
    VHCA_REQUIRE_EQ(two.view[499], 1);
  });
}

TEST_F(GpuDelay, ends_by_itself) {
  run([] {
    TwoNics two("300");
    const std::uint64_t begin = now_ns();
    two.write(0, 0, 8, 5);
    const bool at_once = two.view[0] == 5;
    const std::uint64_t looked = now_ns();
    VHCA_REQUIRE(!at_once || looked - begin > 300'000'000);
    VHCA_REQUIRE(eventually([&] { return *const_cast<volatile unsigned char*>(two.view) == 5; }));
    VHCA_REQUIRE(now_ns() - begin >= 300'000'000);
  });
}

TEST_F(GpuDelay, never_puts_older_bytes_over_newer_ones) {
  run([] {
    TwoNics two(kNever);
    two.write(0, 0, 1000, 1);
    two.write(0, 5000, 8, 3);
    two.write(1, 500, 1000, 2);
    VHCA_REQUIRE_EQ(two.flush(1, 500), 2);
    VHCA_REQUIRE_EQ(two.view[999], 2);
    VHCA_REQUIRE_EQ(two.view[5000], 0);
    VHCA_REQUIRE_EQ(two.flush(0, 0), 1);
    VHCA_REQUIRE_EQ(two.view[999], 2);
    VHCA_REQUIRE_EQ(two.view[499], 1);
    VHCA_REQUIRE_EQ(two.view[5000], 3);
  });
}

TEST_F(GpuDelay, ends_with_the_region) {
  run([] {
    StandInGpu gpu;
    std::uint64_t at = 0;
    unsigned char* view = nullptr;
    {
      TwoNics two(kNever);
      at = two.at;
      view = two.view;
      two.write(0, 0, 100, 9);
      VHCA_REQUIRE_EQ(view[0], 0);
    }
    VHCA_REQUIRE_EQ(view[0], 9);
    gpu.free(at);
  });
}

TEST_F(GpuDelay, holds_for_sends_and_for_what_a_read_brings) {
  run([] {
    TwoNics two(kNever);
    std::memset(two.from[0]->memory(), 4, 64);
    post_receive(*two.to[0], {{two.at, 64, two.mr[0]->lkey}});
    carry(*two.from[0], {IBV_WR_SEND, {host_piece(*two.from[0], 0, 64)}});
    two.to[0]->expect(IBV_WC_SUCCESS, 0);
    carry(*two.to[0], {IBV_WR_RDMA_READ,
                       {{two.at + 4096, 64, two.mr[0]->lkey}},
                       {reinterpret_cast<std::uintptr_t>(two.from[0]->memory()), two.from[0]->mr()->rkey}});
    VHCA_REQUIRE_EQ(two.view[0], 0);
    VHCA_REQUIRE_EQ(two.view[4096], 0);
    two.flush(0, 0);
    VHCA_REQUIRE_EQ(two.view[0], 4);
    VHCA_REQUIRE_EQ(two.view[4096], 4);
  });
}

TEST_F(GpuDelay, more_than_can_wait_is_completed_later) {
  run([] {
    TwoNics two(kNever);
    Endpoint& from = *two.from[0];
    Endpoint& other = *two.from[1];
    for (int i = 0; i < 510; ++i) two.write(0, static_cast<std::size_t>(i) * 8, 8, 1);
    post(from, {IBV_WR_RDMA_WRITE, {host_piece(from, 0, 8)}, {two.at + 510 * 8, two.mr[0]->rkey}});
    for (int i = 0; i < 100; ++i) VHCA_REQUIRE(from.nothing_to_poll());
    static_cast<void>(other);
    // A second connection of that NIC flushes; the first one's send queue is in order.
    Endpoint c({.nic = 0}), d({.nic = 0, .context = two.to[0]->context()});
    connect(c, d);
    ibv_mr* mr = ibv_reg_mr(d.pd(), reinterpret_cast<void*>(two.at), kBytes, kAll);
    VHCA_REQUIRE(mr != nullptr);
    carry(c, {IBV_WR_RDMA_READ, {host_piece(c, 0, 1)}, {two.at, mr->rkey}});
    from.expect(IBV_WC_SUCCESS, 0);
    VHCA_REQUIRE_EQ(two.view[509 * 8], 1);
    ibv_dereg_mr(mr);
  });
}

TEST_F(GpuDelay, another_process_s_read_flushes_and_finds_the_new_bytes) {
  ::setenv("VHCA_DELAY_VISIBILITY", kNever, 1);
  between(
      [](const Wire& wire, Endpoint& a, StandInGpu& gpu, Remote to) {
        GpuBuffer ours(gpu, a);
        ours.fill(3);
        carry(a, {IBV_WR_RDMA_WRITE, {ours.piece(0, 700'000)}, to});
        wire.send('w');
        wire.receive<char>();
        carry(a, {IBV_WR_RDMA_READ, {host_piece(a, 0, 500'000)}, to});
        require_pattern(a.memory(), 0, 500'000, 3);
      },
      [](const Wire& wire, Endpoint&, StandInGpu&, GpuBuffer& buffer) {
        wire.receive<char>();
        VHCA_REQUIRE_EQ(buffer.view[0] | buffer.view[1] | buffer.view[699'999], 0);
        wire.send('r');
        wire.receive<char>();
        require_pattern(buffer.view, 0, 700'000, 3);
      });
  ::unsetenv("VHCA_DELAY_VISIBILITY");
}

TEST_F(GpuDelay, what_was_complete_becomes_visible_though_its_writer_was_killed) {
  ::setenv("VHCA_DELAY_VISIBILITY", "50", 1);
  Process target(fabric_, "node1", [&](const Wire& wire) {
    StandInGpu gpu;
    Endpoint b({.nic = 1});
    GpuBuffer buffer(gpu, b);
    b.connect_over(wire);
    wire.send(Remote{buffer.at, buffer.mr->rkey});
    wire.receive<char>();
    VHCA_REQUIRE(eventually([&] { return *const_cast<volatile unsigned char*>(buffer.view) == 0x42; }));
  });
  Process initiator(fabric_, "node0", [&](const Wire& wire) {
    Endpoint a({.nic = 0});
    a.connect_over(wire);
    std::memset(a.memory(), 0x42, 64);
    carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, wire.receive<Remote>()});
    ::raise(SIGKILL);
  });
  introduce(target, initiator);
  initiator.wire().send(target.wire().receive<Remote>());
  EXPECT_EQ(initiator.wait(), 128 + SIGKILL);
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(fabric_.usage().arena_bytes, 0u);
  ::unsetenv("VHCA_DELAY_VISIBILITY");
}

TEST_F(GpuDelay, that_is_no_time_is_an_error) {
  for (const char* bad : {"", "0", "-1", "10 ms", "60001"})
    run([bad] {
      ::setenv("VHCA_DELAY_VISIBILITY", bad, 1);
      StandInGpu gpu;
      Endpoint a;
      errno = 0;
      VHCA_REQUIRE(ibv_reg_mr(a.pd(), reinterpret_cast<void*>(gpu.allocate(4096)), 4096, kAll) == nullptr);
      VHCA_REQUIRE_EQ(errno, EINVAL);
    });
}

}  // namespace
}  // namespace vhca::test
