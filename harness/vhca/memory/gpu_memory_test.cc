// SPDX-License-Identifier: Apache-2.0
// GPU memory that NICs read and write, over a stand-in for the CUDA driver whose addresses no CPU can touch.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/vhca/testing/gpu_fixture.h"

namespace vhca::test {
namespace {

class Gpu : public GpuTest {};

TEST_F(Gpu, is_written_and_read_between_processes) {
  between(
      [](const Wire&, Endpoint& a, StandInGpu& gpu, Remote to) {
        GpuBuffer ours(gpu, a);
        ours.fill(3);
        std::size_t at = 0;
        for (const std::size_t bytes : {8ul, 64ul, 1000ul, 65536ul, 1ul << 20}) {
          carry(a, {IBV_WR_RDMA_WRITE, {ours.piece(at, bytes)}, {to.at + at, to.rkey}});
          carry(a, {IBV_WR_RDMA_READ, {ours.piece(at + kBytes / 2, bytes)}, {to.at + at, to.rkey}});
          require_pattern(ours.view + kBytes / 2 + at, at, bytes, 3);
          at += bytes;
        }
        VHCA_REQUIRE_EQ(gpu.count("opens"), 1);  // however often it is used
        VHCA_REQUIRE(gpu.count("copies") >= 10);
      },
      [](const Wire& wire, Endpoint&, StandInGpu& gpu, GpuBuffer& buffer) {
        wire.receive<char>();
        const std::size_t written = 8 + 64 + 1000 + 65536 + (1 << 20);
        require_pattern(buffer.view, 0, written, 3);
        VHCA_REQUIRE_EQ(buffer.view[written], 0);
        VHCA_REQUIRE_EQ(gpu.count("copies"), 0);  // the target's threads do nothing
      });
}

TEST_F(Gpu, meets_host_memory_at_the_other_end) {
  between(
      [](const Wire& wire, Endpoint& a, StandInGpu& gpu, Remote to) {
        const auto host = wire.receive<Remote>();
        for (std::size_t i = 0; i < 300'000; ++i) a.memory()[i] = static_cast<char>(pattern(i, 5));
        carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 300'000)}, {to.at + 64, to.rkey}});
        carry(a, {IBV_WR_RDMA_READ, {host_piece(a, 400'000, 300'000)}, {to.at + 64, to.rkey}});
        require_pattern(a.memory() + 400'000, 0, 300'000, 5);
        GpuBuffer ours(gpu, a);
        ours.fill(9);
        for (const std::size_t bytes : {8ul, 500ul, 600'000ul}) {
          carry(a, {IBV_WR_RDMA_WRITE, {ours.piece(128, bytes)}, {host.at + 3, host.rkey}});
          carry(a, {IBV_WR_RDMA_READ, {ours.piece(kBytes / 2, bytes)}, {host.at + 3, host.rkey}});
          require_pattern(ours.view + kBytes / 2, 128, bytes, 9);
        }
      },
      [](const Wire& wire, Endpoint& b, StandInGpu&, GpuBuffer& buffer) {
        wire.send(Remote{reinterpret_cast<std::uintptr_t>(b.memory()), b.mr()->rkey});
        wire.receive<char>();
        require_pattern(buffer.view + 64, 0, 300'000, 5);
        require_pattern(b.memory() + 3, 128, 600'000, 9);
      });
}

TEST_F(Gpu, is_gathered_from_and_scattered_into_beside_host_memory) {
  between(
      [](const Wire& wire, Endpoint& a, StandInGpu& gpu, Remote to) {
        GpuBuffer ours(gpu, a);
        ours.fill(1);
        for (std::size_t i = 0; i < 100'000; ++i) a.memory()[i] = static_cast<char>(pattern(i, 2));
        for (const std::size_t bytes : {100ul, 50'000ul}) {
          wire.receive<char>();
          carry(a, {IBV_WR_SEND, {ours.piece(0, bytes), host_piece(a, 0, bytes), ours.piece(bytes, bytes)}});
          wire.send('s');
        }
        static_cast<void>(to);
      },
      [](const Wire& wire, Endpoint& b, StandInGpu&, GpuBuffer& buffer) {
        for (const std::size_t bytes : {100ul, 50'000ul}) {
          // The borders of the two lists are in different places.
          post_receive(
              b, {host_piece(b, 0, bytes / 2), buffer.piece(0, 2 * bytes), host_piece(b, 200'000, bytes)});
          wire.send('r');
          b.expect(IBV_WC_SUCCESS, 0);
          require_pattern(b.memory(), 0, bytes / 2, 1);
          require_pattern(buffer.view, bytes / 2, bytes / 2, 1);
          require_pattern(buffer.view + bytes / 2, 0, bytes, 2);
          require_pattern(buffer.view + bytes / 2 + bytes, bytes, bytes / 2, 1);
          require_pattern(b.memory() + 200'000, bytes + bytes / 2, bytes / 2, 1);
          wire.receive<char>();
        }
        wire.receive<char>();
      });
}

TEST_F(Gpu, of_a_process_is_reached_by_that_process) {
  run([] {
    StandInGpu gpu;
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    GpuBuffer from(gpu, a), to(gpu, b, kBytes, 1);
    from.fill(4);
    carry(a, {IBV_WR_RDMA_WRITE, {from.piece(8, 3'000'000)}, {to.at + 16, to.mr->rkey}});
    require_pattern(to.view + 16, 8, 3'000'000, 4);
    carry(a, {IBV_WR_RDMA_READ, {host_piece(a, 0, 500)}, {to.at + 16, to.mr->rkey}});
    require_pattern(a.memory(), 8, 500, 4);
    carry(a, {IBV_WR_RDMA_WRITE,
              {from.piece(0, 700)},
              {reinterpret_cast<std::uintptr_t>(b.memory()), b.mr()->rkey}});
    require_pattern(b.memory(), 0, 700, 4);
    VHCA_REQUIRE_EQ(gpu.count("opens"), 0);  // a process cannot open its own
  });
}

TEST_F(Gpu, a_key_ends_where_the_region_ends_and_knows_its_rights) {
  run([] {
    StandInGpu gpu;
    const std::uint64_t at = gpu.allocate(65536);
    const auto failing = [&](Remote offset, int access, ibv_wc_status wanted) {
      Endpoint a({.nic = 0}), b({.nic = 1});
      connect(a, b);
      ibv_mr* mr = ibv_reg_mr(b.pd(), reinterpret_cast<void*>(at + 4096), 8192, access);
      VHCA_REQUIRE(mr != nullptr);
      carry(a, {IBV_WR_RDMA_READ, {host_piece(a, 0, 8192)}, {at + 4096, mr->rkey}});
      post(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, {at + offset.at, mr->rkey}});
      a.expect(wanted, 0);
      ibv_dereg_mr(mr);
    };
    failing({4096 + 8192 - 8, 0}, kAll, IBV_WC_REM_ACCESS_ERR);
    failing({4088, 0}, kAll, IBV_WC_REM_ACCESS_ERR);
    failing({4096, 0}, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_ACCESS_ERR);
  });
}

TEST_F(Gpu, atomic_operations_are_refused) {
  run([] {
    StandInGpu gpu;
    const auto failing = [&](bool target_on_gpu, ibv_wc_status wanted) {
      Endpoint a({.nic = 0}), b({.nic = 1});
      connect(a, b);
      const std::uint64_t at = gpu.allocate(4096);
      ibv_mr* mr = ibv_reg_mr(target_on_gpu ? b.pd() : a.pd(), reinterpret_cast<void*>(at), 4096,
                              kAll | IBV_ACCESS_REMOTE_ATOMIC);
      VHCA_REQUIRE(mr != nullptr);
      if (target_on_gpu)
        post(a, {IBV_WR_ATOMIC_FETCH_AND_ADD, {host_piece(a, 0, 8)}, {at, mr->rkey}});
      else
        post(a, {IBV_WR_ATOMIC_FETCH_AND_ADD,
                 {{at, 8, mr->lkey}},
                 {reinterpret_cast<std::uintptr_t>(b.memory()), b.mr()->rkey}});
      a.expect(wanted, 0);
      VHCA_REQUIRE_EQ(b.word(0), 0u);
      ibv_dereg_mr(mr);
    };
    failing(true, IBV_WC_REM_INV_REQ_ERR);
    failing(false, IBV_WC_LOC_PROT_ERR);
  });
}

TEST_F(Gpu, what_cannot_be_served_is_not_registered) {
  run([] {
    StandInGpu gpu;
    Endpoint a;
    const std::uint64_t at = gpu.allocate(65536);
    const auto refused = [&](std::size_t bytes) {
      errno = 0;
      VHCA_REQUIRE(ibv_reg_mr(a.pd(), reinterpret_cast<void*>(at), bytes, kAll) == nullptr);
      return errno;
    };
    VHCA_REQUIRE_EQ(refused(65537), EOPNOTSUPP);
    gpu.mark(at, false, false);  // as memory of cuMemCreate
    VHCA_REQUIRE_EQ(refused(4096), EOPNOTSUPP);
    gpu.mark(at, true, true);
    VHCA_REQUIRE_EQ(refused(4096), EOPNOTSUPP);
    gpu.mark(at, true, false);
    ibv_mr* mr = ibv_reg_mr(a.pd(), reinterpret_cast<void*>(at), 65536, kAll);
    VHCA_REQUIRE(mr != nullptr && mr->addr == reinterpret_cast<void*>(at) && mr->length == 65536);
    ibv_dereg_mr(mr);
  });
}

TEST_F(Gpu, is_registered_by_descriptor_where_its_address_comes_with_it) {
  between(
      [](const Wire& wire, Endpoint& a, StandInGpu&, Remote) {
        const auto to = wire.receive<Remote>();
        for (std::size_t i = 0; i < 100'000; ++i) a.memory()[i] = static_cast<char>(pattern(i, 8));
        carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 100'000)}, to});
      },
      [](const Wire& wire, Endpoint& b, StandInGpu& gpu, GpuBuffer& buffer) {
        constexpr std::uint64_t kOffset = 5 * 4096 + 64;
        ibv_mr* mr =
            ibv_reg_dmabuf_mr(b.pd(), kOffset, 100'000, buffer.at + kOffset, gpu.descriptor(buffer.at), kAll);
        VHCA_REQUIRE(mr != nullptr && mr->addr == nullptr);
        wire.send(Remote{buffer.at + kOffset, mr->rkey});
        wire.receive<char>();
        require_pattern(buffer.view + kOffset, 0, 100'000, 8);
        VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
        // Beyond the descriptor's end the address does not help.
        VHCA_REQUIRE(ibv_reg_dmabuf_mr(b.pd(), kBytes, 4096, buffer.at, gpu.descriptor(buffer.at), kAll) ==
                     nullptr);
        VHCA_REQUIRE_EQ(errno, EINVAL);
      });
}

TEST_F(Gpu, that_was_freed_is_not_written_through_an_old_mapping) {
  between(
      [](const Wire& wire, Endpoint& a, StandInGpu& gpu, Remote) {
        for (unsigned round = 1; round <= 20; ++round) {
          const auto to = wire.receive<Remote>();
          std::memset(a.memory(), static_cast<int>(round), 4096);
          carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 4096)}, to});
          wire.send('w');
        }
        VHCA_REQUIRE_EQ(gpu.count("opens"), 20);
        VHCA_REQUIRE_EQ(gpu.count("open"), 1);  // those that are gone were closed
      },
      [](const Wire& wire, Endpoint& b, StandInGpu& gpu, GpuBuffer&) {
        for (unsigned round = 1; round <= 20; ++round) {
          const std::uint64_t at = gpu.allocate(4096);
          ibv_mr* mr = ibv_reg_mr(b.pd(), reinterpret_cast<void*>(at), 4096, kAll);
          VHCA_REQUIRE(mr != nullptr);
          wire.send(Remote{at, mr->rkey});
          wire.receive<char>();
          for (int i = 0; i < 4096; ++i) VHCA_REQUIRE_EQ(gpu.view(at)[i], round);
          VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
          gpu.free(at);
        }
        wire.receive<char>();
      });
}

TEST_F(Gpu, what_the_driver_refuses_becomes_the_completion_of_verbs) {
  between(
      [](const Wire&, Endpoint& a, StandInGpu& gpu, Remote to) {
        gpu.fail_copies(700);
        post(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, to});
        a.expect(IBV_WC_REM_ACCESS_ERR, 0);
        Endpoint c({.nic = 0}), d({.nic = 1});
        connect(c, d);
        GpuBuffer ours(gpu, c);
        post(c, {IBV_WR_RDMA_WRITE,
                 {ours.piece(0, 64)},
                 {reinterpret_cast<std::uintptr_t>(d.memory()), d.mr()->rkey}});
        c.expect(IBV_WC_LOC_PROT_ERR, 0);
      },
      [](const Wire& wire, Endpoint& b, StandInGpu&, GpuBuffer&) {
        wire.receive<char>();
        VHCA_REQUIRE_EQ(b.state(), IBV_QPS_ERR);
      });
}

bool has_loaded_cuda() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libcuda") != std::string::npos) return true;
  return false;
}

TEST_F(Gpu, a_program_without_cuda_stays_without_it) {
  Process target(fabric_, "node1", [&](const Wire& wire) {
    StandInGpu gpu;
    VHCA_REQUIRE(has_loaded_cuda());
    Endpoint b({.nic = 1});
    GpuBuffer buffer(gpu, b);
    b.connect_over(wire);
    wire.send(Remote{buffer.at, buffer.mr->rkey});
    wire.receive<char>();
  });
  Process initiator(fabric_, "node0", [&](const Wire& wire) {
    Endpoint a({.nic = 0});
    a.connect_over(wire);
    post(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, wire.receive<Remote>()});
    a.expect(IBV_WC_REM_ACCESS_ERR, 0);
    VHCA_REQUIRE(!has_loaded_cuda());
    wire.send('d');
  });
  introduce(target, initiator);
  initiator.wire().send(target.wire().receive<Remote>());
  EXPECT_EQ(initiator.wait(), 0);
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);
}

TEST_F(Gpu, a_stopped_target_is_written_to) {
  pid_t target_pid = 0;
  Process target(fabric_, "node1", [&](const Wire& wire) {
    StandInGpu gpu;
    Endpoint b({.nic = 1});
    GpuBuffer buffer(gpu, b);
    b.connect_over(wire);
    wire.send(Remote{buffer.at, buffer.mr->rkey});
    wire.receive<char>();
    require_pattern(buffer.view, 0, 200'000, 6);
  });
  Process initiator(fabric_, "node0", [&](const Wire& wire) {
    StandInGpu gpu;
    Endpoint a({.nic = 0});
    a.connect_over(wire);
    GpuBuffer ours(gpu, a);
    ours.fill(6);
    carry(a, {IBV_WR_RDMA_WRITE, {ours.piece(0, 200'000)}, wire.receive<Remote>()});
  });
  introduce(target, initiator);
  const auto to = target.wire().receive<Remote>();
  target_pid = target.pid();
  ::kill(target_pid, SIGSTOP);
  initiator.wire().send(to);
  EXPECT_EQ(initiator.wait(), 0);
  ::kill(target_pid, SIGCONT);
  target.wire().send('e');
  EXPECT_EQ(target.wait(), 0);
}

// Either end is killed in the middle of a stream of transfers; the other goes on, and nothing is left behind.
TEST_F(Gpu, killed_processes_take_nobody_with_them) {
  for (unsigned round = 0; round < 10; ++round) {
    const bool kill_target = round % 2 == 0;
    Process target(fabric_, "node1", [&](const Wire& wire) {
      StandInGpu gpu;
      Endpoint b({.nic = 1});
      GpuBuffer buffer(gpu, b);
      b.connect_over(wire);
      wire.send(Remote{buffer.at, buffer.mr->rkey});
      wire.receive<char>();
    });
    Process initiator(fabric_, "node0", [&](const Wire& wire) {
      StandInGpu gpu;
      Endpoint a({.nic = 0, .timeout = 10, .retry = 1});
      a.connect_over(wire);
      GpuBuffer ours(gpu, a);
      const auto to = wire.receive<Remote>();
      wire.send('b');
      for (;;) {
        post(a, {IBV_WR_RDMA_WRITE, {ours.piece(0, 1 << 20)}, to});
        const ibv_wc wc = a.wait();
        if (wc.status == IBV_WC_SUCCESS) continue;
        VHCA_REQUIRE_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        break;
      }
    });
    introduce(target, initiator);
    initiator.wire().send(target.wire().receive<Remote>());
    initiator.wire().receive<char>();
    ::usleep(2000 + 700 * round);
    (kill_target ? target : initiator).signal(SIGKILL);
    EXPECT_EQ((kill_target ? target : initiator).wait(), 128 + SIGKILL);
    if (!kill_target) target.wire().send('e');
    EXPECT_EQ((kill_target ? initiator : target).wait(), 0);
    EXPECT_EQ(fabric_.usage().memory_regions, 0u);
    EXPECT_EQ(fabric_.usage().queue_pairs, 0u);
  }
}

TEST_F(Gpu, a_forked_child_uses_none_of_its_parents) {
  run([] {
    StandInGpu gpu;
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    GpuBuffer buffer(gpu, b);
    carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, {buffer.at, buffer.mr->rkey}});
    const pid_t child = ::fork();
    if (child == 0) {
      errno = 0;
      ibv_mr* mr = ibv_reg_mr(b.pd(), reinterpret_cast<void*>(buffer.at), 4096, kAll);
      ::_exit(mr == nullptr && errno == ENODEV && ibv_dereg_mr(buffer.mr) == 0 ? 7 : 1);
    }
    int status = 0;
    VHCA_REQUIRE_EQ(::waitpid(child, &status, 0), child);
    VHCA_REQUIRE_EQ(WEXITSTATUS(status), 7);
    std::memset(a.memory(), 0x33, 64);
    carry(a, {IBV_WR_RDMA_WRITE, {host_piece(a, 0, 64)}, {buffer.at, buffer.mr->rkey}});
    VHCA_REQUIRE_EQ(buffer.view[63], 0x33);
  });
}

}  // namespace
}  // namespace vhca::test
