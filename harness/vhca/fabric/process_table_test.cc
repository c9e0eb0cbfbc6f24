// SPDX-License-Identifier: Apache-2.0
// Reclaiming what a dead process has left, by several at once: one of them is held up between its look and
// its step, while another one does the work and a living process takes the slot.
#include "harness/vhca/testing/pause_at.h"

#include "process_table.cc"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <new>

namespace vhca {
namespace {

class ProcessTable : public ::testing::Test {
 protected:
  ProcessTable() {
    void* memory = ::mmap(nullptr, kFabricBytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    fabric_ = static_cast<Fabric*>(memory);
    fabric_->port_count = 1;
    init_server(fabric_->ports[0].tx, 1'000'000'000, 0);
    init_server(fabric_->ports[0].rx, 1'000'000'000, 0);
  }
  ~ProcessTable() override { ::munmap(fabric_, kFabricBytes); }

  // In a process of its own, which ends after it without a word.
  template <typename F>
  void in_another_process(F&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      body();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
  }
  ProcessId enter() { return register_process(*fabric_, 0, kNoMemoryNode, &beacon_); }
  void make_region(ProcessId owner, std::uint32_t key) {
    ProcessId nobody = 0;
    ASSERT_TRUE(region().owner.compare_exchange_strong(nobody, owner));
    region().key.store(key);
  }
  void make_queue_pair(ProcessId owner, std::uint32_t number) {
    ProcessId nobody = 0;
    ASSERT_TRUE(queue_pair().owner.compare_exchange_strong(nobody, owner));
    queue_pair().number.store(number);
  }
  MrSlot& region() {
    raise_mark(fabric_->memory_regions.used_slots, 1);
    return fabric_->memory_regions[0];
  }
  QpSlot& queue_pair() {
    raise_mark(fabric_->queue_pairs.used_slots, 1);
    return fabric_->queue_pairs[0];
  }

  Fabric* fabric_;
  std::uint64_t beacon_ = 1;
};

TEST_F(ProcessTable, a_late_reclaimer_leaves_the_key_of_the_next_owner) {
  in_another_process([&] { make_region(enter(), 7); });
  ProcessId living = 0;
  test::at_next("key_seen", [&] {
    living = enter();  // reclaims the dead one first
    make_region(living, 8);
  });
  reclaim_dead_processes(*fabric_);
  ASSERT_NE(living, 0u);
  EXPECT_EQ(region().owner.load(), living);
  EXPECT_EQ(region().key.load(), 8u);
}

// Held up elsewhere: before it knows whose the slot is, between its look at the key and that at the owner,
// and before it gives the slot of the region back.
TEST_F(ProcessTable, a_reclaimer_that_is_late_anywhere_leaves_the_region_of_the_next_owner) {
  for (const char* point : {"found_dead", "word_seen", "owner_seen"}) {
    in_another_process([&] { make_region(enter(), 7); });
    ProcessId living = 0;
    test::at_next(point, [&] {
      living = enter();
      make_region(living, 8);
    });
    reclaim_dead_processes(*fabric_);
    ASSERT_NE(living, 0u) << point;
    EXPECT_EQ(region().owner.load(), living) << point;
    EXPECT_EQ(region().key.load(), 8u) << point;
    unregister_process(*fabric_, living);
    EXPECT_EQ(region().owner.load(), 0u) << point;
  }
}

TEST_F(ProcessTable, a_late_reclaimer_leaves_the_number_of_the_next_owner) {
  in_another_process([&] { make_queue_pair(enter(), 7); });
  ProcessId living = 0;
  test::at_next("number_seen", [&] {
    living = enter();
    make_queue_pair(living, 8);
  });
  reclaim_dead_processes(*fabric_);
  ASSERT_NE(living, 0u);
  EXPECT_EQ(queue_pair().owner.load(), living);
  EXPECT_EQ(queue_pair().number.load(), 8u);
}

TEST_F(ProcessTable, a_late_reclaimer_leaves_the_start_time_of_the_next_process) {
  ProcessId dead = 0;
  in_another_process([&] { enter(); });
  dead = fabric_->processes[0].id.load();
  ASSERT_NE(dead, 0u);
  ProcessId living = 0;
  test::at_next("property_released", [&] { living = enter(); });
  reclaim_dead_processes(*fabric_);
  ASSERT_EQ(slot_of_process(living), slot_of_process(dead));
  const ProcessSlot& slot = fabric_->processes[slot_of_process(living)];
  EXPECT_EQ(start_time_of(slot, slot.claim.load()), process_start_time(::getpid()).value());
  EXPECT_EQ(process_liveness(*fabric_, living), Liveness::kAlive);
  EXPECT_EQ(process_liveness(*fabric_, dead), Liveness::kDead);
}

TEST_F(ProcessTable, the_start_time_of_the_last_process_is_not_that_of_one_that_has_just_claimed_the_slot) {
  in_another_process([&] { enter(); });
  ProcessSlot& slot = fabric_->processes[0];
  reclaim_dead_processes(*fabric_);
  ASSERT_EQ(slot.claim.load(), 0u);
  // As register_process does, up to the claim.
  const std::uint32_t generation = slot.generation.fetch_add(1) + 1;
  const std::uint64_t claim = static_cast<std::uint64_t>(::getpid()) << 32 | (generation << 1 | 1);
  slot.claim.store(claim);
  EXPECT_EQ(start_time_of(slot, claim), 0u);
  reclaim_dead_processes(*fabric_);
  EXPECT_EQ(slot.claim.load(), claim);
}

TEST_F(ProcessTable, the_flows_of_a_dead_process_are_found_after_a_reclaimer_was_killed) {
  for (const char* point : {"number_seen", "number_gone", "property_released"}) {
    in_another_process([&] {
      make_queue_pair(enter(), 7);
      open_flow(fabric_->ports[0].tx, 7);
      open_flow(fabric_->ports[0].rx, 7);
    });
    ASSERT_NE(fabric_->ports[0].tx.flow_owner[0].load(), 0u);
    in_another_process([&] {
      test::at_next(point, [] { ::_exit(0); });
      reclaim_dead_processes(*fabric_);
      ::_exit(1);
    });
    reclaim_dead_processes(*fabric_);
    EXPECT_EQ(queue_pair().owner.load(), 0u) << point;
    EXPECT_EQ(fabric_->ports[0].tx.flow_owner[0].load(), 0u) << point;
    EXPECT_EQ(fabric_->ports[0].rx.flow_owner[0].load(), 0u) << point;
  }
}

}  // namespace
}  // namespace vhca
