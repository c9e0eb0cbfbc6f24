// SPDX-License-Identifier: Apache-2.0
// Many work requests in one command.
#include <errno.h>

#include <atomic>
#include <thread>
#include <vector>

#include "faultinject/testing/agent/agent.h"
#include "faultinject/testing/agent/interface.h"

namespace agent {
namespace {

// stream WINDOW BYTES MS ID...: keeps WINDOW writes of BYTES in flight on each pair; answers how long it
// took, for how much of that it did not run, the bytes completed per pair and whether the completions of each
// came in order.
std::string stream(std::istringstream& in) {
  uint64_t window = 0, ms = 0;
  uint32_t bytes = 0;
  in >> window >> bytes >> ms;
  struct Flow {
    Pair* pair;
    uint64_t posted = 0, done = 0;
    bool ordered = true;
  };
  std::vector<Flow> flows;
  for (size_t id; in >> id;) flows.push_back({&pairs.at(id)});
  constexpr uint64_t kPauseNs = 10000000;  // any longer, and the injector need not make it good
  const uint64_t end = now_ns() + ms * 1000000;
  uint64_t paused = 0;
  for (uint64_t last = 0, now = now_ns(); now < end;) {
    for (Flow& flow : flows) {
      while (flow.posted - flow.done < window &&
             post(*flow.pair, IBV_WR_RDMA_WRITE, flow.posted, bytes, 0, true, false) == 0)
        flow.posted++;
      ibv_wc wcs[8];
      const int count = poll_cq(flow.pair->send_cq, 8, wcs);
      for (int i = 0; i < count; i++) {
        if (wcs[i].status != IBV_WC_SUCCESS) return "error status " + std::to_string(wcs[i].status);
        flow.ordered = flow.ordered && wcs[i].wr_id == flow.done;
        flow.done++;
      }
    }
    std::this_thread::yield();
    last = now, now = now_ns();
    if (now - last > kPauseNs) paused += now - last;
  }
  const uint64_t took = now_ns() - (end - ms * 1000000);
  for (Flow& flow : flows) {  // leave nothing in flight
    const uint64_t give_up = now_ns() + 10000000000ull;
    uint64_t done = flow.done;
    while (done < flow.posted && now_ns() < give_up) {
      ibv_wc wc;
      if (poll_cq(flow.pair->send_cq, 1, &wc) == 1) {
        flow.ordered = flow.ordered && wc.wr_id == done;
        done++;
      }
    }
    flow.ordered = flow.ordered && done == flow.posted;
  }
  std::ostringstream out;
  out << "ok " << took << " " << paused;
  for (const Flow& flow : flows) out << " " << flow.done * bytes << ":" << flow.ordered;
  return out.str();
}

// posts ID COUNT: so many writes of 8 bytes, 8 in flight; how many of them were refused with EIO.
std::string posts(std::istringstream& in) {
  size_t id = 0;
  uint64_t count = 0, refused = 0, in_flight = 0;
  in >> id >> count;
  Pair& pair = pairs.at(id);
  while (count > 0 || in_flight > 0) {
    if (count > 0 && in_flight < 8) {
      const int rc = post(pair, IBV_WR_RDMA_WRITE, count, 8, 0, true, false);
      if (rc != 0 && rc != EIO) return "error post " + std::to_string(rc);
      count--;
      refused += rc != 0;
      in_flight += rc == 0;
      continue;
    }
    ibv_wc wcs[8];
    const int done = poll_cq(pair.send_cq, 8, wcs);
    for (int i = 0; i < done; i++)
      if (wcs[i].status != IBV_WC_SUCCESS) return "error status " + std::to_string(wcs[i].status);
    if (done > 0) in_flight -= uint64_t(done);
  }
  return "ok " + std::to_string(refused);
}

// hammer MS ID: one thread posts, two poll, one asks for states, until MS have passed. For data race
// detection.
std::string hammer(std::istringstream& in) {
  uint64_t ms = 0;
  size_t id = 0;
  in >> ms >> id;
  Pair& pair = pairs.at(id);
  const uint64_t end = now_ns() + ms * 1000000;
  std::atomic<uint64_t> posted{0}, completed{0}, failed{0};
  std::atomic<bool> all_posted{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (now_ns() < end) {
      if (posted - completed < 8 && post(pair, IBV_WR_RDMA_WRITE, posted, 4096, 0, true, false) == 0)
        posted++;
      std::this_thread::yield();
    }
    all_posted = true;
  });
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      while (!all_posted || posted != completed) {
        ibv_wc wcs[4];
        const int count = poll_cq(pair.send_cq, 4, wcs);
        for (int k = 0; k < count; k++) failed += wcs[k].status != IBV_WC_SUCCESS;
        if (count > 0) completed += uint64_t(count);
        if (now_ns() > end + 5000000000ull) break;
        std::this_thread::yield();
      }
    });
  threads.emplace_back([&] {
    while (now_ns() < end) {
      ibv_port_attr attr{};
      ibv_query_port(context, 1, &attr);
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) thread.join();
  return "ok " + std::to_string(posted) + " " + std::to_string(completed) + " " + std::to_string(failed);
}

}  // namespace

Commands traffic_commands() {
  return {
      {"stream", stream},
      {"posts", posts},
      {"hammer", hammer},
  };
}

}  // namespace agent
