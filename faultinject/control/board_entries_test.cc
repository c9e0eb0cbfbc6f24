// SPDX-License-Identifier: Apache-2.0
// What else stands on the board: claims, addresses, witnesses, processes.
#include "faultinject/control/board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "faultinject/control/testing/board_fixture.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

TEST_F(BoardTest, a_claim_is_given_once_whoever_asks) {
  std::atomic<int> given{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (uint64_t key = 1; key <= 500; key++) given += claim(*board, key);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(given.load(), 500);
}

TEST_F(BoardTest, a_claim_that_finds_the_table_full_is_counted) {
  for (uint64_t key = 1; key <= kMaxClaims; key++) ASSERT_TRUE(claim(*board, key)) << key;
  EXPECT_FALSE(claim(*board, 1));
  EXPECT_EQ(host.witnesses_lost(), 0u);
  EXPECT_FALSE(claim(*board, kMaxClaims + 1));
  EXPECT_FALSE(claim(*board, kMaxClaims + 2));
  EXPECT_EQ(host.witnesses_lost(), 2u);
}

TEST_F(BoardTest, addresses_are_found_by_gid_and_by_lid) {
  uint8_t gid[16] = {0xfe, 0x80, 1}, other[16] = {0xfe, 0x80, 2}, none[16] = {};
  add_address(*board, {1, 1}, 1, 0, gid);
  add_address(*board, {0, 1}, 1, 7, nullptr);
  add_address(*board, {0, 0}, 1, 0, none);
  NicAddress owner{};
  ASSERT_TRUE(find_address(*board, gid, 0, owner));
  EXPECT_EQ(owner.node, 1u);
  EXPECT_EQ(owner.nic, 1u);
  EXPECT_FALSE(find_address(*board, other, 7, owner)) << "a global address is looked up by its GID only";
  ASSERT_TRUE(find_address(*board, nullptr, 7, owner));
  EXPECT_EQ(owner.node, 0u);
  EXPECT_FALSE(find_address(*board, nullptr, 0, owner));
  EXPECT_EQ(board->address_count.load(), 2u);
  add_address(*board, {1, 1}, 1, 0, gid);
  EXPECT_EQ(board->address_count.load(), 2u) << "the same address by a second process";
}

TEST_F(BoardTest, witnesses_come_in_the_order_of_their_time_and_half_written_ones_are_left_out) {
  const uint32_t id = host.arm(spec());
  add_witness(*board, {{id, 1}, 2000, 7, "1", 1, 0, 33, uint32_t(Effect::kWcShown), 12});
  board->witness_count.fetch_add(1);  // a process killed between claim and record
  add_witness(*board, {{id}, 1000, 7, "1", 1, 0, 33, uint32_t(Effect::kQpToErr), 0});
  const std::vector<Witness> all = host.witnesses();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].what, "QP moved to ERR");
  EXPECT_EQ(all[0].round, 0u);
  EXPECT_EQ(all[1].what, "WC 12 shown");
  EXPECT_EQ(all[1].round, 1u);
  EXPECT_EQ(all[1].node, "node1");
  EXPECT_EQ(host.witnesses(id).size(), 2u);
  EXPECT_EQ(host.state(id).witnesses, 2u);
}

TEST_F(BoardTest, what_is_reported_from_outside_has_its_round) {
  const uint32_t id = host.arm(spec());
  host.report(id, 1000, 1, 0, Effect::kKernelLinkDown);
  host.report(id, 2000, 1, 0, Effect::kKernelLinkDown, 2);
  const std::vector<Witness> all = host.witnesses(id);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].round, 0u);
  EXPECT_EQ(all[1].round, 2u);
}

TEST_F(BoardTest, a_dead_process_gives_up_its_place_and_its_doorbell_is_heard_while_it_lives) {
  const pid_t child = fork();
  if (child == 0) _exit(enroll(*board, getpid()) != nullptr ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(host.processes(), 0u);
  ProcessEntry* mine = enroll(*board, getpid());
  EXPECT_EQ(mine, &board->processes[0]);
  EXPECT_EQ(host.processes(), 1u);
  const uint32_t seen = mine->doorbell.load();
  std::thread sleeper([&] { wait_for_ring(*mine, seen, UINT64_MAX); });
  host.arm(spec());
  sleeper.join();
  wait_for_ring(*mine, mine->doorbell.load(), monotonic_ns() + 1000);  // and a deadline ends the sleep
}

TEST_F(BoardTest, a_zombie_is_dead) {
  const pid_t child = fork();
  if (child == 0) _exit(enroll(*board, getpid()) != nullptr ? 0 : 1);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT), 0);  // ended, and not yet waited for
  ASSERT_EQ(kill(child, 0), 0);
  board->owner_pid = child;
  EXPECT_TRUE(owner_is_gone(*board));
  EXPECT_EQ(host.processes(), 0u);
  EXPECT_EQ(enroll(*board, getpid()), &board->processes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(owner_is_gone(*board));
}

TEST_F(BoardTest, a_process_whose_first_thread_has_ended_lives_on_with_the_others) {
  const pid_t child = fork();
  if (child == 0) {
    enroll(*board, getpid());
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // this thread alone
  }
  const std::string file = "/proc/" + std::to_string(child) + "/stat";
  const auto first_thread_is_a_zombie = [&] {
    std::ifstream stat(file);
    const std::string line((std::istreambuf_iterator<char>(stat)), {});
    return line.find(") Z") != std::string::npos;
  };
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!first_thread_is_a_zombie() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_TRUE(first_thread_is_a_zombie());
  board->owner_pid = child;
  EXPECT_FALSE(owner_is_gone(*board));
  EXPECT_EQ(host.processes(), 1u);
  EXPECT_EQ(enroll(*board, getpid()), &board->processes[1]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(owner_is_gone(*board));
}

TEST(BoardHost, limits_are_told) {
  EXPECT_THROW(BoardHost::create({}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{"", 1}}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{std::string(40, 'x'), 1}}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{"node0", 65}}, 1), std::invalid_argument);
}

TEST_F(BoardTest, what_the_host_reports_is_one_record) {
  const uint32_t id = host.arm(spec());
  host.fire(id);
  host.report(id, 1000, 1, 0, Effect::kKernelLinkDown, 0);
  EXPECT_EQ(host.state(id).witnesses, 1u);
  EXPECT_EQ(host.witnesses(id).size(), 1u);
  EXPECT_EQ(host.state(id).t0_ns, 1000u);
}

}  // namespace
}  // namespace faultinject
