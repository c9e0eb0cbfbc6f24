// SPDX-License-Identifier: Apache-2.0
// What a message costs over R2CCL and over NCCL's own IB transport, in one process, over the virtual HCA at
// unlimited rate: the calls that NCCL's proxy makes, without NCCL and without a GPU. Both ends are in one
// thread, so that the time is CPU time of both. With random interleaving the transports take turns:
//   transports_bench libnccl-net-r2ccl.so libnccl.so.2 --benchmark_repetitions=40
//   --benchmark_enable_random_interleaving=true
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/vhca/fabric/fabric_host.h"
#include "harness/workload/cpu/nccl_ib.h"
#include "harness/workload/cpu/net_plugin.h"

namespace {

using namespace r2bench;
using r2ccl::nccl_abi::ncclSuccess;

void must(NetPlugin::Status status, const char* call) {
  if (status != ncclSuccess) throw PluginError(std::string(call) + " failed: " + describe(status));
}

/// One connection of a transport with itself, and memory that is registered at both of its ends.
class Connection {
 public:
  explicit Connection(NetPlugin& net) : net_(net) {
    alignas(8) std::array<char, 128> handle{};
    void* listener = nullptr;
    must(net.listen(0, handle.data(), &listener), "listen");
    while (!sender_ || !receiver_) {
      if (!sender_) must(net.connect(0, handle.data(), &sender_), "connect");
      if (!receiver_) must(net.accept(listener, &receiver_), "accept");
    }
    must(net.close_listen(listener), "closeListen");
    must(net.reg(sender_, out_.data(), out_.size(), &out_key_), "regMr");
    must(net.reg(receiver_, in_.data(), in_.size(), &in_key_), "regMr");
  }
  /// They are posted. NULL: not now.
  void* send(size_t bytes) {
    void* request = nullptr;
    must(net_.isend(sender_, out_.data(), bytes, 0, out_key_, &request), "isend");
    return request;
  }
  void* receive(size_t bytes) {
    void* request = nullptr;
    must(net_.irecv(receiver_, in_.data(), bytes, 0, in_key_, &request), "irecv");
    return request;
  }
  bool done(void* request) {
    bool done = false;
    size_t bytes = 0;
    must(net_.test(request, &done, &bytes), "test");
    return done;
  }
  void* receive_now(size_t bytes) {
    void* request = nullptr;
    while (!request) request = receive(bytes);
    return request;
  }

 private:
  NetPlugin& net_;
  void *sender_ = nullptr, *receiver_ = nullptr, *out_key_ = nullptr, *in_key_ = nullptr;
  std::vector<char> out_ = std::vector<char>(64 << 10), in_ = std::vector<char>(64 << 10);
};

using Connections = std::vector<std::unique_ptr<Connection>>;
/// The connections stay until the process ends.
Connections* connect(NetPlugin& net, int count) {
  auto* const made = new Connections;
  for (int i = 0; i < count; ++i) made->push_back(std::make_unique<Connection>(net));
  return made;
}

/// One message at a time, over each connection in turn: with many, what the transport keeps of one is no
/// longer in the cache. As with NCCL, its receive is posted long before.
void message(benchmark::State& state, Connections* connections, size_t bytes) {
  std::vector<void*> receives;
  for (auto& c : *connections) receives.push_back(c->receive_now(bytes));
  size_t turn = 0;
  for (auto _ : state) {
    Connection& c = *(*connections)[turn];
    void*& receive = receives[turn];
    if (++turn == receives.size()) turn = 0;
    void* const next = c.receive_now(bytes);
    void* send = nullptr;
    while (!send) send = c.send(bytes);
    while (!c.done(receive)) {
    }
    while (!c.done(send))
      if (c.done(next)) state.SkipWithError("a message has come that was not sent");
    receive = next;
  }
  for (turn = 0; turn < receives.size(); ++turn) {
    Connection& c = *(*connections)[turn];
    void* last = nullptr;
    while (!last) last = c.send(bytes);
    while (!c.done(receives[turn])) {
    }
    while (!c.done(last)) {
    }
  }
}

/// A test of a receive for which nothing has come.
void test_in_vain(benchmark::State& state, Connection* connection, size_t bytes) {
  Connection& c = *connection;
  void* const receive = c.receive_now(bytes);
  for (auto _ : state)
    if (c.done(receive)) state.SkipWithError("something has come");
  void* send = nullptr;
  while (!send) send = c.send(bytes);
  while (!c.done(receive)) {
  }
  while (!c.done(send)) {
  }
}

/// An isend whose receive is not posted.
void send_in_vain(benchmark::State& state, Connection* connection, size_t bytes) {
  for (auto _ : state)
    if (connection->send(bytes)) state.SkipWithError("there was a receive");
}

void quiet(r2ccl::nccl_abi::ncclDebugLogLevel, unsigned long, const char*, int, const char*, ...) {}

struct Transport {
  std::string name;
  std::unique_ptr<NetPlugin> net;
};

void add(const Transport& transport) {
  must(transport.net->init(quiet), "init");
  Connections* const one = connect(*transport.net, 1);
  Connection* const connection = one->front().get();
  const auto name = [&](const char* what, size_t bytes) {
    return std::string(what) + "<" + transport.name + ">/" + std::to_string(bytes);
  };
  for (const size_t bytes : {size_t{16}, size_t{1} << 10, size_t{64} << 10})
    benchmark::RegisterBenchmark(name("message", bytes).c_str(), message, one, bytes)->UseRealTime();
  Connections* const many = connect(*transport.net, 256);
  benchmark::RegisterBenchmark(name("in_turn", 16).c_str(), message, many, 16)->UseRealTime();
  benchmark::RegisterBenchmark(name("test_in_vain", 16).c_str(), test_in_vain, connection, 16)->UseRealTime();
  benchmark::RegisterBenchmark(name("send_in_vain", 16).c_str(), send_in_vain, connection, 16)->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  // The virtual HCA's libibverbs must be bound at load: start over with it in front.
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string vhca = (bin / "../lib/vhca").string();
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (!path || std::string_view(path).find(vhca) == std::string_view::npos) {
    setenv("LD_LIBRARY_PATH", (path && *path ? vhca + ":" + path : vhca).c_str(), 1);
    execv("/proc/self/exe", argv);
    std::perror("transports_bench: cannot start again with the virtual HCA");
    return 70;
  }
  vhca::FabricSpec spec;
  spec.nodes.push_back({"node0", {{}, {}}});
  const vhca::FabricHost fabric = vhca::FabricHost::create(spec);
  setenv("VHCA_FABRIC", fabric.path().c_str(), 1);
  setenv("VHCA_NODE", "node0", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  benchmark::Initialize(&argc, argv);
  try {
    std::vector<Transport> transports;
    for (int i = 1; i < argc; ++i)
      transports.push_back({std::filesystem::path(argv[i]).filename().string(), load_net_plugin(argv[i], 0)});
    if (transports.empty()) {
      std::fprintf(stderr,
                   "usage: transports_bench LIBRARY… [--benchmark_…]: net plugins, or libnccl.so.2 for "
                   "NCCL's own IB transport\n");
      return 64;
    }
    for (const Transport& transport : transports) add(transport);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const PluginError& error) {
    std::fprintf(stderr, "transports_bench: %s\n", error.what());
    return 70;
  }
  std::fflush(nullptr);
  _exit(0);  // the connections are open: nobody is to take them apart
}
