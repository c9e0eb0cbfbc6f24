// SPDX-License-Identifier: Apache-2.0
// Opening and closing devices where something is amiss: the process can have no more threads, or the program
// has forgotten what it made.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>

#include "harness/vhca/testing/fabric_view.h"
#include "harness/vhca/testing/verbs_fixture.h"

#if !defined(__SANITIZE_THREAD__)
namespace {
std::atomic<bool> no_more_threads{false};
}
// In front of the C library's, for the device as well.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return no_more_threads ? EAGAIN : create(thread, attributes, body, argument);
}
#endif

namespace vhca::test {
namespace {

#if !defined(__SANITIZE_THREAD__)
// The engine's thread cannot be made: then there is no device, rather than one on which nothing moves.
TEST(Device, opens_with_its_engine_or_not_at_all) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    VHCA_REQUIRE_EQ(count, 2);
    no_more_threads = true;
    VHCA_REQUIRE(ibv_open_device(list[0]) == nullptr);
    VHCA_REQUIRE_EQ(errno, EAGAIN);
    VHCA_REQUIRE_EQ(fabric.usage().processes, 0u);
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    VHCA_REQUIRE(!::sigismember(&blocked, SIGTERM));
    no_more_threads = false;
    ibv_free_device_list(list);
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 1);
  });
  EXPECT_EQ(process.wait(), 0);
}
#endif

// A device that closes by hand.
struct Forgotten {
  explicit Forgotten(int nic) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    VHCA_REQUIRE((context = ibv_open_device(list[nic])) != nullptr);
    ibv_free_device_list(list);
  }
  ibv_context* context;
};

// The program closes its device and has forgotten to destroy what it made there.
TEST(Device, closing_ends_what_was_made_there) {
  const auto fabric = make_fabric(2, 2);
  Process target(fabric, "node1", [](const Wire& wire) {
    const Device other(1);
    Forgotten device(0);
    auto* forgotten = new Endpoint({.srq_wr = 4, .channel = true, .context = device.context});
    forgotten->connect_over(wire);
    VHCA_REQUIRE_EQ(ibv_close_device(device.context), 0);
    wire.send('c');
    wire.receive<char>();
    for (const char* at = forgotten->memory(); at != forgotten->memory() + 4096; ++at)
      VHCA_REQUIRE_EQ(*at, 0);
    // The device is as good as new.
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 1);
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me({.timeout = 8, .retry = 1});
    me.connect_over(wire);
    wire.receive<char>();  // it is closed now
    std::memset(me.memory(), 1, 4096);
    me.post({.id = 1, .bytes = 4096});
    me.expect(IBV_WC_RETRY_EXC_ERR, 1);
  });
  introduce(target, initiator);
  target.wire().receive<char>();
  EXPECT_EQ(fabric.usage().queue_pairs, 1u);  // the initiator's
  EXPECT_EQ(fabric.usage().completion_queues, 1u);
  EXPECT_EQ(fabric.usage().shared_receive_queues, 0u);
  EXPECT_EQ(fabric.usage().memory_regions, 1u);
  initiator.wire().send('g');
  EXPECT_EQ(initiator.wait(), 0);
  target.wire().send('g');
  EXPECT_EQ(target.wait(), 0);
}

// The QP of another device is held by a process that neither lets go nor stops: a transfer that lasts.
TEST(Device, closing_one_does_not_wait_for_the_transfers_of_others) {
  const auto fabric = make_fabric(1, 2);
  Process other(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    wire.send(me.qp()->qp_num);
    wire.receive<char>();
  });
  const auto number = other.wire().receive<std::uint32_t>();
  Process process(fabric, "node0", [&](const Wire&) {
    const FabricView view(fabric);
    Endpoint a({.nic = 0});
    QpSlot& slot = view.queue_pair(a.qp()->qp_num);
    slot.responder.fetch_add(view.queue_pair(number).owner.load());
    VHCA_REQUIRE(view.is_held(a.qp()->qp_num));
    std::uint64_t shortest = ~0ull;
    for (int i = 0; i < 3; ++i) {
      auto device = std::make_unique<Device>(1);
      const std::uint64_t start = now_ns();
      device.reset();
      shortest = std::min(shortest, now_ns() - start);
    }
    slot.responder.fetch_and(~0xffffffffull);
    VHCA_REQUIRE(shortest < 1'000'000'000);  // a holder is waited for twice as long
  });
  EXPECT_EQ(process.wait(), 0);
  other.wire().send('g');
  EXPECT_EQ(other.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
