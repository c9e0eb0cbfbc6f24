// SPDX-License-Identifier: Apache-2.0
// The table finds what is in it whatever came and went before, while other threads change it.
#include "faultinject/preload/pointer_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace faultinject {
namespace {

struct Thing {
  const void* key = nullptr;
  uint64_t number = 0;
};
using Table = PointerTable<Thing>;

// As from the heap: 16 bytes apart.
const void* address(uint64_t number) { return reinterpret_cast<const void*>(0x10000 + 16 * number); }

void insert(Table& table, uint64_t number) {
  auto thing = std::make_shared<Thing>();
  thing->key = address(number);
  thing->number = number;
  table.insert(std::move(thing));
}

TEST(PointerTable, holds_as_many_as_come) {
  constexpr uint64_t kMany = 100000;
  Table table;
  for (uint64_t i = 0; i < kMany; i++) insert(table, i);
  for (uint64_t i = 0; i < kMany; i++) ASSERT_EQ(table.find(address(i))->number, i);
  EXPECT_EQ(table.find(address(kMany)), nullptr);
}

TEST(PointerTable, forgets_what_is_taken) {
  Table table;
  insert(table, 1);
  EXPECT_EQ(table.take(address(1))->number, 1u);
  EXPECT_EQ(table.find(address(1)), nullptr);
  EXPECT_EQ(table.take(address(1)), nullptr);
  insert(table, 1);
  EXPECT_EQ(table.find(address(1))->number, 1u);
}

TEST(PointerTable, a_newer_entry_takes_the_place_of_one_with_its_key) {
  Table table;
  insert(table, 1);
  auto newer = std::make_shared<Thing>();
  newer->key = address(1);
  newer->number = 2;
  table.insert(newer);
  EXPECT_EQ(table.find(address(1))->number, 2u);
  EXPECT_EQ(table.take(address(1))->number, 2u);
  EXPECT_EQ(table.find(address(1)), nullptr);
}

// A program that makes and destroys queue pairs for a long time, with some alive.
TEST(PointerTable, does_not_fill_up_with_what_has_gone) {
  for (const uint64_t alive : {1u, 50u, 1000u}) {
    SCOPED_TRACE(alive);
    Table table;
    std::deque<uint64_t> present;
    uint64_t taken = 0;
    for (uint64_t i = 0; i < 500000; i++) {
      insert(table, i);
      present.push_back(i);
      if (present.size() <= alive) continue;
      taken += table.take(address(present.front())) != nullptr;
      present.pop_front();
    }
    EXPECT_EQ(taken, 500000 - alive);
    for (const uint64_t each : present) ASSERT_EQ(table.find(address(each))->number, each);
    EXPECT_EQ(table.find(address(500000)), nullptr);
    EXPECT_LE(table.rows(), 16384u);
    EXPECT_LE(table.rehashes(), 20u) << "most rows are freed where they are";
  }
}

TEST(PointerTable, is_read_while_other_threads_change_it) {
  constexpr uint64_t kThreads = 3, kRounds = 30000;
  Table table;
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kRounds; i++) {
        const uint64_t number = i * kThreads + t, lasting = (i % 64) * kThreads + t + 1'000'000;
        if (i < 64) insert(table, lasting);
        insert(table, number);
        for (const uint64_t each : {number, lasting}) {
          const Thing* found = table.find(address(each));
          wrong += found == nullptr || found->number != each;
        }
        wrong += table.take(address(number)) == nullptr || table.find(address(number)) != nullptr;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace faultinject
