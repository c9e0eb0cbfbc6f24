// SPDX-License-Identifier: Apache-2.0
// A peer that closes has said so before its queue pairs go. An end takes that in before it leaves a path that
// has failed or is silent, even if it has not been told to look at its connection: otherwise it would begin a
// migration that nobody needs, and the log would report a failure that is none. Both ends live in one
// process, and the test makes their turns.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "r2ccl/base/clock.h"
#include "r2ccl/channel/receiver.h"
#include "r2ccl/channel/sender.h"
#include "r2ccl/control/interface.h"
#include "r2ccl/path/registrations.h"
#include "r2ccl/tests/testing/two_processes.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr size_t kBytes = 64 << 10;  // not sent from a copy: done when it is acknowledged

/// What a channel knows of its process.
struct End {
  ProcessContext context;
  std::unique_ptr<Registrations> registrations;
  std::vector<uint8_t> memory = std::vector<uint8_t>(kBytes);
  Registration* registration = nullptr;

  End(const char* host, uint64_t process) {
    context.config = *Config::from_environment();
    auto devices = verbs::Device::open_all(context.config);
    EXPECT_TRUE(devices.ok());
    context.devices = std::move(*devices);
    for (int nic = 0; nic < 2; ++nic) context.backups.push_back({{1 - nic, 0}});
    context.host = host;
    context.process = process;
    context.kick = [] {};
    context.load = [](bool) -> const NicLoad& {
      static const NicLoad none;
      return none;
    };
    context.endpoint = [] { return Result<control::Endpoint>(Error{ErrorCode::kSystem, "nowhere"}); };
    context.workers = std::make_unique<NicWorkers>("nic", std::vector<std::string>(2, "nic"), [] {});
    context.registrars = std::make_unique<NicWorkers>("reg", std::vector<std::string>(2, "nic"), [] {});
    registrations = std::make_unique<Registrations>(context);
    registration = *registrations->add(memory.data(), memory.size(), {}, 0);
  }
  void let_workers_finish() const {
    while (context.workers->open_jobs()) sched_yield();
  }
};

/// A channel over which traffic can flow.
struct Pair {
  ProgressThread thread;  // of both ends
  End sends{"sender", 1}, receives{"receiver", 2};
  std::shared_ptr<Sender> sender;
  std::shared_ptr<Receiver> receiver;

  Pair() {
    control::InterfaceWish loopback;
    loopback.names = "lo";
    wire::Handle handle{};
    handle.magic = wire::kHandleMagic;
    handle.version = wire::kWireVersion;
    handle.token.fill(0x51);
    auto listening = control::listen_any(loopback, handle.where);
    EXPECT_TRUE(listening.ok());
    sender = *Sender::start(sends.context, 0, handle);
    control::Descriptor fd;
    while (!fd) fd = control::Descriptor(accept4(listening->get(), nullptr, nullptr, SOCK_NONBLOCK));
    receiver = std::make_shared<Receiver>(receives.context, 0, control::Stream(std::move(fd)), handle.token);
    until([this] { return is_ready(*sender) && is_ready(*receiver); });
  }
  ~Pair() {
    close(*receiver);
    close(*sender);
  }

  /// One turn of the service thread, which has not heard that the connection brings something.
  static void turn(Channel& channel) { channel.step(tick()); }
  static void hear(Channel& channel) { channel.on_socket(tick()); }
  template <class Done>
  void until(Done&& done) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      for (Channel* end : {static_cast<Channel*>(sender.get()), static_cast<Channel*>(receiver.get())}) {
        hear(*end);
        turn(*end);
      }
      let_workers_finish();
    }
  }
  /// Its program closes it; its queue pairs are destroyed when this returns.
  void close(Channel& channel) const {
    channel.close_requested.store(true);
    for (int turns = 0; turns < 3; ++turns) {
      turn(channel);
      let_workers_finish();
    }
  }
  /// … and that it has is there for `peer` to read.
  void close_and_tell(Channel& channel, const Channel& peer) const {
    close(channel);
    pollfd waiting{peer.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 20'000), 1);
  }
  void let_workers_finish() const {
    sends.let_workers_finish();
    receives.let_workers_finish();
  }

 private:
  static Tick tick() { return {now_ns(), now_ns()}; }
  static bool is_ready(const Channel& channel) {
    int stands_by = 0;
    channel.for_each_path([&](const Path& path) { stands_by += path.is_standby(); });
    return channel.status() == Status::kReady && stands_by > 0;
  }
};

bool is_left(const Channel& channel) {
  bool left = false;
  channel.for_each_path([&](const Path& path) { left |= path.is_left(); });
  return left;
}
bool all_there(const Channel& channel) {
  int paths = 0;
  channel.for_each_path([&](const Path&) { ++paths; });
  return paths == 2 && !is_left(channel);
}

/// `body` in a process of its own, on a node with two NICs that give up a dead peer soon, but not one that
/// waits for a processor.
void with_pair(void (*body)(Pair&)) {
  const auto fabric = make_fabric(1, 2);
  const Child child =
      start(fabric, 0, {{"NCCL_IB_TIMEOUT", "14"}, {"NCCL_IB_RETRY_CNT", "3"}}, [body](const Link&) {
        Pair pair;
        if (::testing::Test::HasFailure()) return;
        body(pair);
      });
  EXPECT_EQ(child.wait(60s), 0);
}

/// Posts two receives, and sends for one: behind its ACK the second CTS entry has arrived, too.
void send_one_of_two(Pair& pair) {
  End &from = pair.sends, &to = pair.receives;
  Request* const first = *pair.receiver->post(to.memory.data(), kBytes, to.registration, pair.thread);
  Request* const second = *pair.receiver->post(to.memory.data(), kBytes, to.registration, pair.thread);
  ASSERT_TRUE(first && second);
  Request* sent = nullptr;
  while (!sent) sent = *pair.sender->post(from.memory.data(), kBytes, from.registration, pair.thread);
  while (!pair.receiver->test(*first, pair.thread)->done) continue;
  while (!pair.sender->test(*sent, pair.thread)->done) (void)pair.receiver->test(*second, pair.thread);
}

TEST(Heard, a_sender_whose_work_fails_learns_first_that_the_receiver_has_closed) {
  with_pair([](Pair& pair) {
    send_one_of_two(pair);
    pair.close_and_tell(*pair.receiver, *pair.sender);
    Request* const sent =
        *pair.sender->post(pair.sends.memory.data(), kBytes, pair.sends.registration, pair.thread);
    ASSERT_NE(sent, nullptr);
    while (pair.sender->status() == Status::kReady) (void)pair.sender->test(*sent, pair.thread);
    ASSERT_EQ(pair.sender->status(), Status::kMigrating) << "its queue pair has reported an error";
    Pair::turn(*pair.sender);
    EXPECT_TRUE(all_there(*pair.sender)) << "a path was left for nothing";
  });
}

TEST(Heard, a_receiver_whose_path_is_silent_learns_first_that_the_sender_has_closed) {
  with_pair([](Pair& pair) {
    send_one_of_two(pair);
    pair.close_and_tell(*pair.sender, *pair.receiver);
    // It is silent, its probe fails, the peer is heard; and what is open counts as lost after 2 s.
    const auto bound = std::chrono::steady_clock::now() + 20s;
    while (pair.receiver->status() != Status::kFailed && all_there(*pair.receiver)) {
      ASSERT_LT(std::chrono::steady_clock::now(), bound) << "it is never heard";
      Pair::turn(*pair.receiver);
    }
    EXPECT_TRUE(all_there(*pair.receiver)) << "a path was left for nothing";
    ASSERT_EQ(pair.receiver->status(), Status::kFailed);
    EXPECT_EQ(pair.receiver->error().code, ErrorCode::kPeerGone) << pair.receiver->error().message;
  });
}

}  // namespace
}  // namespace r2ccl
