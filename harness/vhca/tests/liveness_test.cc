// SPDX-License-Identifier: Apache-2.0
// Processes that are stopped, killed, forked: the others go on, within bounds, and nothing is left behind.
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

std::size_t files_in_dev_shm() {
  std::size_t count = 0;
  if (DIR* folder = ::opendir("/dev/shm")) {
    while (::readdir(folder)) ++count;
    ::closedir(folder);
  }
  return count;
}

void serve_until_killed(const Wire& wire, Options options = {}) {
  Endpoint me(options);
  for (std::uint64_t i = 0; i < 100; ++i) me.post_recv(i, 0, 4096);
  me.connect_over(wire);
  wire.send('s');
  for (;;) ::pause();
}

TEST(Liveness, a_stopped_target_still_answers_read_write_and_send) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) { serve_until_killed(wire); });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    wire.receive<char>();  // the target is stopped now
    const std::uint64_t start = now_ns();
    std::strcpy(me.memory(), "written while stopped");
    me.post({.id = 1, .bytes = 64, .remote_offset = 512});
    me.expect(IBV_WC_SUCCESS, 1);
    me.post({.opcode = IBV_WR_RDMA_READ, .id = 2, .offset = 1024, .bytes = 64, .remote_offset = 512});
    me.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE(std::strcmp(me.memory() + 1024, "written while stopped") == 0);
    for (std::uint64_t i = 0; i < 50; ++i) {
      me.post({.opcode = i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, .id = i, .bytes = 100});
      me.expect(IBV_WC_SUCCESS, i);
    }
    VHCA_REQUIRE(now_ns() - start < 2'000'000'000);
  });
  introduce(target, initiator);
  target.wire().receive<char>();
  target.signal(SIGSTOP);
  int status;
  ASSERT_EQ(::waitpid(target.pid(), &status, WUNTRACED), target.pid());
  initiator.wire().send('g');
  EXPECT_EQ(initiator.wait(), 0);
}

TEST(Liveness, a_killed_peer_ends_in_retry_exhaustion_for_every_operation) {
  const auto fabric = make_fabric(2, 1);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}}) {
      Process target(fabric, "node1", [](const Wire& wire) { serve_until_killed(wire); });
      Process initiator(fabric, "node0", [&](const Wire& wire) {
        Endpoint me({.timeout = 10, .retry = 2});
        me.connect_over(wire);
        wire.receive<char>();
        me.post({.opcode = opcode, .id = 1, .bytes = bytes});
        me.expect(IBV_WC_RETRY_EXC_ERR, 1);
      });
      introduce(target, initiator);
      target.wire().receive<char>();
      target.signal(SIGKILL);
      target.wait();
      initiator.wire().send('g');
      EXPECT_EQ(initiator.wait(), 0) << "opcode " << opcode << ", " << bytes << " bytes";
    }
  }
}

// Same pid, same start time, other memory.
TEST(Liveness, a_process_that_executes_another_program_is_dead_at_once) {
  const auto fabric = make_fabric(2, 1);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
    Process target(fabric, "node1", [](const Wire& wire) {
      Endpoint me;
      for (std::uint64_t i = 0; i < 100; ++i) me.post_recv(i, 0, 4096);
      me.connect_over(wire);
      wire.receive<char>();
      ::execl("/bin/sleep", "sleep", "1000", nullptr);
    });
    Process initiator(fabric, "node0", [&](const Wire& wire) {
      Endpoint me({.timeout = 10, .retry = 2});
      me.connect_over(wire);
      me.post({.opcode = opcode, .id = 1, .bytes = 4096});
      me.expect(IBV_WC_SUCCESS, 1);
      wire.send('d');
      wire.receive<char>();
      me.post({.opcode = opcode, .id = 2, .bytes = 4096});
      me.expect(IBV_WC_RETRY_EXC_ERR, 2);
      wire.send('d');
      wire.receive<char>();
    });
    introduce(target, initiator);
    initiator.wire().receive<char>();
    target.wire().send('x');
    char end;
    ASSERT_EQ(::recv(target.wire().fd(), &end, 1, 0), 0);  // closed by exec
    initiator.wire().send('g');
    ASSERT_EQ(::recv(initiator.wire().fd(), &end, 1, 0), 1) << "opcode " << opcode;
    EXPECT_EQ(fabric.usage().processes, 1u);
    EXPECT_EQ(fabric.usage().queue_pairs, 1u);
    initiator.wire().send('g');
    EXPECT_EQ(initiator.wait(), 0);
  }
}

// A thread of the parent may be posting at the moment of the fork: its locks are taken for ever in the child.
TEST(Liveness, a_forked_child_is_told_so_by_a_post_that_waits_for_no_lock) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not allow a fork under a lock that another thread holds";
#endif
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0, .send_ops = IBV_QP_EX_WITH_RDMA_WRITE}), b({.nic = 1});
    connect(a, b);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a.qp());
    ibv_wr_start(ex);  // takes the lock of the send queue
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      int code = a.try_post({.id = 1, .bytes = 8}) == ENODEV && a.try_post_recv(1, 0, 8) == ENODEV ? 0 : 1;
      ibv_wr_start(ex);
      if (ibv_wr_complete(ex) != ENODEV) code = 2;
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ibv_wr_abort(ex);  // first: without it nothing can be destroyed
    VHCA_REQUIRE_EQ(status, 0);
    a.post({.id = 3, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 3);
  });
  EXPECT_EQ(process.wait(), 0);
}

// What it asks of its parent's objects changes nothing for the parent, and waits for no lock either: here the
// child has the locks of a thread that polls.
TEST(Liveness, a_forked_child_leaves_its_parents_queues_alone) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not allow a fork under a lock that another thread holds";
#endif
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0, .walked_fields = IBV_WC_EX_WITH_BYTE_LEN, .channel = true}), b({.nic = 1});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    ibv_poll_cq_attr attributes{};
    while (ibv_start_poll(a.walked_cq(), &attributes) != 0) {
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      int code = 0;
      if (ibv_start_poll(a.walked_cq(), &attributes) != ENODEV) code = 1;
      if (ibv_resize_cq(a.cq(), 8) != ENODEV) code = 2;
      if (ibv_req_notify_cq(a.cq(), 0) != ENODEV) code = 3;
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      if (ibv_query_qp(a.qp(), &attr, IBV_QP_STATE, &init) != ENODEV) code = 4;
      if (ibv_alloc_pd(a.context()) != nullptr || errno != ENODEV) code = 5;
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ibv_end_poll(a.walked_cq());
    VHCA_REQUIRE_EQ(status, 0);
    for (std::uint64_t i = 0; i < 64; ++i) a.post({.id = i, .bytes = 8});
    for (std::uint64_t i = 0; i < 64; ++i) a.expect(IBV_WC_SUCCESS, i);
    pollfd fd{a.channel()->fd, POLLIN, 0};
    VHCA_REQUIRE_EQ(::poll(&fd, 1, 0), 0);
  });
  EXPECT_EQ(process.wait(), 0);
}

// The same of receive queues, whose lock a thread has for moments only: of many forks some come in between.
TEST(Liveness, a_forked_child_is_told_so_by_a_receive_that_waits_for_no_lock) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not allow a fork under a lock that another thread holds";
#endif
  for (const std::uint32_t shared : {0u, 64u}) {
    const auto fabric = make_fabric(1, 2);
    Process process(fabric, "node0", [&](const Wire&) {
      Endpoint a({.nic = 0, .srq_wr = shared}), b({.nic = 1});
      connect(a, b);
      while (a.try_post_recv(1, 0, 8) == 0) {
      }
      std::atomic<bool> end{false};
      std::thread poster([&] {
        while (!end) a.try_post_recv(1, 0, 8);  // the queue is full
      });
      int status = 0;
      for (int i = 0; i < 200 && status == 0; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(5);
          ::_exit(a.try_post_recv(1, 0, 8) == ENODEV ? 0 : 1);
        }
        ::waitpid(child, &status, 0);
      }
      end = true;
      poster.join();
      VHCA_REQUIRE_EQ(status, 0);
    });
    EXPECT_EQ(process.wait(), 0);
  }
}

TEST(Liveness, a_zombie_is_dead) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) { serve_until_killed(wire); });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me({.timeout = 10, .retry = 2});
    me.connect_over(wire);
    wire.receive<char>();
    me.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 1, .bytes = 0});
    me.expect(IBV_WC_RETRY_EXC_ERR, 1);
  });
  introduce(target, initiator);
  target.wire().receive<char>();
  target.signal(SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(target.pid()), &info, WEXITED | WNOWAIT), 0);
  initiator.wire().send('g');
  EXPECT_EQ(initiator.wait(), 0);
}

// The killed ones die at random moments of creating, connecting, transferring and destroying.
TEST(Liveness, kill_in_a_loop_leaves_the_fabric_usable_and_empty) {
  const std::size_t before = files_in_dev_shm();
  {
    const auto fabric = make_fabric(2, 1);
    std::mt19937 random(42);
    for (int round = 0; round < 60; ++round) {
      const auto cycle = [](const Wire& wire) {
        for (;;) {
          Endpoint me({.timeout = 8, .retry = 1});
          for (std::uint64_t i = 0; i < 64; ++i) me.post_recv(i, 0, 4096);
          me.connect_over(wire);
          for (int i = 0; i < 50; ++i) {
            me.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 1, .bytes = 200'000});
            ibv_wc wc = me.wait();
            while (wc.opcode & IBV_WC_RECV && wc.status == IBV_WC_SUCCESS) wc = me.wait();
            if (wc.status != IBV_WC_SUCCESS) return;
          }
          wire.send('d');
          wire.receive<char>();
        }
      };
      const auto body = [&](const Wire& wire) {
        try {
          cycle(wire);
        } catch (const Failure& failure) {
          if (!std::strstr(failure.what(), "wire")) throw;  // the other one is gone
        }
      };
      Process a(fabric, "node0", body), b(fabric, "node1", body);
      Process& victim = round % 2 ? a : b;
      Process& other = round % 2 ? b : a;
      const auto life = std::chrono::microseconds(random() % 20'000);
      const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(life).count());
      try {
        while (now_ns() < end) {
          introduce(a, b);
          for (const Process* p : {&a, &b}) p->wire().receive<char>();
          for (const Process* p : {&a, &b}) p->wire().send('g');
        }
      } catch (const Failure&) {
        // one of them ended by itself: after an error of the other's queue, which is fine
      }
      victim.signal(SIGKILL);
      victim.wait();
      const std::uint64_t killed = now_ns();
      ::shutdown(other.wire().fd(), SHUT_RDWR);
      other.wait();  // an error, or the end of the wire; but never a hang
      EXPECT_LT(now_ns() - killed, 10'000'000'000u);
    }
    const auto usage = fabric.usage();
    EXPECT_EQ(usage.processes, 0u);
    EXPECT_EQ(usage.queue_pairs, 0u);
    EXPECT_EQ(usage.completion_queues, 0u);
    EXPECT_EQ(usage.memory_regions, 0u);
    EXPECT_EQ(usage.arena_bytes, 0u);

    Process last(fabric, "node0", [](const Wire&) {
      Endpoint a, b({.nic = 0});
      connect(a, b);
      a.post({.id = 1, .bytes = 8});
      a.expect(IBV_WC_SUCCESS, 1);
    });
    EXPECT_EQ(last.wait(), 0);
  }
  EXPECT_EQ(files_in_dev_shm(), before);
}

TEST(Liveness, closing_everything_gives_everything_back) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire& wire) {
    for (int i = 0; i < 3; ++i) {
      Endpoint a({.nic = 0}), b({.nic = 1, .channel = true});
      connect(a, b);
    }
    wire.send('c');
    wire.receive<char>();
  });
  process.wire().receive<char>();
  const auto usage = fabric.usage();
  EXPECT_EQ(usage.processes, 0u);
  EXPECT_EQ(usage.queue_pairs + usage.completion_queues + usage.memory_regions, 0u);
  EXPECT_EQ(usage.arena_bytes, 0u);
  process.wire().send('g');
  EXPECT_EQ(process.wait(), 0);
}

// The owner moves its QP to ERR while a remote process writes into it as fast as it can: from then on the
// memory must not change.
TEST(Liveness, nothing_is_placed_after_the_move_to_err_has_returned) {
  const auto fabric = make_fabric(2, 1);
  for (int round = 0; round < 30; ++round) {
    Process target(fabric, "node1", [](const Wire& wire) {
      Endpoint me({.bytes = 8 << 20});
      me.connect_over(wire);
      const std::uint64_t end = now_ns() + 10'000'000'000;
      while (*reinterpret_cast<volatile char*>(me.memory()) == 0) VHCA_REQUIRE(now_ns() < end);
      me.to_error();
      std::vector<char> then(me.memory(), me.memory() + (8 << 20));
      const std::uint64_t until = now_ns() + 5'000'000;
      while (now_ns() < until) ::sched_yield();
      VHCA_REQUIRE(std::memcmp(then.data(), me.memory(), then.size()) == 0);
      wire.send('k');
    });
    Process initiator(fabric, "node0", [](const Wire& wire) {
      Endpoint me({.bytes = 8 << 20, .timeout = 8, .retry = 0});
      me.connect_over(wire);
      for (int value = 1;; ++value) {
        std::memset(me.memory(), value, 8 << 20);
        me.post({.id = 1, .bytes = 8 << 20});
        if (me.wait().status != IBV_WC_SUCCESS) return;
      }
    });
    introduce(target, initiator);
    EXPECT_EQ(target.wait(), 0);
    EXPECT_EQ(initiator.wait(), 0);
  }
}

TEST(Liveness, the_move_to_err_does_not_wait_for_a_stopped_initiator) {
  const auto fabric = make_fabric(2, 1);
  for (int round = 0; round < 10; ++round) {
    Process target(fabric, "node1", [](const Wire& wire) {
      Endpoint me({.bytes = 8 << 20});
      me.connect_over(wire);
      wire.receive<char>();
      const std::uint64_t start = now_ns();
      me.to_error();
      VHCA_REQUIRE(now_ns() - start < 1'000'000'000);
    });
    Process initiator(fabric, "node0", [](const Wire& wire) {
      Endpoint me({.bytes = 8 << 20, .timeout = 8, .retry = 0});
      me.connect_over(wire);
      wire.send('s');
      for (;;) {
        me.post({.id = 1, .bytes = 8 << 20});
        if (me.wait().status != IBV_WC_SUCCESS) return;
      }
    });
    introduce(target, initiator);
    initiator.wire().receive<char>();
    initiator.signal(SIGSTOP);
    int status;
    ASSERT_EQ(::waitpid(initiator.pid(), &status, WUNTRACED), initiator.pid());
    target.wire().send('g');
    EXPECT_EQ(target.wait(), 0);
    initiator.signal(SIGCONT);
    EXPECT_EQ(initiator.wait(), 0);
  }
}

TEST(Liveness, a_forked_child_cannot_use_its_parents_handles_but_can_open_its_own) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no new threads after the fork of a process with several";
#endif
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 0;
      if (a.try_post({.id = 1, .bytes = 8}) != ENODEV) code = 1;
      try {
        Endpoint c({.nic = 0}), d({.nic = 1});
        connect(c, d);
        c.post({.id = 2, .bytes = 8});
        c.expect(IBV_WC_SUCCESS, 2);
      } catch (const std::exception&) {
        code = 2;
      }
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    VHCA_REQUIRE_EQ(status, 0);
    a.post({.id = 3, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 3);
  });
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
