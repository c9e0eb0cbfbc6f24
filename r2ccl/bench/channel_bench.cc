// SPDX-License-Identifier: Apache-2.0
// What a message costs: CPU time of both ends of a channel, in one thread of one process, over the virtual
// HCA at unlimited rate. R2CC_MODE and R2CC_STRICT_ACK choose what is measured; `verbs` is the same message
// by bare verbs calls on the same device, so that the difference is the channel's own cost.
//   R2CC_MODE=0 channel_bench; R2CC_MODE=1 channel_bench
#include <benchmark/benchmark.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/vhca/fabric/fabric_host.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/path/path.h"
#include "r2ccl/service/net.h"
#include "r2ccl/tests/testing/written.h"

namespace {

using namespace r2ccl;

[[noreturn]] void die(const Error& error) {
  std::fprintf(stderr, "channel_bench: %s: %s\n", std::string(name(error.code)).c_str(),
               error.message.c_str());
  std::exit(70);
}

template <typename T>
T must(Result<T> result) {
  if (!result) die(result.error());
  return std::move(*result);
}

struct Loop {
  Net* net = must(Net::acquire(nullptr));
  Channel* sender = nullptr;
  Channel* receiver = nullptr;
  std::vector<char> out = std::vector<char>(4 << 20), in = std::vector<char>(4 << 20);
  Registration* out_reg = nullptr;
  Registration* in_reg = nullptr;

  Loop() {
    std::array<std::byte, kHandleBytes> handle{};
    Listener* listener = must(net->listen(0, handle.data()));
    while (!sender || !receiver) {
      if (!sender) sender = must(net->connect(0, handle.data()));
      if (!receiver) receiver = must(net->accept(listener));
    }
    if (auto closed = net->close(listener); !closed) die(closed.error());
    out_reg = must(net->reg(sender, out.data(), out.size()));
    in_reg = must(net->reg(receiver, in.data(), in.size()));
  }
};

Loop& loop() {
  static Loop* const only = new Loop;
  return *only;
}

// One message at a time: irecv, isend, test until both are done.
void channel_message(benchmark::State& state) {
  Loop& l = loop();
  const auto bytes = size_t(state.range(0));
  for (auto _ : state) {
    Request* receive = nullptr;
    while (!receive) receive = must(l.net->irecv(l.receiver, l.in.data(), bytes, l.in_reg));
    Request* send = nullptr;
    while (!send) send = must(l.net->isend(l.sender, l.out.data(), bytes, l.out_reg));
    while (!must(l.net->test(receive)).done) {
    }
    while (!must(l.net->test(send)).done) {
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * int64_t(bytes));
}

// What a thread does while it waits: a test of a receive for which nothing has come. Before that messages of
// the same size have gone over the channel, so that a lost NIC is known and lanes are there.
void test_in_vain(benchmark::State& state) {
  Loop& l = loop();
  const auto bytes = size_t(state.range(0));
  const auto receive = [&] {
    Request* request = nullptr;
    while (!request) request = must(l.net->irecv(l.receiver, l.in.data(), bytes, l.in_reg));
    return request;
  };
  const auto arrive = [&](Request* request) {
    Request* send = nullptr;
    while (!send) send = must(l.net->isend(l.sender, l.out.data(), bytes, l.out_reg));
    while (!must(l.net->test(request)).done) {
    }
    while (!must(l.net->test(send)).done) {
    }
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < until) arrive(receive());
  Request* const open = receive();
  for (auto _ : state)
    if (must(l.net->test(open)).done) state.SkipWithError("something has come");
  arrive(open);
}

// channel_message, each call when its work is done, so that every call is made once: what instructions.py counts.
[[gnu::noinline]] void paced_messages(benchmark::State& state, Loop& l) {
  const auto bytes = size_t(state.range(0));
  uint64_t calls = 0;
  const auto pause = [] { usleep(400); };
  const auto once = [&](auto&& call) {
    for (;;) {
      pause();
      ++calls;
      if (auto* request = must(call())) return request;
    }
  };
  const auto done = [&](Request* request) {
    do pause(), ++calls;
    while (!must(l.net->test(request)).done);
  };
  for (auto _ : state) {
    Request* receive = once([&] { return l.net->irecv(l.receiver, l.in.data(), bytes, l.in_reg); });
    Request* send = once([&] { return l.net->isend(l.sender, l.out.data(), bytes, l.out_reg); });
    done(receive);
    done(send);
  }
  state.counters["calls"] = double(calls) / double(state.iterations());
}
void paced_message(benchmark::State& state) { paced_messages(state, loop()); }

// Operations of range(0) messages as NCCL's proxy makes them, over eight channels in turn: at most eight
// receives are open, and each is posted again when a GPU has taken its message, after range(2) microseconds.
// So the last eight messages have no CTS entry behind them on which an ACK could piggyback. Before it sends
// the next message the GPU takes range(1) microseconds; meanwhile the thread tests in vain what it has open.
// All times are CPU time of the thread. Counts the ACKs per message.
struct Proxy {
  static constexpr size_t kBytes = wire::kCopiedBytes + 1024, kWindow = 8;  // not copied
  Loop channel;
  std::array<Request*, kWindow> receives{}, sends{};
  std::array<int64_t, kWindow> taken{};  // when the GPU has taken what was there
  size_t opened = 0, received = 0, posted = 0, sent = 0;
  int64_t next = 0;  // when the GPU has the next message

  /// What NCCL does in one turn of its thread, as long as it returns true.
  bool progress(size_t messages, int64_t now, int64_t gap, int64_t takes) {
    Net& net = *channel.net;
    while (opened < std::min(messages, received + kWindow) && now >= taken[opened % kWindow] &&
           (receives[opened % kWindow] =
                must(net.irecv(channel.receiver, channel.in.data(), kBytes, channel.in_reg))))
      ++opened;
    if (received < opened && must(net.test(receives[received % kWindow])).done) {
      taken[received++ % kWindow] = now + takes;
      next = now + gap;
    }
    if (posted < messages && posted == received && posted < sent + kWindow && now >= next &&
        (sends[posted % kWindow] =
             must(net.isend(channel.sender, channel.out.data(), kBytes, channel.out_reg))))
      ++posted;
    if (sent < posted && must(net.test(sends[sent % kWindow])).done) ++sent;
    return received < messages || sent < messages;
  }
};

int64_t thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void operations(benchmark::State& state) {
  constexpr size_t kChannels = 8;
  static auto& proxies = *new std::array<Proxy, kChannels>;
  static const testing_support::Written written(proxies[0].channel.receiver->context());
  const auto messages = size_t(state.range(0));
  const int64_t gap = state.range(1) * 1000, takes = state.range(2) * 1000;
  const unsigned acks = testing_support::Written::acks();
  for (auto _ : state) {
    const int64_t start = thread_ns();
    for (size_t c = 0; c < kChannels; ++c) {
      Proxy& p = proxies[c];
      p.opened = p.received = p.posted = p.sent = 0;
      p.next = start + int64_t(c) * gap / int64_t(kChannels);
      p.taken = {};
    }
    for (bool open = true; open;) {
      const int64_t now = thread_ns();
      open = false;
      for (Proxy& p : proxies) open |= p.progress(messages, now, gap, takes);
    }
    state.SetIterationTime(double(thread_ns() - start) * 1e-9);
  }
  state.counters["acks"] = double(testing_support::Written::acks() - acks) /
                           (double(state.iterations()) * double(kChannels * messages));
}

// The same transfer without a channel: WRITE_WITH_IMM, both completions polled, the receive given back.
void verbs_message(benchmark::State& state) {
  const auto bytes = uint32_t(state.range(0));
  Config config = must(Config::from_environment());
  static std::vector<verbs::Device> devices = must(verbs::Device::open_all(config));
  verbs::Device& device = devices[0];
  Job job;
  auto one = Path::create(1, 0, 0, device, ChannelMemory::make(), true, false, false, job);
  auto two = Path::create(1, 0, 0, device, ChannelMemory::make(), true, false, false, job);
  if (!one) die(one.error());
  if (!two) die(two.error());
  Path &from = **one, &to = **two;
  if (auto ok = from.connect(device, to.describe(device), config, job); !ok) die(ok.error());
  if (auto ok = to.connect(device, from.describe(device), config, job); !ok) die(ok.error());
  static std::vector<char> out(4 << 20), in(4 << 20);
  auto out_region = verbs::MemoryRegion::create(device, out.data(), out.size());
  auto in_region = verbs::MemoryRegion::create(device, in.data(), in.size());
  if (!out_region) die(out_region.error());
  if (!in_region) die(in_region.error());
  ibv_wc completion;
  for (auto _ : state) {
    if (from.data.post_write_imm(1, out.data(), bytes, out_region->lkey(), uint64_t(in.data()),
                                 in_region->rkey(), 7) != 0)
      state.SkipWithError("post failed");
    while (to.queue.poll({&completion, 1}) == 0) {
    }
    if (completion.status != IBV_WC_SUCCESS || to.data.post_receive(completion.wr_id) != 0)
      state.SkipWithError("receive failed");
    while (from.queue.poll({&completion, 1}) == 0) {
    }
    if (completion.status != IBV_WC_SUCCESS) state.SkipWithError("send failed");
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * int64_t(bytes));
}

BENCHMARK(verbs_message)->Arg(8)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();
BENCHMARK(paced_message)->Arg(8)->Arg(64 << 10)->Iterations(1000)->UseRealTime();
BENCHMARK(channel_message)->Arg(8)->Arg(8 << 10)->Arg(64 << 10)->Arg(1 << 20)->UseRealTime();
BENCHMARK(test_in_vain)->Arg(8)->UseRealTime();
BENCHMARK(operations)->ArgsProduct({{4, 32}, {5, 20, 50}, {1, 10}})->UseManualTime();

}  // namespace

int main(int argc, char** argv) {
  // The virtual HCA's libibverbs must be bound at load: start over with it in front.
  const std::string vhca =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../lib/vhca").string();
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (!path || std::string(path).find(vhca) == std::string::npos) {
    setenv("LD_LIBRARY_PATH", (path && *path ? vhca + ":" + path : vhca).c_str(), 1);
    execv("/proc/self/exe", argv);
    std::perror("channel_bench: cannot start again with the virtual HCA");
    return 70;
  }
  std::optional<vhca::FabricHost> fabric;
  if (!std::getenv("VHCA_FABRIC")) {  // r2bench exec brings one, with more NICs, and faults
    vhca::FabricSpec spec;
    spec.nodes.push_back({"node0", {{}, {}}});
    fabric.emplace(vhca::FabricHost::create(spec));
    setenv("VHCA_FABRIC", fabric->path().c_str(), 1);
    setenv("VHCA_NODE", "node0", 1);
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  const char* mode = std::getenv("R2CC_MODE");
  benchmark::AddCustomContext("R2CC_MODE", mode && *mode ? mode : "1 (default)");
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
