// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/alone.h"

#include <algorithm>
#include <bit>

#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/lockstep.h"
#include "r2ccl/collective/predictor.h"

namespace r2ccl::collective {
namespace {

double addition_seconds(const Job& job, double fraction) {
  return job.reduce_bytes_per_second > 0
             ? fraction * static_cast<double>(job.bytes) / job.reduce_bytes_per_second
             : 0;
}

/// Nodes that are alike: of about the same capacity.
struct Kind {
  uint16_t out = 0, in = 0;  // ports
  size_t nodes = 0;
};

class Alone {
 public:
  Alone(const Job& job, uint32_t segments, double latency_s)
      : job_(job),
        segments_(segments),
        unit_(static_cast<double>(job.bytes) / job.bytes_per_second),
        lockstep_(latency_s, job.back_s) {}

  /// Divides the nodes into kinds: where a part begins to have them as owners, and where capacities differ,
  /// if few of them do.
  void set_kinds(std::span<const MixPart> parts) {
    const std::vector<double>& c = job_.capacities;
    const Ranks order = by_capacity(c);
    std::vector<size_t> levels, ends{order.size()};
    for (size_t i = 1; i < order.size(); ++i)
      if (c[order[i]] > c[order[levels.empty() ? 0 : levels.back()]] * (1 + kSameLevel)) levels.push_back(i);
    if (levels.size() < kMostLevels) ends.insert(ends.end(), levels.begin(), levels.end());
    for (const MixPart& part : parts)
      if (!part.leaves.empty()) ends.push_back(part.leaves.size());
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    size_t begin = 0;
    for (const size_t end : ends) {
      const double capacity = c[order[begin]];
      Kind kind;
      kind.out = lockstep_.add_port(capacity);
      kind.in = lockstep_.add_port(capacity);
      kind.nodes = end - begin;
      kinds_.push_back(kind);
      begin = end;
    }
  }

  void add_part(const MixPart& part) {
    if (part.leaves.empty()) {
      add_ring(part.fraction);
    } else {
      add_four_stage(part.fraction, part.leaves.size());
    }
  }

  double seconds() { return lockstep_.run(); }

 private:
  Lockstep::Flow start(double fraction, uint32_t segments, double chunk, uint32_t ops,
                       uint32_t credits) const {
    Lockstep::Flow flow;
    flow.chunk = unit_ * chunk;
    flow.weight = fraction;
    flow.segments = segments;
    flow.ops = ops;
    flow.credits = credits;
    // A chunk with fewer messages than NICs leaves some to the others.
    if (const double turns = messages_in_turn(job_, chunk); turns > 1) flow.most = 1 / turns;
    return flow;
  }
  double addition(double chunk) const { return addition_seconds(job_, chunk); }
  void add_ring(double fraction) {
    const size_t p = job_.capacities.size();
    const uint32_t segments = mix_ring_segments(fraction, segments_);
    const double chunk = fraction / (static_cast<double>(p) * kBuilderDepth * segments);
    const auto half = static_cast<uint32_t>((p - 1) * kBuilderDepth);
    Lockstep::Flow flow = start(fraction * ring_volume(p), segments, chunk, 2 * half, kBuilderDepth + 2);
    for (const Kind& kind : kinds_) flow.ports.insert(flow.ports.end(), {{kind.out, 1}, {kind.in, 1}});
    flow.added = half;
    flow.addition = addition(chunk);
    const uint16_t number = lockstep_.add_flow(flow);
    Lockstep::Flow& added = lockstep_.flow(number);
    added.send_after[0] = {Lockstep::receive_lane(number), kBuilderDepth, 2 * half, kBuilderDepth};
    added.receive_after[0] = {Lockstep::send_lane(number), half, 2 * half, static_cast<int32_t>(half)};
  }
  void add_four_stage(double fraction, size_t leaves) {
    const size_t m = job_.capacities.size() - leaves;
    const double owners = static_cast<double>(m), chunk = fraction / (owners * segments_);
    const auto steps = static_cast<uint32_t>(m - 1);
    std::vector<Lockstep::Use> around, owners_in, owners_out;
    size_t before = 0;
    for (const Kind& kind : kinds_) {
      if (before >= leaves) {
        around.insert(around.end(), {{kind.out, 1}, {kind.in, 1}});
        owners_in.push_back({kind.in, 1});
        owners_out.push_back({kind.out, 1});
      }
      before += kind.nodes;
    }
    const double along = fraction * steps / owners;
    uint16_t scatter = 0;
    Lockstep::After ready;  // the operation after which an owner's chunk is complete, as a wait of the first
    if (steps > 0) {
      Lockstep::Flow flow = start(along, segments_, chunk, steps, ScheduleBuilder::kCredits);
      flow.ports = around;
      flow.added = steps;
      flow.addition = addition(chunk);
      scatter = lockstep_.add_flow(flow);
      lockstep_.flow(scatter).send_after[0] = {Lockstep::receive_lane(scatter), 1, steps, 1};
      ready = {Lockstep::receive_lane(scatter), 0, 1, -static_cast<int32_t>(steps - 1)};
    }
    std::vector<uint16_t> in;
    const auto for_each_leaf = [&](auto f) {
      before = 0;
      for (const Kind& kind : kinds_) {
        if (before < leaves) f(kind);
        before += kind.nodes;
      }
    };
    for_each_leaf([&](const Kind& kind) {
      const auto alike = static_cast<double>(kind.nodes);
      Lockstep::Flow flow = start(fraction / owners, segments_, chunk, 1, 2);
      flow.ports.push_back({kind.out, owners});
      for (Lockstep::Use use : owners_in) flow.ports.push_back({use.port, alike});
      flow.added = 1;
      flow.addition = addition(chunk) * alike;
      flow.receive_after[0] = ready;
      in.push_back(lockstep_.add_flow(flow));
      ready = {Lockstep::receive_lane(in.back()), 0, 1, 0};
    });
    size_t leaf = 0;
    for_each_leaf([&](const Kind& kind) {
      Lockstep::Flow flow = start(fraction / owners, segments_, chunk, 1, 2);
      flow.ports.push_back({kind.in, owners});
      for (Lockstep::Use use : owners_out) flow.ports.push_back({use.port, static_cast<double>(kind.nodes)});
      flow.send_after[0] = ready;
      flow.receive_after[0] = {Lockstep::send_lane(in[leaf++]), 0, 1, 0};
      lockstep_.add_flow(flow);
    });
    if (steps == 0) return;
    Lockstep::Flow flow = start(along, segments_, chunk, steps, ScheduleBuilder::kCredits);
    flow.ports = around;
    flow.send_after[0] = ready;
    flow.receive_after[0] = {Lockstep::send_lane(scatter), 0, steps, 0};
    const uint16_t gather = lockstep_.add_flow(flow);
    lockstep_.flow(gather).send_after[1] = {Lockstep::receive_lane(gather), 1, steps, 1};
  }

  const Job& job_;
  const uint32_t segments_;
  const double unit_;
  Lockstep lockstep_;
  std::vector<Kind> kinds_;
};

/// Ranks of a double tree by their height: how many links they are above the lowest in the tree in which they
/// are inner ones. Each is a leaf of the other tree; if their number is odd, rank 0 is a leaf of both.
struct Heights {
  explicit Heights(const std::vector<double>& capacities)
      : ranks(capacities.size()),
        top(static_cast<uint16_t>(std::bit_width(ranks) - 1)),
        children_of_top(std::has_single_bit(ranks) ? 1 : 2),
        capacity(top + 1, *std::max_element(capacities.begin(), capacities.end())) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      uint16_t height = 0;
      double connections = 0;
      for (const size_t position : {rank + 1, rank == 0 ? ranks : rank}) {
        const auto here = static_cast<uint16_t>(std::countr_zero(position));
        height = std::max(height, here);
        connections += (here < top ? 1 : 0) + (here > 0 ? 1 : 0) + (here > 0 && position < ranks ? 1 : 0);
      }
      // A rank with fewer connections than others of its height has more of its ports for each.
      capacity[height] = std::min(capacity[height], capacities[rank] * connections_of(height) / connections);
    }
  }
  bool leaf_of_both() const { return ranks % 2 == 1; }
  /// In each direction, in both trees.
  double connections_of(uint16_t height) const {
    if (height == 0) return 2;
    return 1 + (height < top ? 3 : children_of_top);
  }

  size_t ranks;
  uint16_t top;  ///< of the root
  double children_of_top;
  std::vector<double> capacity;  ///< by height; [0]: of a leaf of both
};

}  // namespace

double alone_tree_seconds(const Job& job, uint32_t segments) {
  const Heights heights(job.capacities);
  const double half = 0.5 / segments;
  Lockstep lockstep(job.latency_s, job.back_s);
  for (const double capacity : heights.capacity)
    for (int port = 0; port < 2; ++port) lockstep.add_port(capacity);
  // The port on the way of the sums, or back.
  const auto port = [](uint16_t height, bool sends) {
    return static_cast<uint16_t>(2 * height + (sends ? 0 : 1));
  };
  const auto up = [](int height) { return static_cast<uint16_t>(height); };
  const auto down = [&](int height) { return static_cast<uint16_t>(heights.top + height); };
  const auto after = [](uint16_t lane) { return Lockstep::After{lane, 0, 1, 0}; };
  for (const bool sums : {true, false}) {
    for (uint16_t height = 0; height < heights.top; ++height) {
      const auto parent = static_cast<uint16_t>(height + 1);
      const double children = parent == heights.top ? heights.children_of_top : 2;
      Lockstep::Flow flow;
      flow.weight = 0.5;
      flow.chunk = half * static_cast<double>(job.bytes) / job.bytes_per_second;
      flow.segments = segments;
      flow.credits = ScheduleBuilder::kCredits;
      flow.ports.push_back({port(parent, !sums), children});
      if (height > 0) flow.ports.push_back({port(height, sums), 1});
      // Leaves are the inner ranks of the other tree, of every height.
      for (uint16_t leaf = 1; height == 0 && leaf <= heights.top; ++leaf)
        flow.ports.push_back({port(leaf, sums), 1});
      if (height == 0 && heights.leaf_of_both()) flow.ports.push_back({port(0, sums), 2});
      if (sums) {
        flow.added = 1;
        flow.addition = children * addition_seconds(job, half);
        flow.adder = parent;
        if (height > 0) flow.send_after[0] = after(Lockstep::receive_lane(up(height - 1)));
      } else {
        flow.send_after[0] = after(Lockstep::receive_lane(parent == heights.top ? up(height) : down(parent)));
        flow.receive_after[0] = after(Lockstep::send_lane(up(height)));
      }
      lockstep.add_flow(flow);
    }
  }
  return lockstep.run();
}

// The ring of a mix goes through the leaves, which have less of their ports for it. So the owners do not stay
// in step, and where a latency is about as long as a chunk, who meets whom at a port is chance. What is left
// of it is the mean over latencies that are a little longer or shorter.
double alone_seconds(const Job& job, std::span<const MixPart> parts, uint32_t segments) {
  constexpr double kAbout = 4;
  bool ring = false, about = false;
  for (const MixPart& part : parts) {
    const double chunk = part.fraction / (static_cast<double>(part.owners.size()) * segments) *
                         static_cast<double>(job.bytes) / job.bytes_per_second;
    ring = ring || part.leaves.empty();
    about =
        about || (!part.leaves.empty() && job.latency_s * kAbout > chunk && job.latency_s < chunk * kAbout);
  }
  const auto seconds = [&](double latency) {
    Alone alone(job, segments, latency);
    alone.set_kinds(parts);
    for (const MixPart& part : parts) alone.add_part(part);
    return alone.seconds();
  };
  if (!ring || !about) return seconds(job.latency_s);
  double sum = 0;
  const auto latencies = {0.8, 0.9, 1.0, 1.1, 1.2};
  for (const double part : latencies) sum += seconds(part * job.latency_s);
  return sum / static_cast<double>(latencies.size());
}

double alone_ring_seconds(const Job& job, const Ranks& order, double fraction, uint32_t segments) {
  const size_t p = order.size();
  if (p < 2) return 0;
  const size_t hops = 2 * (p - 1) - 1;
  const double part = fraction / (static_cast<double>(p) * kBuilderDepth * segments);
  const double chunk = part * static_cast<double>(job.bytes) / job.bytes_per_second;
  const auto capacity = [&](size_t at) { return job.capacities[order[at % p]]; };
  const auto hop = [&](size_t from) { return chunk / std::min(capacity(from), capacity(from + 1)); };
  double around = 0, least = capacity(0);
  for (size_t i = 0; i < hops; ++i) around += hop(i);
  double most = around;
  for (size_t first = 1; first < p; ++first) {
    around += hop(first + hops - 1) - hop(first - 1);
    most = std::max(most, around);
    least = std::min(least, capacity(first));
  }
  const double step = kBuilderDepth * chunk / least;
  const double waits =
      static_cast<double>(hops) * job.latency_s + static_cast<double>(p - 1) * addition_seconds(job, part);
  return segments * std::max(static_cast<double>(hops + 1) * step, most + waits + step);
}

}  // namespace r2ccl::collective
