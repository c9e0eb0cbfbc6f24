// SPDX-License-Identifier: Apache-2.0
// The executor over channels within one process, all ranks in turn: every builder, several operations open,
// types, odd counts, in place, plans that change from one operation to the next, with delays from a seed. Every
// element is compared, and all ranks' results bit by bit.
#include "r2ccl/collective/host/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/host/testing/fake_transport.h"
#include "r2ccl/collective/host/reduce.h"
#include "r2ccl/collective/host/staging_ring.h"

namespace r2ccl::collective {
namespace {

using namespace testing_support;

struct Kind {
  DataType type = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
};

/// An operation of all ranks, with its buffers between guard bytes.
struct Whole {
  std::shared_ptr<const Schedule> schedule;
  size_t count = 0;  // elements of all the data
  Kind kind;
  bool in_place = false;
  std::vector<std::vector<std::byte>> sent, received, original, scratch;
  std::vector<Executor::Run*> runs;
  std::vector<bool> done;
};

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

class World {
 public:
  World(uint32_t ranks, uint32_t seed, int most_delay, ExecutorLimits limits = {}, uint32_t slots = 1)
      : fabric_(ranks, seed, most_delay), random_(seed), slots_(slots) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      transports_.push_back(std::make_unique<FakeTransport>(fabric_, rank));
      executors_.push_back(std::make_unique<Executor>(*transports_.back(), limits));
    }
  }

  FakeFabric& fabric() { return fabric_; }
  Executor& executor(uint32_t rank) { return *executors_[rank]; }

  Whole& add(const Schedule& schedule, size_t count, Kind kind, bool in_place) {
    auto whole = std::make_unique<Whole>();
    whole->schedule = std::make_shared<Schedule>(schedule);
    whole->count = count;
    whole->kind = kind;
    whole->in_place = in_place;
    const size_t bytes = count * bytes_of(kind.type), p = fabric_.ranks();
    for (uint32_t rank = 0; rank < p; ++rank) {
      whole->sent.emplace_back(bytes + 2 * kGuard, kGuardByte);
      // Values small enough that sums and products of eight are exact in every type, any order: 0, 1, 2 and −1.
      for (size_t i = 0; i < count; ++i) set(kind, &whole->sent[rank][kGuard + i * bytes_of(kind.type)]);
      whole->original.push_back(whole->sent[rank]);
      whole->received.emplace_back(bytes + 2 * kGuard, kGuardByte);
      whole->scratch.emplace_back(bytes, kGuardByte);
    }
    whole->runs.resize(p);
    whole->done.resize(p);
    operations_.push_back(std::move(whole));
    return *operations_.back();
  }

  /// Runs all that was added, at most `open` at a time on each rank. False: it has come to a standstill.
  bool run(size_t open) {
    const auto p = fabric_.ranks();
    std::vector<size_t> begun(p, 0), ended(p, 0);
    int still = 0;
    for (;;) {
      bool moved = false, over = true;
      for (uint32_t turn = 0; turn < p; ++turn) {
        const uint32_t rank = random_() % p;
        while (begun[rank] < operations_.size() && begun[rank] - ended[rank] < open) {
          begin(rank, *operations_[begun[rank]++]);
          moved = true;
        }
        auto polled = executors_[rank]->poll();
        if (!polled) {
          error_ = polled.error();
          return false;
        }
        moved |= *polled;
        while (ended[rank] < begun[rank] && executors_[rank]->finished(operations_[ended[rank]]->runs[rank])) {
          executors_[rank]->release(operations_[ended[rank]]->runs[rank]);
          operations_[ended[rank]++]->done[rank] = true;
          moved = true;
        }
      }
      for (uint32_t rank = 0; rank < p; ++rank) over = over && ended[rank] == operations_.size();
      if (over) return true;
      moved |= fabric_.tick();
      still = moved ? 0 : still + 1;
      if (still > 1000) return false;
    }
  }

  /// Wrong elements of an operation, and of its guards.
  size_t wrong(const Whole& whole) const {
    const size_t bytes = bytes_of(whole.kind.type), p = fabric_.ranks();
    const Ranges ranges = chunk_ranges(*whole.schedule, whole.count);
    const ReduceFunction reduce = reduction_of(whole.kind.type, whole.kind.reduction);
    size_t wrong = 0;
    for (uint32_t chunk = 0; chunk < ranges.size(); ++chunk) {
      const auto [first, count] = ranges[chunk];
      if (count == 0) continue;
      std::vector<std::byte> wanted(count * bytes);
      const auto at = [&](uint32_t rank) { return whole.original[rank].data() + kGuard + first * bytes; };
      if (!whole.schedule->origin.empty()) {
        std::memcpy(wanted.data(), at(whole.schedule->origin[chunk]), count * bytes);
      } else if (whole.schedule->collective == Collective::kBroadcast) {
        std::memcpy(wanted.data(), at(whole.schedule->root), count * bytes);
      } else {
        std::memcpy(wanted.data(), at(0), count * bytes);
        for (uint32_t rank = 1; rank < p; ++rank) reduce(wanted.data(), wanted.data(), at(rank), count);
      }
      for (uint32_t rank = 0; rank < p; ++rank) {
        if (!whole.schedule->owner.empty() && whole.schedule->owner[chunk] != rank) continue;
        if (!whole.schedule->origin.empty() && whole.schedule->origin[chunk] == rank) continue;
        if (whole.schedule->collective == Collective::kBroadcast && whole.schedule->root == rank) continue;
        const auto& memory = whole.in_place ? whole.sent[rank] : whole.received[rank];
        for (size_t i = 0; i < count; ++i)
          wrong += std::memcmp(&memory[kGuard + (first + i) * bytes], &wanted[i * bytes], bytes) != 0;
      }
    }
    for (uint32_t rank = 0; rank < p; ++rank) {
      for (const auto* memory : {&whole.sent[rank], &whole.received[rank]})
        for (size_t i = 0; i < kGuard; ++i)
          wrong += (*memory)[i] != kGuardByte || (*memory)[memory->size() - 1 - i] != kGuardByte;
      if (!whole.in_place) wrong += whole.sent[rank] != whole.original[rank];
    }
    return wrong;
  }
  size_t wrong() const {
    size_t sum = 0;
    for (const auto& whole : operations_) sum += wrong(*whole);
    return sum;
  }
  const Error& error() const { return error_; }
  size_t messages_open() const {
    size_t sum = 0;
    for (const auto& transport : transports_) sum += transport->open();
    return sum;
  }

 private:
  void set(Kind kind, std::byte* to) {
    static const auto table = [](DataType type) -> std::vector<uint64_t> {
      switch (type) {
        case DataType::kFloat16:
          return {0, 0x3c00, 0x4000, 0xbc00};
        case DataType::kBfloat16:
          return {0, 0x3f80, 0x4000, 0xbf80};
        case DataType::kFloat8e4m3:
          return {0, 0x38, 0x40, 0xb8};
        case DataType::kFloat8e5m2:
          return {0, 0x3c, 0x40, 0xbc};
        case DataType::kFloat32:
          return {0, 0x3f800000, 0x40000000, 0xbf800000};
        case DataType::kFloat64:
          return {0, 0x3ff0000000000000, 0x4000000000000000, 0xbff0000000000000};
        default:
          return {0, 1, 2, ~uint64_t{0}};
      }
    };
    // Eight bits of a float8 hold sums up to 16 exactly, and no products but of ones and twos.
    const std::vector<uint64_t> values = table(kind.type);
    const uint64_t value = kind.reduction == Reduction::kProd ? values[1 + random_() % 2] : values[random_() % 4];
    std::memcpy(to, &value, bytes_of(kind.type));
  }

  void begin(uint32_t rank, Whole& whole) {
    // One program for each schedule and rank, as the group keeps them.
    auto program = std::make_shared<Program>(
        *whole.schedule, rank, [&](uint32_t peer, bool sends, uint32_t ordinal) {
          return transports_[rank]->end(peer, sends, ordinal);
        },
        std::vector<RailShares>{}, slots_);
    const size_t bytes = bytes_of(whole.kind.type);
    Work work;
    work.ranges = program->ranges(whole.count);
    work.element_bytes = bytes;
    work.reduce = reduction_of(whole.kind.type, whole.kind.reduction);
    work.own.base = reinterpret_cast<uintptr_t>(whole.sent[rank].data() + kGuard);
    work.result.base = whole.in_place ? work.own.base
                                      : reinterpret_cast<uintptr_t>(whole.received[rank].data() + kGuard);
    work.others = work.result;
    if (whole.schedule->collective == Collective::kReduceScatter) {
      const size_t block = whole.count / fabric_.ranks() * bytes;
      work.result_from = rank * block;
      work.result_to = work.result_from + block;
      work.others.base = reinterpret_cast<uintptr_t>(whole.scratch[rank].data());
    }
    work.program = std::move(program);
    whole.runs[rank] = executors_[rank]->begin(std::move(work));
  }

  FakeFabric fabric_;
  std::minstd_rand random_;
  const uint32_t slots_;
  std::vector<std::unique_ptr<FakeTransport>> transports_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<Whole>> operations_;
  Error error_;
};

/// Every builder for p ranks, some with several shapes.
std::vector<Schedule> all_schedules(uint32_t p, uint32_t segments) {
  std::vector<double> one(p, 1.0), two(p, 1.0);
  one[p / 2] = 0.5;
  two[0] = 0.25;
  two[p - 1] = 0.7;
  std::vector<Schedule> schedules{ring_allreduce(natural_order(p), segments),
                                  ring_allreduce(natural_order(p), segments, 1),
                                  unequal_ring_allreduce(natural_order(p), unequal_ring(one).shares, segments),
                                  double_tree_allreduce(p, segments)};
  if (p >= 3) {
    for (const auto& capacities : {one, two}) {
      schedules.push_back(r2ccl_allreduce(p, r2ccl_rings(capacities, segments).rings, segments));
      schedules.push_back(mix_allreduce(p, mix_fractions(capacities).parts, segments));
      schedules.push_back(direct_allreduce(direct_shares(capacities).shares, segments));
    }
    for (uint32_t leaves = 1; leaves < p; leaves += p - 2) {
      const Ranks order = by_capacity(one);
      schedules.push_back(four_stage_allreduce(Ranks(order.begin() + leaves, order.end()),
                                               Ranks(order.begin(), order.begin() + leaves), segments));
    }
  }
  schedules.push_back(ring_allgather(natural_order(p), segments));
  schedules.push_back(ring_reduce_scatter(natural_order(p), segments));
  schedules.push_back(chain_broadcast(natural_order(p), segments));
  schedules.push_back(direct_alltoall(p, segments));
  return schedules;
}

std::string about(const Schedule& schedule, uint32_t p) {
  return schedule.name + " " + name(schedule.collective) + " of " + std::to_string(p);
}

size_t even(size_t count, uint32_t p) { return std::max<size_t>(1, count / p) * p; }

TEST(Executor, runs_every_builder_with_operations_beside_each_other) {
  for (uint32_t p = 2; p <= 6; ++p) {
    for (const Schedule& schedule : all_schedules(p, 2)) {
      SCOPED_TRACE(about(schedule, p));
      World world(p, p * 17, 6, {.message_bytes = 256, .window_bytes = 4096}, 3);
      for (const size_t count : {1000, 1, 37, 4099, 64, 500, 2}) world.add(schedule, even(count, p), {}, count % 2 == 0);
      ASSERT_TRUE(world.run(7)) << world.error().message;
      EXPECT_EQ(world.wrong(), 0u);
      EXPECT_EQ(world.messages_open(), 0u);
    }
  }
}

TEST(Executor, runs_every_builder_with_operations_one_behind_the_other) {
  for (uint32_t p = 2; p <= 8; ++p) {
    for (const Schedule& schedule : all_schedules(p, p < 5 ? 3 : 2)) {
      SCOPED_TRACE(about(schedule, p));
      World world(p, p * 31, 4);
      for (const size_t count : {1000, 1, 37, 4099, 64}) world.add(schedule, even(count, p), {}, count % 2 == 0);
      ASSERT_TRUE(world.run(3)) << world.error().message;
      EXPECT_EQ(world.wrong(), 0u);
      EXPECT_EQ(world.messages_open(), 0u);
    }
  }
}

TEST(Executor, needs_no_more_than_one_message_of_staging_for_each_end) {
  // Chunks are cut into messages of 256 bytes, and one of them is all that a receiver has room for.
  const ExecutorLimits tight{.message_bytes = 256, .window_bytes = 1, .staging_bytes = 256,
                             .reduced_per_poll = 64, .credit_bytes = 0};
  for (uint32_t p = 2; p <= 6; ++p) {
    for (const Schedule& schedule : all_schedules(p, 2)) {
      SCOPED_TRACE(about(schedule, p));
      World world(p, p * 37, 3, tight);
      for (int i = 0; i < 3; ++i) world.add(schedule, even(3001, p), {}, i == 1);
      ASSERT_TRUE(world.run(2)) << world.error().message;
      EXPECT_EQ(world.wrong(), 0u);
    }
  }
}

TEST(Executor, adds_all_types_in_all_ways) {
  for (int type = 0; type < kDataTypes; ++type) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin}) {
      constexpr uint32_t p = 4;
      World world(p, uint32_t(type) * 4 + uint32_t(reduction) + 1, 3);
      for (const Schedule& schedule : all_schedules(p, 2))
        for (const bool in_place : {false, true})
          world.add(schedule, even(509, p), {DataType(type), reduction}, in_place);
      ASSERT_TRUE(world.run(8)) << world.error().message;
      EXPECT_EQ(world.wrong(), 0u) << type << " " << int(reduction);
    }
  }
}

// Plans change between operations, and their messages share channels, in the order of the operations.
TEST(Executor, plans_that_change_with_every_operation_do_not_meet) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const uint32_t p = 2 + seed % 7;
    std::minstd_rand random(seed);
    World world(p, seed, 6);
    const std::vector<Schedule> few = all_schedules(p, 1), many = all_schedules(p, 3);
    for (int i = 0; i < 12; ++i) {
      const Schedule& schedule = (random() % 2 ? few : many)[random() % few.size()];
      world.add(schedule, even(random() % 3000, p), {}, random() % 2);
    }
    ASSERT_TRUE(world.run(1 + seed % 8)) << "seed " << seed << ": " << world.error().message;
    EXPECT_EQ(world.wrong(), 0u) << seed;
  }
}

// Sums of floats depend on their order; a schedule has one, whatever arrives first.
TEST(Executor, all_ranks_get_the_same_bits_and_every_run_does) {
  for (uint32_t p = 3; p <= 6; ++p) {
    for (const Schedule& schedule : all_schedules(p, 2)) {
      if (schedule.collective != Collective::kAllReduce) continue;
      std::vector<std::byte> first;
      for (uint32_t seed = 1; seed <= 4; ++seed) {
        World world(p, seed * 77, 5);
        Whole& whole = world.add(schedule, 2000, {}, false);
        std::minstd_rand random(9);  // the same data in every run
        for (uint32_t rank = 0; rank < p; ++rank)
          for (size_t i = 0; i < whole.count; ++i) {
            const float value = float(random() % 100000) * 1e-3f + 1e4f * float(random() % 3);
            std::memcpy(&whole.sent[rank][kGuard + i * 4], &value, 4);
          }
        ASSERT_TRUE(world.run(1));
        for (uint32_t rank = 1; rank < p; ++rank)
          ASSERT_EQ(whole.received[rank], whole.received[0]) << about(schedule, p) << ", rank " << rank;
        if (seed == 1) first = whole.received[0];
        ASSERT_EQ(whole.received[0], first) << about(schedule, p) << ", seed " << seed;
      }
    }
  }
}

// NCCL's counts are whole chunks: what is behind the user's data may be anything.
TEST(Executor, garbage_in_the_tail_stays_there) {
  for (const DataType type : {DataType::kFloat16, DataType::kFloat32, DataType::kFloat8e4m3, DataType::kBfloat16}) {
    constexpr uint32_t p = 4;
    World world(p, 5, 3);
    const size_t bytes = bytes_of(type), count = 4096, tail = 700;
    Whole& whole = world.add(mix_allreduce(p, mix_fractions(std::vector<double>{1, 1, 0.5, 1}).parts, 2), count,
                             {type, Reduction::kSum}, false);
    std::minstd_rand random(3);
    for (uint32_t rank = 0; rank < p; ++rank)
      for (size_t i = 0; i < tail * bytes; ++i)
        whole.sent[rank][kGuard + (count - tail) * bytes + i] = i % 5 ? std::byte(random()) : std::byte{0xff};
    ASSERT_TRUE(world.run(1));
    const ReduceFunction add = reduction_of(type, Reduction::kSum);
    std::vector<std::byte> wanted(whole.original[0].begin() + kGuard, whole.original[0].end() - kGuard);
    for (uint32_t rank = 1; rank < p; ++rank)
      add(wanted.data(), wanted.data(), whole.original[rank].data() + kGuard, count);
    for (uint32_t rank = 0; rank < p; ++rank)
      EXPECT_EQ(std::memcmp(whole.received[rank].data() + kGuard, wanted.data(), (count - tail) * bytes), 0);
  }
}

// What this test would say of an engine that computes wrongly.
TEST(Executor, a_corrupted_message_is_found) {
  for (int message = 1; message <= 40; message += 13) {
    World world(4, 8, 2);
    world.add(ring_allreduce(natural_order(4), 2), 1000, {DataType::kInt32}, false);
    world.fabric().corrupt(message);
    ASSERT_TRUE(world.run(1));
    EXPECT_GT(world.wrong(), 0u) << message;
  }
}

TEST(Executor, an_error_of_the_transport_is_final) {
  World world(3, 2, 1);
  world.add(ring_allreduce(natural_order(3), 2), 1000, {}, false);
  world.fabric().fail(1);
  EXPECT_FALSE(world.run(1));
  EXPECT_EQ(world.error().code, ErrorCode::kAllPathsDown);
  auto again = world.executor(1).poll();
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message, world.error().message);
}

TEST(StagingRing, gives_contiguous_pieces_until_it_is_full) {
  StagingRing ring(1024);
  std::deque<StagingRing::Piece> open;
  std::minstd_rand random(4);
  uint64_t taken = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const size_t bytes = 1 + random() % 500;
    const auto piece = ring.take(bytes);
    if (piece) {
      EXPECT_EQ(piece->offset % StagingRing::kAlign, 0u);
      EXPECT_LE(piece->offset + bytes, ring.bytes());
      for (const auto& other : open) {
        const size_t length = (bytes + 127) / 128 * 128;
        const size_t other_length = other.end % 1024 == 0 ? 1024 - other.offset : other.end % 1024 - other.offset;
        EXPECT_TRUE(piece->offset + length <= other.offset || other.offset + other_length <= piece->offset);
      }
      open.push_back(*piece);
      ++taken;
    } else {
      ASSERT_FALSE(open.empty());
      ++refused;
    }
    if (!open.empty() && (!piece || random() % 3 == 0)) {
      ring.free_up_to(open.front());
      open.pop_front();
    }
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(refused, 1000u);
  EXPECT_FALSE(StagingRing(256).take(300));
}

}  // namespace
}  // namespace r2ccl::collective
