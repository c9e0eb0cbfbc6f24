// SPDX-License-Identifier: Apache-2.0
// Plans by the rates of links as a closed loop, in the time of simulated ports: nodes run AllReduces by the view
// that holds, measure their links by what they send, tell rank 0, and take the plan that follows. A NIC falls to a
// part of its rate for a while, and no port says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/attribution.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/executor.h"
#include "r2ccl/collective/host/reduce.h"
#include "r2ccl/collective/host/testing/timed_fabric.h"
#include "r2ccl/collective/report.h"
#include "r2ccl/service/link_watches.h"

namespace r2ccl::collective {
namespace {

using namespace testing_support;

NicAddress address(size_t rank, size_t nic) { return {uint8_t(rank), uint8_t(nic)}; }

class Job {
 public:
  struct Shape {
    uint32_t ranks = 4, rails = 4;
    double nic_rate = 62.5e6 / 4;  // bytes per second: a message takes 4 ms
    double latency = 0.1e-3;
    double polls_every = 0;      // seconds: ranks that share cores learn of nothing sooner
    /// Seconds for which a rank does not run, now and then, because others have its core: on average, and how much of
    /// the time. 0: never.
    double stalls_for = 0, stalled = 0;
    uint32_t seed = 1;
    bool engine_always = false;  // CollNet carries operations although all nodes are healthy
    uint64_t bytes = 1 << 20;
    size_t open = 8;
  };

  explicit Job(const Shape& shape)
      : shape_(shape), fabric_(std::vector<double>(shape.ranks * shape.rails, shape.nic_rate), shape.latency, shape.rails),
        coordinator_(int(shape.ranks), {}, shape.rails),
        random_(shape.seed) {
    fabric_.watch([this](bool done, uint32_t from, uint32_t to, size_t bytes) { meter(done, from, to, bytes); });
    count_ = shape_.bytes / 4;
    for (uint32_t rank = 0; rank < shape_.ranks; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
    view_.capacities.assign(shape_.ranks, 1.0);
    views_.push_back({0, view_});
  }

  void throttle(size_t rank, size_t nic, double part) {
    fabric_.set_rate(uint32_t(rank * shape_.rails + nic), part * shape_.nic_rate);
  }
  /// Its port says that it is down.
  void lose(size_t rank, size_t nic) {
    Rank& of = *ranks_[rank];
    of.capacity[1 + nic] = 0;
    of.capacity[0] = CapacityCode(of.capacity[0] - kNominal / shape_.rails);
  }
  /// What the newest plan knows of a NIC.
  double knows(size_t rank, size_t nic) const {
    const View& view = views_.back().second;
    return view.nics.empty() ? 1 : view.nics[rank * shape_.rails + nic];
  }
  size_t plans() const { return views_.size() - 1; }
  double now() const { return fabric_.now(); }
  /// For so many seconds, or until `over`; the seconds that it took.
  double run(double seconds, const std::function<bool()>& over = [] { return false; }) {
    const double from = fabric_.now();
    for (uint32_t rank = 0; rank < shape_.ranks; ++rank) poll(rank);
    while (fabric_.now() < from + seconds && !over()) {
      const auto rank = fabric_.step();
      if (!rank) {
        ADD_FAILURE() << "standstill";
        break;
      }
      poll(*rank);
      if (fabric_.now() >= next_look_) look();
    }
    return fabric_.now() - from;
  }
  /// Bytes of AllReduce a second, for so many seconds.
  double rate(double seconds) {
    ended_bytes_ = 0;
    run(seconds);
    return double(ended_bytes_) / seconds;
  }

 private:
  struct Rank {
    Rank(Job& job, uint32_t number)
        : transport(job.fabric_, number),
          executor(transport, ExecutorLimits{.message_bytes = 64 << 10}),
          member({}, job.shape_.rails),
          pacer(10'000'000),
          capacity(1 + job.shape_.rails, kNominal),
          reported(capacity),
          links(job.shape_.ranks * job.shape_.rails, 0),
          own_links(links.size()) {
      executor.set_window(window_for({job.shape_.nic_rate * job.shape_.rails, 0}, job.shape_.rails));
      sent.resize(job.count_);
      for (size_t i = 0; i < job.count_; ++i) sent[i] = int32_t(i * (number + 1) % 1000);
      received.resize(job.count_ * job.shape_.open);
      LinksWanted wanted;
      for (size_t nic = 0; nic < job.shape_.rails; ++nic) wanted.devices.push_back(int(nic));
      for (size_t peer = 0; peer < job.shape_.ranks; ++peer)
        for (size_t nic = 0; nic < job.shape_.rails; ++nic) wanted.peers.push_back(address(peer, nic));
      wanted.changed = [this](std::span<const double> rates) {
        for (size_t i = 0; i < rates.size(); ++i) links[i] = code_of(rates[i]);
      };
      wanted.tried = [this] { return std::exchange(tried, {}); };
      watch = watches.add(std::move(wanted), std::vector<double>(job.shape_.rails, 1.0));
    }
    TimedTransport transport;
    Executor executor;
    LinkMeters meters;
    LinkWatches watches{meters};
    std::unique_ptr<LinkWatch> watch;
    Member member;
    ReportPacer pacer;
    NodeCodes capacity, reported;
    LinkCodes links;
    OwnLinks own_links;
    std::vector<size_t> tried;
    View view;
    uint64_t planned = 0;
    bool follows_plan = false;
    std::vector<int32_t> sent, received;
    std::deque<Executor::Run*> runs;
    double polls_at = 0, stalls_at = 0;
    bool wakes = false;
    std::vector<std::pair<balance::NicMeter*, uint32_t>> done;  // writes since the last poll
    size_t begun = 0, ended = 0;
    std::map<std::pair<uint64_t, size_t>, std::shared_ptr<Program>> programs;  // by epoch and, of rings, by rail
  };

  uint64_t clock() const { return 1'000'000'000 + uint64_t(fabric_.now() * 1e9); }

  void meter(bool done, uint32_t from, uint32_t to, size_t bytes) {
    Rank& rank = *ranks_[from / shape_.rails];
    balance::NicMeter* const link = rank.meters.of(int(from % shape_.rails), address(to / shape_.rails, to % shape_.rails));
    const auto now = [this] { return clock(); };
    if (done && (shape_.polls_every > 0 || fabric_.now() < rank.polls_at)) {
      rank.done.emplace_back(link, uint32_t(bytes));
    } else if (done) {
      link->done(uint32_t(bytes), bytes, now);
    } else {
      link->posted(uint32_t(bytes), now);
      if (rank.follows_plan) rank.planned += bytes;
    }
  }

  const View& view_of(size_t operation) const {
    for (auto it = views_.rbegin(); it != views_.rend(); ++it)
      if (it->first <= operation) return it->second;
    return views_.front().second;
  }

  bool degraded(const View& view) const {
    return std::any_of(view.nics.begin(), view.nics.end(), [](double nic) { return nic < 1; });
  }

  // Healthy nodes run NCCL's rings, each on one NIC; or the engine runs everything.
  std::shared_ptr<Program> program(Rank& rank, uint32_t number, size_t operation) {
    const View& view = view_of(operation);
    const bool engine = shape_.engine_always || degraded(view);
    rank.follows_plan = engine;
    const size_t rail = engine ? 0 : operation % shape_.rails;
    auto& known = rank.programs[{view.epoch, rail}];
    if (known) return known;
    const auto job = job_of(view.capacities, shape_.bytes, outstanding_for(shape_.bytes), {shape_.nic_rate * shape_.rails, 0});
    Schedule schedule = engine ? build(job, plan(job).value().choice()) : ring_allreduce(natural_order(shape_.ranks), 8, 1);
    std::vector<RailShares> rails;
    if (engine) {
      rails = rail_shares(schedule, view.nics, shape_.rails);
    } else {
      RailShares one{};
      one[rail] = kWhole;
      rails.assign(schedule.connections.size(), one);
    }
    return known = std::make_shared<Program>(
               std::move(schedule), number,
               [&](uint32_t peer, bool sends, uint32_t ordinal) { return rank.transport.end(peer, sends, ordinal); },
               std::move(rails), kMostSlots);
  }

  void poll(uint32_t number) {
    Rank& rank = *ranks_[number];
    if (fabric_.now() < rank.polls_at) {
      if (!std::exchange(rank.wakes, true)) fabric_.wake(number, rank.polls_at - fabric_.now());
      return;
    }
    rank.wakes = false;
    rank.polls_at = fabric_.now() + shape_.polls_every;
    if (shape_.stalls_for > 0 && fabric_.now() >= rank.stalls_at) {
      // Time slices, as a scheduler gives them: some long, most short.
      rank.polls_at = fabric_.now() + std::exponential_distribution(1 / shape_.stalls_for)(random_);
      const double runs_for = shape_.stalls_for * (1 - shape_.stalled) / shape_.stalled;
      rank.stalls_at = rank.polls_at + std::exponential_distribution(1 / runs_for)(random_);
    }
    for (const auto& [link, bytes] : rank.done) link->done(bytes, bytes, [this] { return clock(); });
    rank.done.clear();
    go_on(number);
  }

  void go_on(uint32_t number) {
    Rank& rank = *ranks_[number];
    for (bool moved = true; moved;) {
      moved = false;
      while (rank.begun - rank.ended < shape_.open) {
        Work work;
        work.program = program(rank, number, rank.begun);
        work.ranges = std::const_pointer_cast<Program>(work.program)->ranges(count_);
        work.element_bytes = 4;
        work.reduce = reduction_of(DataType::kInt32, Reduction::kSum);
        work.own.base = reinterpret_cast<uintptr_t>(rank.sent.data());
        work.result.base = reinterpret_cast<uintptr_t>(&rank.received[rank.begun % shape_.open * count_]);
        work.others = work.result;
        rank.runs.push_back(rank.executor.begin(std::move(work)));
        ++rank.begun;
        moved = true;
      }
      auto polled = rank.executor.poll();
      ASSERT_TRUE(polled.ok());
      moved |= *polled;
      while (!rank.runs.empty() && rank.executor.finished(rank.runs.front())) {
        check(rank);
        rank.executor.release(rank.runs.front());
        rank.runs.pop_front();
        ++rank.ended;
        if (number == 0) ended_bytes_ += shape_.bytes;
        moved = true;
      }
    }
  }

  void check(const Rank& rank) {
    const int32_t* const got = &rank.received[rank.ended % shape_.open * count_];
    for (size_t i = rank.ended % 61; i < count_; i += 4099) {
      int32_t sum = 0;
      for (const auto& other : ranks_) sum += other->sent[i];
      ASSERT_EQ(got[i], sum) << "operation " << rank.ended << ", element " << i;
    }
  }

  // As Service::look_at_rates, LinkWatch's owner and PlanAgreement do, but without messages under way.
  void look() {
    next_look_ = fabric_.now() + 0.025;
    const uint64_t now = clock();
    const std::vector<double> part(shape_.rails, 1.0);
    for (uint32_t number = 0; number < shape_.ranks; ++number) {
      Rank& rank = *ranks_[number];
      rank.watches.look(now, part, rank.planned, true);
      rank.own_links.set(rank.links);
      if (now < rank.pacer.due(rank.capacity, rank.reported, now, rank.own_links.changed())) continue;
      rank.pacer.done(now);
      rank.reported = rank.capacity;
      std::vector<Coordinator::Outgoing> out;
      coordinator_.on_message(int(number), rank.member.report(rank.capacity, kAllSequences, rank.own_links.tell()), out);
    }
    if (!coordinator_.due(bit(Sequence::kEngine))) return;
    std::vector<Coordinator::Outgoing> out;
    coordinator_.propose(bit(Sequence::kEngine), out);
    uint64_t from = 0;
    for (const auto& rank : ranks_) from = std::max<uint64_t>(from, rank->begun);
    while (!out.empty()) {
      auto messages = std::exchange(out, {});
      for (const auto& [to, message] : messages) {
        std::optional<Decision> decision;
        Points points;
        points.fill(from);
        const auto answer = ranks_[size_t(to)]->member.on_message(message, points, decision);
        if (decision && decision->view) {
          Rank& rank = *ranks_[size_t(to)];
          rank.tried = links_tried(std::exchange(rank.view, *decision->view), rank.view, size_t(to));
          for (const size_t link : rank.tried) rank.links[link] = kLinkUnknown;
          rank.own_links.forget(rank.tried);
          if (to == 0) views_.push_back({from, *decision->view});
        }
        if (answer) coordinator_.on_message(to, *answer, out);
      }
    }
  }

  const Shape shape_;
  TimedFabric fabric_;
  Coordinator coordinator_;
  View view_;
  std::vector<std::pair<uint64_t, View>> views_;  // and the operation from which on each holds
  std::vector<std::unique_ptr<Rank>> ranks_;
  size_t count_ = 0;
  uint64_t ended_bytes_ = 0;
  double next_look_ = 0;
  std::mt19937 random_;
};

// With its small share a NIC does not show its rate: in these cases it looked slow for good.
TEST(PlanLinksTime, a_throttle_is_found_and_so_is_its_end) {
  for (const auto& [latency, polls, part] : {std::tuple{0.1e-3, 0.0, 0.25}, {1e-3, 0.0, 0.5}, {0.1e-3, 6e-3, 0.25}}) {
    const testing::Message which = testing::Message() << latency << " s, " << polls << " s, " << part;
    Job job({.latency = latency, .polls_every = polls});
    job.run(1);
    EXPECT_EQ(job.plans(), 0u) << which;
    job.throttle(1, 0, part);
    EXPECT_LT(job.run(5, [&] { return job.knows(1, 0) < 1; }), 2) << which;
    job.run(2);
    EXPECT_NEAR(job.knows(1, 0), part, 0.3) << which;
    job.throttle(1, 0, 1);
    EXPECT_LT(job.run(20, [&] { return job.knows(1, 0) == 1; }), 15) << which;
    job.run(2);
    EXPECT_EQ(job.knows(1, 0), 1) << which;
  }
}

// Ranks on overloaded cores learn late of what is done, each at other times.
const Job::Shape kLackCores{.rails = 2, .nic_rate = 62.5e6 / 2, .stalls_for = 10e-3, .stalled = 0.4};

TEST(PlanLinksTime, no_nic_is_named_because_ranks_lack_cores) {
  for (const double stalled : {0.4, 0.6})
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Job::Shape shape = kLackCores;
      shape.stalled = stalled;
      shape.seed = seed;
      Job job(shape);
      job.run(20);
      EXPECT_EQ(job.plans(), 0u) << stalled << ", " << seed;
    }
}

TEST(PlanLinksTime, a_nic_that_recovered_is_not_named_again_because_ranks_lack_cores) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    Job::Shape shape = kLackCores;
    shape.seed = seed;
    Job job(shape);
    job.run(2);
    EXPECT_EQ(job.plans(), 0u) << seed;
    job.throttle(1, 0, 0.25);
    EXPECT_LT(job.run(5, [&] { return job.knows(1, 0) < 1; }), 3) << seed;
    job.run(5);
    job.throttle(1, 0, 1);
    EXPECT_LT(job.run(60, [&] { return job.knows(1, 0) == 1; }), 20) << seed;
    job.run(20, [&] { return job.knows(1, 0) < 1; });
    EXPECT_EQ(job.knows(1, 0), 1) << seed;
  }
}

// A trial of a NIC that is still slow costs a moment at the slow NIC's pace.
TEST(PlanLinksTime, a_throttle_that_stays_is_seldom_tried) {
  Job job({.latency = 1e-3});
  job.run(1);
  job.throttle(1, 0, 0.25);
  int times_found = 0;
  for (const double until = job.now() + 25; job.now() < until;) {
    job.run(until - job.now(), [&] { return job.knows(1, 0) < 1; });
    times_found += job.knows(1, 0) < 1;
    job.run(until - job.now(), [&] { return job.knows(1, 0) == 1; });
  }
  EXPECT_GE(times_found, 1);
  EXPECT_LE(times_found, 3);  // again after 4 s and 8 s without a proof at the earliest
}

// All NICs go at the pace of the slowest one, which by their rates is none.
TEST(PlanLinksTime, a_nic_that_all_others_wait_for_is_found_by_its_queue) {
  for (const auto& [latency, part, at_least] : {std::tuple{1e-3, 0.25, 0.5}, {1e-3, 0.5, 0.57}, {0.1e-3, 0.5, 0.6}}) {
    const testing::Message which = testing::Message() << latency << " s, " << part;
    Job job({.latency = latency, .engine_always = true});
    const double healthy = job.rate(1);
    EXPECT_EQ(job.plans(), 0u) << which;
    job.throttle(1, 0, part);
    EXPECT_LT(job.run(3, [&] { return job.knows(1, 0) < 1; }), 1) << which;
    job.run(4);
    EXPECT_GT(job.rate(2), at_least * healthy) << which;  // not at `part`
  }
}

// A lost NIC leaves the others with unequal parts.
TEST(PlanLinksTime, healthy_nics_beside_lost_ones_are_not_slow) {
  for (const double latency : {0.1e-3, 1e-3}) {
    Job job({.latency = latency, .engine_always = true});
    job.run(1);
    job.lose(1, 0);
    job.run(3);
    EXPECT_EQ(job.plans(), 1u) << latency;
    job.lose(3, 2);
    job.run(3);
    EXPECT_EQ(job.plans(), 2u) << latency;
  }
}

}  // namespace
}  // namespace r2ccl::collective
