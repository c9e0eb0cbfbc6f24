// SPDX-License-Identifier: Apache-2.0
// What queue pairs carry whose ways cross at busy ports, in simulated time: the shares that each port gives,
// and that no port carries more than its rate, also when those who look at the clocks come late.
#include "harness/vhca/queues/pacing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace vhca {
namespace {

constexpr std::uint64_t kGbit = 1'000'000'000;
constexpr std::uint64_t kStart = 5'000'000'000'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kBusyRetryNs = 20'000;
constexpr std::uint64_t kNever = ~0ull;

struct SimulatedPort {
  explicit SimulatedPort(std::uint64_t rate = kGbit) {
    init_server(*tx, rate, kStart);
    init_server(*rx, rate, kStart);
  }
  std::unique_ptr<RateServer> tx = std::make_unique<RateServer>();
  std::unique_ptr<RateServer> rx = std::make_unique<RateServer>();
};

// A program that keeps so many messages posted on one QP.
class Sender {
 public:
  Sender(SimulatedPort& from, SimulatedPort& to, std::uint64_t message, std::uint64_t outstanding,
         std::uint64_t latency_ns = 0)
      : message_(message), outstanding_(outstanding) {
    static std::uint32_t number = 1;
    slot_->type = IBV_QPT_RC;
    qp_->shared = slot_.get();
    qp_->sends.resize(4096);
    qp_->send_mask = 4095;
    qp_->own_latency_ns = latency_ns;
    qp_->write_flows[0] = open_flow(*from.tx, number);
    qp_->write_flows[1] = open_flow(*to.rx, number);
    qp_->read_flows[0] = open_flow(*to.tx, number);
    qp_->read_flows[1] = open_flow(*from.rx, number++);
    set_window(*qp_);
  }

  // Does what is due; returns when there is something to do again.
  std::uint64_t look(std::uint64_t now) {
    for (;;) {
      while (qp_->send_head - qp_->send_next < outstanding_) {
        SendEntry& e = qp_->send_entry(qp_->send_head);
        e = {};
        e.length = message_;
        e.opcode =
            reads_every != 0 && qp_->send_head % reads_every == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        ++qp_->send_head;
      }
      reserve_time(*qp_, qp_->send_head, now);
      if (qp_->send_next == qp_->send_head) return kNever;
      SendEntry& e = qp_->send_entry(qp_->send_next);
      const std::uint64_t bytes = std::min(kPieceBytes, e.length - e.placed);
      const std::uint64_t arrival = arrival_time(*qp_, e, e.placed + bytes, now);
      if (arrival > now) return std::min(arrival, balance_reservations(*qp_, qp_->send_head, now));
      if (now >= kStart + held_from_ms * kMs && now < kStart + held_until_ms * kMs) {
        wait_for_target(*qp_, bytes, now);
        return now + kBusyRetryNs;
      }
      forget_reservation(*qp_, bytes);
      e.placed += bytes;
      e.served_ns = 0;
      placed.push_back({now, bytes});
      if (e.placed == e.length) ++qp_->send_next;
    }
  }

  void flush(std::uint64_t now) {
    qp_->send_next = qp_->send_head;
    cancel_reservations(*qp_, now);
  }

  struct Placed {
    std::uint64_t ns;
    std::uint64_t bytes;
  };
  std::vector<Placed> placed;
  std::uint64_t reads_every = 0;
  // Another initiator holds its target.
  std::uint64_t held_from_ms = 0;
  std::uint64_t held_until_ms = 0;

  // Gbit/s within [from, to) milliseconds after the start.
  double rate(std::uint64_t from_ms, std::uint64_t to_ms) const {
    double bits = 0;
    for (const Placed& p : placed)
      if (p.ns >= kStart + from_ms * kMs && p.ns < kStart + to_ms * kMs) bits += double(p.bytes) * 8;
    return bits / double((to_ms - from_ms) * kMs);
  }

 private:
  std::uint64_t message_, outstanding_;
  std::unique_ptr<QpSlot> slot_ = std::make_unique<QpSlot>();
  std::unique_ptr<Qp> qp_ = std::make_unique<Qp>();
};

// Runs them for so long; each comes up to `late_ns` later than it should.
void run(const std::vector<Sender*>& senders, std::uint64_t until_ms, std::uint64_t late_ns,
         std::uint64_t from_ms = 0) {
  std::mt19937_64 random(7);
  std::multimap<std::uint64_t, Sender*> due;
  for (Sender* s : senders) due.emplace(kStart + from_ms * kMs, s);
  while (!due.empty() && due.begin()->first < kStart + until_ms * kMs) {
    const auto [now, sender] = *due.begin();
    due.erase(due.begin());
    const std::uint64_t next = sender->look(now);
    if (next != kNever) due.emplace(next + (late_ns != 0 ? random() % late_ns : 0), sender);
  }
}

// The most that went through a port in any stretch of time, beyond what its rate carries in that time; bytes.
double largest_excess(const std::vector<const Sender*>& through, double gbits = 1) {
  std::multimap<std::uint64_t, std::uint64_t> all;
  for (const Sender* s : through)
    for (const auto& p : s->placed) all.emplace(p.ns, p.bytes);
  // Largest sum of (bytes - rate * time) over a stretch, in one pass.
  double level = 0, worst = 0;
  std::uint64_t last = kStart;
  for (const auto& [ns, bytes] : all) {
    level = std::max(0.0, level - double(ns - last) * gbits / 8);
    last = ns;
    level += double(bytes);
    worst = std::max(worst, level);
  }
  return worst;
}

struct Load {
  std::uint64_t message;
  std::uint64_t outstanding;
  std::uint64_t late_ns;
};
void PrintTo(const Load& load, std::ostream* out) {
  *out << load.outstanding << " messages of " << load.message << " bytes, up to " << load.late_ns / 1000
       << " us late";
}

// A sends to C, into which three others send as well, and to D, into which nobody else does.
class Incast : public ::testing::TestWithParam<Load> {
 protected:
  Incast() {
    for (int i = 0; i < 3; ++i)
      others_.push_back(std::make_unique<Sender>(b_[i], c_, GetParam().message, GetParam().outstanding));
    for (auto& s : others_) all_.push_back(s.get());
  }
  SimulatedPort a_, b_[3], c_, d_;
  Sender to_c_{a_, c_, GetParam().message, GetParam().outstanding};
  Sender to_d_{a_, d_, GetParam().message, GetParam().outstanding};
  std::vector<std::unique_ptr<Sender>> others_;
  std::vector<Sender*> all_{&to_c_, &to_d_};
};

TEST_P(Incast, the_shares_are_max_min_from_the_beginning_and_no_port_carries_more_than_its_rate) {
  run(all_, 3'000, GetParam().late_ns);
  EXPECT_NEAR(to_c_.rate(200, 3'000), 0.25, 0.01);
  EXPECT_NEAR(to_d_.rate(200, 3'000), 0.75, 0.02);
  for (std::uint64_t t = 200; t < 3'000; t += 200) {
    EXPECT_NEAR(to_c_.rate(t, t + 200) + to_d_.rate(t, t + 200), 1.0, 0.05) << t;
    double into_c = to_c_.rate(t, t + 200);
    for (const auto& s : others_) into_c += s->rate(t, t + 200);
    EXPECT_NEAR(into_c, 1.0, 0.05) << t;
  }
  // What a window is, per queue pair, and what the ports serve while one comes late or does not look.
  const double window = double(kWindowBytes) + double(kWindowNs) / 8;
  const double burst = 2 * (window + double(kPieceBytes) + double(4 * kWindowNs + GetParam().late_ns) / 8);
  EXPECT_LT(largest_excess({&to_c_, &to_d_}), burst);
}

TEST_P(Incast, nothing_is_saved_up_for_the_time_when_the_others_stop) {
  run(all_, 1'000, GetParam().late_ns);
  for (auto& s : others_) s->flush(kStart + 1'000 * kMs);
  run({&to_c_, &to_d_}, 2'500, GetParam().late_ns, 1'000);
  EXPECT_NEAR(to_c_.rate(1'500, 2'500), 0.5, 0.02);
  EXPECT_NEAR(to_d_.rate(1'500, 2'500), 0.5, 0.02);
  const double window = double(kWindowBytes) + double(kWindowNs) / 8;
  EXPECT_LT(largest_excess({&to_c_, &to_d_}),
            2 * (window + double(kPieceBytes) + double(4 * kWindowNs + GetParam().late_ns) / 8));
}

INSTANTIATE_TEST_SUITE_P(Pacing, Incast,
                         ::testing::Values(Load{65536, 64, 0}, Load{65536, 256, 2'000'000},
                                           Load{4096, 1024, 100'000}, Load{1 << 20, 16, 5'000'000},
                                           Load{1 << 30, 2, 1'000'000}));

TEST(Pacing, a_queue_pair_alone_loses_nothing_when_it_is_late) {
  SimulatedPort a, b;
  Sender sender(a, b, 1 << 20, 16);
  run({&sender}, 2'000, 60 * kMs);
  EXPECT_NEAR(sender.rate(0, 2'000), 1.0, 0.05);
}

TEST(Pacing, the_latency_of_the_way_takes_nothing_from_the_rate) {
  SimulatedPort a, b;
  Sender sender(a, b, 65536, 512, 400'000);  // a message takes 524 us
  run({&sender}, 2'000, 0);
  EXPECT_NEAR(sender.rate(200, 2'000), 1.0, 0.02);
}

TEST(Pacing, ports_of_different_rates_carry_what_the_slower_one_does) {
  SimulatedPort fast(10 * kGbit), slow(kGbit), other(10 * kGbit);
  Sender to_slow(fast, slow, 65536, 256), to_other(fast, other, 65536, 1024);
  run({&to_slow, &to_other}, 1'000, 200'000);
  EXPECT_NEAR(to_slow.rate(100, 1'000), 1.0, 0.02);
  EXPECT_NEAR(to_other.rate(100, 1'000), 9.0, 0.2);
}

// READs wait behind the WRITEs of their queue pair, which a busy port holds up: their ports are the others'
// until then.
TEST(Pacing, what_waits_behind_held_up_work_of_its_queue_pair_saves_nothing_up) {
  SimulatedPort a, b[3], c;
  std::vector<std::unique_ptr<Sender>> writers;
  std::vector<Sender*> all;
  for (auto& from : b) {
    writers.push_back(std::make_unique<Sender>(from, c, 65536, 64));
    all.push_back(writers.back().get());
  }
  Sender mixed(a, c, 262144, 64);
  mixed.reads_every = 2;
  all.push_back(&mixed);
  run(all, 2'000, 0);
  // A WRITE at a quarter of the rate, then a READ at all of it: 0.4 together.
  EXPECT_NEAR(mixed.rate(200, 2'000), 0.4, 0.1);
  const double window = double(kWindowBytes) + double(kWindowNs) / 8;
  EXPECT_LT(largest_excess({&mixed}), 2 * (window + double(kPieceBytes)));
}

// Both send from the same port. What one of them cannot place is the other's, and is not made up for.
class HeldTarget : public ::testing::TestWithParam<Load> {};

TEST_P(HeldTarget, the_port_serves_others_until_it_is_free_and_nothing_is_saved_up) {
  SimulatedPort a, b, c;
  Sender waits(a, b, GetParam().message, GetParam().outstanding);
  Sender other(a, c, GetParam().message, GetParam().outstanding);
  waits.held_from_ms = 500;
  waits.held_until_ms = 1'500;
  run({&waits, &other}, 2'500, GetParam().late_ns);
  EXPECT_NEAR(waits.rate(300, 500), 0.5, 0.02);
  EXPECT_EQ(waits.rate(501, 1'500), 0.0);
  // Shared for as long as it may become free at once, and while one comes late.
  EXPECT_NEAR(other.rate(510, 1'500), 1.0, 0.02);
  EXPECT_NEAR(waits.rate(1'500, 2'500), 0.5, 0.02);
  EXPECT_NEAR(other.rate(1'500, 2'500), 0.5, 0.02);
  // As in Incast; the piece that had its time already is within a window.
  const double window = double(kWindowBytes) + double(kWindowNs) / 8;
  EXPECT_LT(largest_excess({&waits, &other}),
            2 * (window + double(kPieceBytes) + double(4 * kWindowNs + GetParam().late_ns) / 8));
}

// A hold of ordinary length costs the one that waits nothing.
TEST_P(HeldTarget, a_short_hold_takes_nothing_from_the_rate) {
  SimulatedPort a, b;
  Sender waits(a, b, GetParam().message, GetParam().outstanding);
  waits.held_from_ms = 500;
  waits.held_until_ms = 501;
  run({&waits}, 1'000, GetParam().late_ns);
  EXPECT_NEAR(waits.rate(490, 590), 1.0, 0.03);
}

// The piece that it keeps has had its time.
TEST(Pacing, the_piece_that_a_held_target_kept_back_is_not_paid_for_twice) {
  SimulatedPort a, b;
  Sender waits(a, b, kPieceBytes, 4);
  waits.held_from_ms = 500;
  waits.held_until_ms = 510;
  run({&waits}, 600, 0);
  const auto is_free = [](const Sender::Placed& p) { return p.ns >= kStart + 510 * kMs; };
  const auto first = std::find_if(waits.placed.begin(), waits.placed.end(), is_free);
  ASSERT_GT(waits.placed.end() - first, 2);
  EXPECT_NEAR(double((first + 1)->ns - first->ns), double(kPieceBytes) * 8, 100'000.0);
}

// What a queue pair waits for was computed while others had work. They lose their connections: the rate that
// they leave is used at once, not after the time that was computed with them.
TEST(Pacing, what_others_take_back_does_not_delay_those_who_are_left) {
  SimulatedPort a(kGbit / 10), b[15], c(kGbit / 10);
  Sender stays(a, c, kPieceBytes, 4);
  std::vector<std::unique_ptr<Sender>> others;
  std::vector<Sender*> all{&stays};
  for (auto& from : b) {
    others.push_back(std::make_unique<Sender>(from, c, kPieceBytes, 4));
    all.push_back(others.back().get());
  }
  // A piece alone takes 21 ms, one of sixteen 336 ms.
  run(all, 1'100, 0);
  for (auto& s : others) s->flush(kStart + 1'100 * kMs);
  const std::size_t before = stays.placed.size();
  run({&stays}, 2'100, 0, 1'100);
  ASSERT_GT(stays.placed.size(), before);
  EXPECT_LT(stays.placed[before].ns - kStart, (1'100 + 21 + 10) * kMs);
}

// The same for one that does not look by itself at that moment.
TEST(Pacing, a_queue_pair_looks_again_before_the_time_that_it_computed) {
  SimulatedPort a(kGbit / 10), b[15], c(kGbit / 10);
  Sender stays(a, c, kPieceBytes, 1);
  std::vector<std::unique_ptr<Sender>> others;
  for (auto& from : b) others.push_back(std::make_unique<Sender>(from, c, kPieceBytes, 1));
  for (auto& s : others) s->look(kStart);
  EXPECT_LE(stays.look(kStart), kStart + 10 * kMs);
}

INSTANTIATE_TEST_SUITE_P(Pacing, HeldTarget,
                         ::testing::Values(Load{4096, 4000, 0}, Load{4096, 4000, 500'000},
                                           Load{65536, 256, 100'000}, Load{1 << 30, 2, 500'000}));

}  // namespace
}  // namespace vhca
