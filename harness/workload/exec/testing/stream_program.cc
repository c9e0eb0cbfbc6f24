// SPDX-License-Identifier: Apache-2.0
// A program as a user would run it under the engine exec: it knows RANK, MASTER_PORT and NCCL_NET_PLUGIN
// alone. Rank 1 listens on the plugin's NICs and tells rank 0 where over TCP; rank 0 sends STEPS times eight
// messages of 1 MiB over each NIC; rank 1 compares every byte and prints how long each step took. Exit status
// 3: an error or wrong data.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "harness/workload/cpu/net_plugin.h"
#include "harness/workload/cpu/plugin_log.h"

namespace {

using namespace r2bench;
using r2ccl::nccl_abi::ncclSuccess;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 1 << 20;
constexpr int kMessages = 8;
constexpr size_t kHandle = r2ccl::nccl_abi::NCCL_NET_HANDLE_MAXSIZE;

[[noreturn]] void die(const std::string& why) {
  printf("stream: %s\n", why.c_str());
  fflush(stdout);
  _exit(3);
}

void check(const char* call, NetPlugin::Status status) {
  if (status != ncclSuccess) die(std::string(call) + " failed: " + describe(status));
}

int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) die(std::string(variable) + " is not set");
  return std::atoi(text);
}

/// A connection to the other rank.
int meet(bool listens) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(number("MASTER_PORT")));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (listens) {
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, where, sizeof(address)) != 0 || listen(fd, 1) != 0) die("cannot listen");
    return accept(fd, nullptr, nullptr);
  }
  for (int i = 0; i < 1000; ++i) {
    if (connect(fd, where, sizeof(address)) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  die("nobody listens");
}

struct Stream {
  void *listener = nullptr, *comm = nullptr, *registration = nullptr;
  std::vector<char> handle = std::vector<char>(kHandle), data = std::vector<char>(kBytes * kMessages);
};

char byte_of(int step, int message, size_t i) { return char(step * 31 + message * 7 + int(i % 251)); }

void transfer(NetPlugin& plugin, std::vector<Stream>& streams, bool sends) {
  std::vector<void*> open;
  for (int m = 0; m < kMessages; ++m)
    for (Stream& stream : streams) {
      void* request = nullptr;
      char* data = stream.data.data() + size_t(m) * kBytes;
      while (!request) {
        request = plugin.abi() >= 9 ? reinterpret_cast<void*>(1) : nullptr;
        check(sends ? "isend" : "irecv",
              sends ? plugin.isend(stream.comm, data, kBytes, 0, stream.registration, &request)
                    : plugin.irecv(stream.comm, data, kBytes, 0, stream.registration, &request));
      }
      open.push_back(request);
    }
  for (void* request : open)
    for (bool done = false; !done;) {
      size_t bytes = 0;
      check("test", plugin.test(request, &done, &bytes));
    }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 10;
  const bool sends = number("RANK") == 0;
  const auto plugin = load_net_plugin(std::getenv("NCCL_NET_PLUGIN"), 0);
  check("init", plugin->init(plugin_logger));
  int devices = 0;
  check("devices", plugin->devices(&devices));
  std::vector<Stream> streams{size_t(devices)};
  const int peer = meet(!sends);
  for (int d = 0; d < devices; ++d) {
    Stream& stream = streams[size_t(d)];
    if (!sends) check("listen", plugin->listen(d, stream.handle.data(), &stream.listener));
    if (!sends && write(peer, stream.handle.data(), kHandle) != ssize_t(kHandle)) die("write");
    if (sends && recv(peer, stream.handle.data(), kHandle, MSG_WAITALL) != ssize_t(kHandle)) die("recv");
  }
  for (bool all = false; !all;) {
    all = true;
    for (int d = 0; d < devices; ++d) {
      Stream& stream = streams[size_t(d)];
      if (!stream.comm)
        check("connect", sends ? plugin->connect(d, stream.handle.data(), &stream.comm)
                               : plugin->accept(stream.listener, &stream.comm));
      all = all && stream.comm;
    }
  }
  for (Stream& stream : streams)
    check("regMr", plugin->reg(stream.comm, stream.data.data(), stream.data.size(), &stream.registration));
  if (!sends) printf("streaming begins\n");
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    for (Stream& stream : streams)
      for (size_t i = 0; i < stream.data.size(); ++i)
        stream.data[i] = sends ? byte_of(step, int(i / kBytes), i % kBytes) : 0;
    transfer(*plugin, streams, sends);
    if (sends) continue;
    for (Stream& stream : streams)
      for (size_t i = 0; i < stream.data.size(); ++i)
        if (stream.data[i] != byte_of(step, int(i / kBytes), i % kBytes))
          die("wrong data in step " + std::to_string(step));
    printf("step %d took %.3f ms\n", step,
           std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    fflush(stdout);
  }
  for (Stream& stream : streams) sends ? plugin->close_send(stream.comm) : plugin->close_recv(stream.comm);
  fflush(stdout);
  _exit(0);
}
