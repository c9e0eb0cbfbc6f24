// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/fabric/port_clock.h"

#include <algorithm>
#include <array>

#include "harness/vhca/base/pause_point.h"

namespace vhca {
namespace {

using Clock = RateServer::Clock;
__extension__ typedef unsigned __int128 Uint128;  // "__extension__": ISO C++ has no such type

bool swap_clock(RateServer& server, const Clock& expected, const Clock& wanted) {
  const auto pack = [](const Clock& c) { return static_cast<Uint128>(c.virtual_bytes) << 64 | c.time_ns; };
  return __sync_bool_compare_and_swap(reinterpret_cast<Uint128*>(&server.clock), pack(expected),
                                      pack(wanted));
}

// May be a mixture of two states while someone changes it; then swap_clock refuses it.
Clock read_clock(const RateServer& server) {
  return {__atomic_load_n(&server.clock.time_ns, __ATOMIC_ACQUIRE),
          __atomic_load_n(&server.clock.virtual_bytes, __ATOMIC_ACQUIRE)};
}

// What is left to serve per flow with work, relative to V, ascending.
struct Backlog {
  std::array<std::int64_t, kFlowsPerServer> left;
  std::size_t count = 0;
};

void collect(RateServer& server, std::uint64_t v, Backlog& out) {
  out.count = 0;
  const std::uint32_t words = server.words_used.load(std::memory_order_relaxed);
  for (std::uint32_t w = 0; w < words; ++w) {
    for (std::uint64_t bits = server.active[w].load(); bits != 0; bits &= bits - 1) {
      const std::uint32_t index = w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      const auto left =
          static_cast<std::int64_t>(server.finish_tag[index].load(std::memory_order_relaxed) - v);
      if (left > 0) out.left[out.count++] = left;
    }
  }
  std::sort(out.left.begin(), out.left.begin() + static_cast<std::ptrdiff_t>(out.count));
}

// Serves the backlog from clock.time_ns until `until_ns`, or until V has advanced by `until_v`, whichever
// comes first.
Clock serve(const RateServer& server, Clock clock, const Backlog& backlog, std::uint64_t until_ns,
            std::int64_t until_v) {
  std::int64_t done = 0;  // advance of V so far
  for (std::size_t i = 0; i < backlog.count && clock.time_ns < until_ns && done < until_v; ++i) {
    const std::int64_t step = std::min(backlog.left[i], until_v) - done;
    if (step <= 0) continue;
    const std::uint64_t sharing = backlog.count - i;
    const Uint128 work = static_cast<Uint128>(static_cast<std::uint64_t>(step)) * sharing;
    const auto needed = static_cast<std::uint64_t>((work + server.rate - 1) / server.rate);
    const std::uint64_t available = until_ns - clock.time_ns;
    if (needed > available) {
      const auto served = static_cast<std::int64_t>(static_cast<Uint128>(available) * server.rate / sharing);
      done += std::min(served, step);
      clock.time_ns = until_ns;
    } else {
      done += step;
      clock.time_ns += needed;
    }
  }
  clock.virtual_bytes += static_cast<std::uint64_t>(done);
  return clock;
}

void drop_idle(RateServer& server, std::uint64_t v) {
  const std::uint32_t words = server.words_used.load(std::memory_order_relaxed);
  for (std::uint32_t w = 0; w < words; ++w) {
    for (std::uint64_t bits = server.active[w].load(); bits != 0; bits &= bits - 1) {
      const std::uint64_t bit = bits & -bits;
      const std::uint32_t index = w * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      if (static_cast<std::int64_t>(server.finish_tag[index].load() - v) > 0) continue;
      server.active[w].fetch_and(~bit);
      // Its owner may have given it work in between: the tag is written before the bit.
      if (static_cast<std::int64_t>(server.finish_tag[index].load() - v) > 0) server.active[w].fetch_or(bit);
    }
  }
}

// Brings the server to time now (never back) and returns the state reached.
Clock advance(RateServer& server, std::uint64_t now_ns, Backlog& backlog) {
  for (;;) {
    const Clock seen = read_clock(server);
    if (seen.time_ns >= now_ns) {
      collect(server, seen.virtual_bytes, backlog);
      return seen;
    }
    collect(server, seen.virtual_bytes, backlog);
    Clock next = serve(server, seen, backlog, now_ns, INT64_MAX);
    next.time_ns = now_ns;  // idle time passes without service
    if (!swap_clock(server, seen, next)) continue;
    const auto passed = static_cast<std::int64_t>(next.virtual_bytes - seen.virtual_bytes);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < backlog.count; ++i)
      if (backlog.left[i] > passed) backlog.left[kept++] = backlog.left[i] - passed;
    if (kept != backlog.count) drop_idle(server, next.virtual_bytes);
    backlog.count = kept;
    return next;
  }
}

}  // namespace

void init_server(RateServer& server, std::uint64_t rate_bits_per_s, std::uint64_t now_ns) {
  // bits/s / 8 / 10^9 * 2^20, rounded.
  server.rate = static_cast<std::uint64_t>(
      ((static_cast<Uint128>(rate_bits_per_s) << kVirtualByteBits) + 4'000'000'000) / 8'000'000'000);
  if (rate_bits_per_s != 0 && server.rate == 0) server.rate = 1;
  server.clock = {now_ns, 0};
}

Flow open_flow(RateServer& server, std::uint32_t owner_qp, std::uint32_t percent) {
  if (server.rate == 0) return {};
  for (std::uint32_t i = 0; i < kFlowsPerServer; ++i) {
    std::uint32_t expected = 0;
    if (server.flow_owner[i].load(std::memory_order_relaxed) != 0) continue;
    raise_mark(server.words_used, i / 64 + 1);  // before the claim: what is claimed is always below the mark
    if (!server.flow_owner[i].compare_exchange_strong(expected, owner_qp)) continue;
    VHCA_PAUSE_POINT(flow_claimed);
    // What its last owner had reserved dies with it.
    server.finish_tag[i].store(read_clock(server).virtual_bytes);
    server.active[i / 64].fetch_and(~(1ull << (i % 64)));
    return {&server, i, (100ull << kVirtualByteBits) / percent};
  }
  return {};
}

namespace {

// The flow has no work any more. What is known of the times of others is too late then.
void make_idle(RateServer& server, std::uint32_t index) {
  const std::uint64_t bit = 1ull << (index % 64);
  if ((server.active[index / 64].fetch_and(~bit) & bit) != 0) server.taken_back.fetch_add(1);
}

}  // namespace

void close_flow(Flow& flow) {
  if (!flow.paced()) return;
  make_idle(*flow.server, flow.index);
  flow.server->flow_owner[flow.index].store(0);
  flow = {};
}

void release_flows_of(RateServer& server, std::uint32_t owner_qp) {
  const std::uint32_t words = server.words_used.load();
  for (std::uint32_t i = 0; i < words * 64; ++i) {
    if (server.flow_owner[i].load(std::memory_order_relaxed) != owner_qp) continue;
    VHCA_PAUSE_POINT(flow_seen);
    make_idle(server, i);
    std::uint32_t expected = owner_qp;
    server.flow_owner[i].compare_exchange_strong(expected, 0);
  }
}

std::uint64_t reserve(const Flow& flow, std::uint64_t bytes, std::uint64_t now_ns) {
  RateServer& server = *flow.server;
  Backlog backlog;
  const Clock clock = advance(server, now_ns, backlog);
  const std::uint64_t bit = 1ull << (flow.index % 64);
  std::atomic<std::uint64_t>& word = server.active[flow.index / 64];
  std::uint64_t begin = server.finish_tag[flow.index].load(std::memory_order_relaxed);
  if (static_cast<std::int64_t>(begin - clock.virtual_bytes) < 0) begin = clock.virtual_bytes;
  server.finish_tag[flow.index].store(begin + flow.work_of(bytes));
  if (bytes != 0) word.fetch_or(bit);
  return begin;
}

void cancel_rest(const Flow& flow, std::uint64_t now_ns) {
  if (!flow.paced()) return;
  Backlog backlog;
  const Clock clock = advance(*flow.server, now_ns, backlog);
  std::atomic<std::uint64_t>& tag = flow.server->finish_tag[flow.index];
  if (static_cast<std::int64_t>(tag.load() - clock.virtual_bytes) > 0) tag.store(clock.virtual_bytes);
  make_idle(*flow.server, flow.index);
}

namespace {

// The server at time now, with the flow active if it has work. A reclaimer that was held up between its look
// at the owner and what follows (release_flows_of) clears the bit of the flow's next owner; that one's next
// look mends it.
Clock look(const Flow& flow, std::uint64_t now_ns, Backlog& backlog) {
  RateServer& server = *flow.server;
  const Clock clock = advance(server, now_ns, backlog);
  std::atomic<std::uint64_t>& word = server.active[flow.index / 64];
  const std::uint64_t bit = 1ull << (flow.index % 64);
  if (word.load(std::memory_order_relaxed) & bit) return clock;
  if (static_cast<std::int64_t>(server.finish_tag[flow.index].load() - clock.virtual_bytes) <= 0)
    return clock;
  word.fetch_or(bit);
  collect(server, clock.virtual_bytes, backlog);
  return clock;
}

}  // namespace

std::uint64_t unserved_bytes(const Flow& flow, std::uint64_t now_ns) {
  RateServer& server = *flow.server;
  Backlog backlog;
  const Clock clock = look(flow, now_ns, backlog);
  if (!(server.active[flow.index / 64].load() >> (flow.index % 64) & 1)) return 0;
  const auto left = static_cast<std::int64_t>(server.finish_tag[flow.index].load() - clock.virtual_bytes);
  return left <= 0 ? 0 : (static_cast<std::uint64_t>(left) + flow.per_byte - 1) / flow.per_byte;
}

std::uint64_t served_bytes(const Flow& flow, std::uint64_t begin_tag, std::uint64_t now_ns) {
  Backlog backlog;
  const auto done = static_cast<std::int64_t>(look(flow, now_ns, backlog).virtual_bytes - begin_tag);
  return done <= 0 ? 0 : static_cast<std::uint64_t>(done) / flow.per_byte;
}

std::uint64_t time_of_tag(const Flow& flow, std::uint64_t tag, std::uint64_t now_ns) {
  RateServer& server = *flow.server;
  Backlog backlog;
  const Clock clock = look(flow, now_ns, backlog);
  const auto left = static_cast<std::int64_t>(tag - clock.virtual_bytes);
  if (left <= 0) return 0;
  const Clock then = serve(server, clock, backlog, UINT64_MAX, left);
  return std::max(then.time_ns, now_ns + 1);
}

}  // namespace vhca
