// SPDX-License-Identifier: Apache-2.0
// How far AllReduce by sum is from the exact sum when the inputs are inexact, for every algorithm of the
// planner and for what the engine chooses, on nodes of which one has half its capacity.
//
// E_rel: the greatest |result − exact| / Σ|inputs| of all elements. `exact` is the sum of the inputs as the
// type represents them, in long double. It is exact: all inputs are multiples of 2^-32 and at most 1.
//
// The bound: whatever the order, a sum of p numbers takes p − 1 additions, and each input takes part in at
// most that many. Each addition multiplies by 1 + δ with |δ| <= u, the unit roundoff. So E_rel is at most
// (1+u)^(p−1) − 1 = (p − 1)·u + O(u²) (N. J. Higham, Accuracy and Stability of Numerical Algorithms, second
// edition, section 4.2, for recursive summation and every other order). Float16 and bfloat16 are added in
// float32 and rounded to the type after each addition. That is one rounding, not two: 24 bits are at least
// 2·11 + 2, so the rounding to float32 never changes the rounding to the type. No partial sum overflows, and
// sums below the least normal number are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/executor.h"
#include "r2ccl/collective/host/reduce.h"
#include "r2ccl/collective/host/testing/fake_transport.h"
#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {
namespace {

using namespace testing_support;

struct Type {
  DataType type;
  const char* name;
  size_t bytes;
  int precision;  // bits of the significand: u = 2^-precision
  double u() const { return std::ldexp(1.0, -precision); }
};
constexpr Type kTypes[] = {{DataType::kFloat32, "float32", 4, 24},
                           {DataType::kFloat16, "float16", 2, 11},
                           {DataType::kBfloat16, "bfloat16", 2, 8}};

/// The bits of the nearest number of the type, of two equally near ones the even one. |value| <= 1.
uint32_t encode(const Type& type, double value) {
  if (type.type == DataType::kFloat32) return std::bit_cast<uint32_t>(float(value));
  const int fraction = type.precision - 1, least = type.type == DataType::kFloat16 ? -13 : -125;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| is below 2^exponent, and at least half of it
  exponent = value == 0 ? least : std::max(exponent, least);
  // The leading bit of a normal number adds 1 to the exponent; so does a significand that is rounded up.
  const auto significand = uint32_t(std::nearbyint(std::ldexp(std::fabs(value), type.precision - exponent)));
  return (std::signbit(value) ? 0x8000u : 0u) + (uint32_t(exponent - least) << fraction) + significand;
}

/// Infinity for what is no number, so that its error is above every bound.
double decode(const Type& type, uint32_t bits) {
  double value = 0;
  if (type.type == DataType::kFloat16) {
    const int exponent = int(bits >> 10 & 31), significand = int(bits & 1023);
    if (exponent == 31) return INFINITY;
    value = exponent == 0 ? std::ldexp(significand, -24) : std::ldexp(1024 + significand, exponent - 25);
    return bits >> 15 ? -value : value;
  }
  value = std::bit_cast<float>(type.type == DataType::kBfloat16 ? bits << 16 : bits);
  return std::isfinite(value) ? value : INFINITY;
}

/// Every rank's contribution, and each element's exact sum and Σ|inputs|.
struct Inputs {
  size_t count = 65521;  // not a multiple of anything: chunks are of several sizes, and vectors have tails
  std::vector<std::vector<std::byte>> sent;  // by rank
  std::vector<long double> exact, magnitude;

  Inputs(uint32_t p, const Type& type, double least, uint32_t seed) : exact(count), magnitude(count) {
    std::mt19937 random(seed);
    for (uint32_t rank = 0; rank < p; ++rank) {
      sent.emplace_back(count * type.bytes);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t bits = encode(type, least + (1 - least) * std::ldexp(double(random()), -32));
        std::memcpy(&sent.back()[i * type.bytes], &bits, type.bytes);
        const double value = decode(type, bits);
        exact[i] += value;
        magnitude[i] += std::fabs(value);
      }
    }
  }
};

/// E_rel of one operation, in units of u; all ranks' results are compared bit by bit.
double relative_error(const Inputs& inputs, const Type& type, const Schedule& schedule, ReduceFunction add) {
  const auto p = uint32_t(inputs.sent.size());
  FakeFabric fabric(p, p, 0);
  std::vector<std::unique_ptr<FakeTransport>> transports;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<Executor::Run*> runs;
  std::vector<std::vector<std::byte>> received(p, std::vector<std::byte>(inputs.count * type.bytes));
  for (uint32_t rank = 0; rank < p; ++rank) {
    transports.push_back(std::make_unique<FakeTransport>(fabric, rank));
    executors.push_back(std::make_unique<Executor>(*transports.back()));
    auto program =
        std::make_shared<Program>(schedule, rank, [&](uint32_t peer, bool sends, uint32_t ordinal) {
          return transports[rank]->end(peer, sends, ordinal);
        });
    Work work;
    work.ranges = program->ranges(inputs.count);
    work.program = std::move(program);
    work.element_bytes = type.bytes;
    work.reduce = add;
    work.own.base = reinterpret_cast<uintptr_t>(inputs.sent[rank].data());
    work.result.base = reinterpret_cast<uintptr_t>(received[rank].data());
    work.others = work.result;
    runs.push_back(executors.back()->begin(std::move(work)));
  }
  for (bool over = false; !over;) {
    bool moved = false;
    over = true;
    for (uint32_t rank = 0; rank < p; ++rank) {
      auto polled = executors[rank]->poll();
      moved |= polled.ok() && *polled;
      over = over && executors[rank]->finished(runs[rank]);
    }
    moved |= fabric.tick();
    if (!over && !moved) {
      ADD_FAILURE() << "standstill";
      return INFINITY;
    }
  }
  for (uint32_t rank = 1; rank < p; ++rank) EXPECT_EQ(received[rank], received[0]) << "rank " << rank;
  long double worst = 0;
  for (size_t i = 0; i < inputs.count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &received[0][i * type.bytes], type.bytes);
    const long double error = std::fabs(decode(type, bits) - inputs.exact[i]);
    if (error > 0) worst = std::max(worst, error / inputs.magnitude[i]);
  }
  return double(worst / type.u());
}

/// (1 + u)^(p − 1) − 1, in units of u.
double bound(uint32_t p, const Type& type) { return std::expm1((p - 1) * std::log1p(type.u())) / type.u(); }

std::vector<double> one_at_half(uint32_t p) {
  std::vector<double> capacities(p, 1.0);
  capacities[p / 2] = 0.5;
  return capacities;
}

Job job_for(uint32_t p, uint64_t bytes) {
  constexpr Speeds kSpeeds{.bytes_per_second = 1.25e9};
  return job_of(one_at_half(p), bytes, outstanding_for(bytes), kSpeeds);
}

/// The greatest E_rel of all types, inputs and schedules below, in units of u (the README of this folder). It
/// grows more slowly with p than the bound, because rounding errors have both signs.
struct Measured {
  uint32_t p;
  double worst;
};
constexpr Measured kMeasured[] = {{3, 1.97}, {4, 2.73}, {8, 4.09}};
/// E_rel of any schedule is at most so many times that of the ring.
constexpr double kMostOverRing = 1.5;

class RelativeError : public testing::TestWithParam<Measured> {};

TEST_P(RelativeError, of_every_algorithm_and_of_the_choice_is_below_the_bound) {
  const uint32_t p = GetParam().p;
  struct Case {
    std::string name;
    Schedule schedule;
  };
  std::vector<Case> cases;
  const Job piece = job_for(p, kLargestPiece);
  const Plan of_piece = plan(piece).value();
  for (const Candidate& candidate : of_piece.candidates)
    cases.push_back({name(candidate.algorithm), build(piece, candidate)});
  ASSERT_EQ(cases.size(), 7u);
  ASSERT_EQ(cases[0].name, "ring");
  for (const uint64_t kib : {256, 1024, 4096, 16384, 65536}) {
    const Job job = job_for(p, kib << 10);
    const Plan planned = plan(job).value();
    const Candidate& choice = planned.choice();
    cases.push_back({"choice for " + std::to_string(kib) + " KiB (" + name(choice.algorithm) +
                         ", segments: " + std::to_string(choice.segments) + ")",
                     build(job, choice)});
  }
  double worst = 0, most_over_ring = 0;
  for (const Type& type : kTypes) {
    const ReduceFunction add = reduction_of(type.type, Reduction::kSum);
    const Inputs inputs[] = {{p, type, -1, 100 * p}, {p, type, 0, 100 * p + 1}};
    double ring[2] = {};
    for (const Case& of : cases) {
      SCOPED_TRACE(std::string(type.name) + " " + of.name);
      double errors[2] = {};
      for (size_t i = 0; i < 2; ++i) {
        const double error = errors[i] = relative_error(inputs[i], type, of.schedule, add);
        EXPECT_LE(error, bound(p, type));
        EXPECT_GT(error, 0.5) << "hardly anything is rounded";
        if (&of == &cases[0]) ring[i] = error;
        EXPECT_LE(error, kMostOverRing * ring[i]);
        worst = std::max(worst, error);
        most_over_ring = std::max(most_over_ring, error / ring[i]);
      }
      std::printf("p = %u, %s, %s: E_rel %.2f u of inputs in [-1, 1), %.2f u in [0, 1); bound %.2f u\n", p,
                  type.name, of.name.c_str(), errors[0], errors[1], bound(p, type));
    }
  }
  std::printf("p = %u: E_rel at most %.2f u, and %.2f times that of the ring\n", p, worst, most_over_ring);
  EXPECT_NEAR(worst, GetParam().worst, 0.1 * GetParam().worst);
}

INSTANTIATE_TEST_SUITE_P(Nodes, RelativeError, testing::ValuesIn(kMeasured));

// What this test would say of additions that are rounded wrongly.
TEST(RelativeErrorTest, sees_sums_that_are_truncated) {
  const ReduceFunction truncate = [](void* dst, const void* a, const void* b, size_t elements) {
    for (size_t i = 0; i < elements; ++i) {
      uint16_t x = 0, y = 0;
      std::memcpy(&x, static_cast<const std::byte*>(a) + 2 * i, 2);
      std::memcpy(&y, static_cast<const std::byte*>(b) + 2 * i, 2);
      const float sum = std::bit_cast<float>(uint32_t{x} << 16) + std::bit_cast<float>(uint32_t{y} << 16);
      const auto bits = uint16_t(std::bit_cast<uint32_t>(sum) >> 16);
      std::memcpy(static_cast<std::byte*>(dst) + 2 * i, &bits, 2);
    }
  };
  const Type& type = kTypes[2];
  for (const auto& [p, worst] : kMeasured) {
    const Job job = job_for(p, kLargestPiece);
    const Plan planned = plan(job).value();
    const Schedule ring = build(job, planned.candidates[0]);
    const double error = relative_error(Inputs(p, type, 0, 100 * p + 1), type, ring, truncate);
    EXPECT_GT(error, 1.1 * worst) << p;
    EXPECT_TRUE(p == 8 || error > bound(p, type)) << p;
  }
}

TEST(RelativeErrorTest, encodes_its_inputs_as_the_type_says) {
  const Type &half = kTypes[1], &bfloat = kTypes[2];
  EXPECT_EQ(encode(half, 1), 0x3c00u);
  EXPECT_EQ(encode(half, -0.5), 0xb800u);
  EXPECT_EQ(encode(half, std::ldexp(1.0, -14)), 0x0400u);
  EXPECT_EQ(encode(half, std::ldexp(1.0, -24)), 0x0001u);
  EXPECT_EQ(encode(half, 1 - std::ldexp(1.0, -13)), 0x3c00u);
  EXPECT_EQ(encode(bfloat, 1), 0x3f80u);
  EXPECT_EQ(encode(bfloat, -0.75), 0xbf40u);
  for (const Type& type : {half, bfloat})
    for (uint32_t bits = 0; decode(type, bits) <= 1; ++bits)
      ASSERT_EQ(encode(type, decode(type, bits)), bits);
}

}  // namespace
}  // namespace r2ccl::collective
