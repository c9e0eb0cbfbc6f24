// SPDX-License-Identifier: Apache-2.0
// Several threads of one process on their own and on the same objects. Worth most under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

// Runs each body in a thread; the first exception of any is thrown again.
void run_threads(std::vector<std::function<void()>> bodies) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(bodies.size());
  for (std::size_t i = 0; i < bodies.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        bodies[i]();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

int run_alone(const FabricHost& fabric, const std::function<void()>& body) {
  Process process(fabric, "node0", [&](const Wire&) { body(); });
  return process.wait();
}

class Threads : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Threads, on_their_own_queues_do_not_disturb_each_other) {
  const auto fabric = make_fabric(1, 2, GetParam());
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Device left(0), right(1);
                        std::vector<std::function<void()>> bodies;
                        for (int t = 0; t < 3; ++t)
                          bodies.push_back([&] {
                            Endpoint a({.context = left.get()}), b({.context = right.get()});
                            connect(a, b);
                            for (std::uint64_t i = 0; i < 300; ++i) {
                              b.post_recv(i);
                              a.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i, .bytes = 3000});
                              a.expect(IBV_WC_SUCCESS, i);
                              b.expect(IBV_WC_SUCCESS, i);
                            }
                          });
                        run_threads(std::move(bodies));
                      }),
            0);
}

TEST_P(Threads, may_post_poll_and_receive_on_one_pair_at_once) {
  const auto fabric = make_fabric(1, 2, GetParam());
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0}), b({.nic = 1});
                        connect(a, b);
                        constexpr std::uint64_t kCount = 2000;
                        run_threads({
                            [&] {
                              for (std::uint64_t i = 0; i < kCount;)
                                i += a.try_post({.opcode = IBV_WR_SEND, .id = i, .bytes = 64}) == 0;
                            },
                            [&] {
                              for (std::uint64_t i = 0; i < kCount; ++i) a.expect(IBV_WC_SUCCESS, i);
                            },
                            [&] {
                              for (std::uint64_t i = 0; i < kCount;) i += b.try_post_recv(i, 4096, 64) == 0;
                            },
                            [&] {
                              for (std::uint64_t i = 0; i < kCount; ++i) b.expect(IBV_WC_SUCCESS, i);
                            },
                        });
                      }),
            0);
}

TEST_P(Threads, may_move_a_qp_to_err_while_others_use_it) {
  const auto fabric = make_fabric(1, 2, GetParam());
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Device left(0), right(1);
                        for (int round = 0; round < 20; ++round) {
                          Endpoint a({.timeout = 1, .retry = 0, .context = left.get()}),
                              b({.context = right.get()});
                          connect(a, b);
                          std::atomic<std::uint64_t> polled{0};
                          run_threads({
                              [&] {
                                // Until an error comes back: every request must show exactly one completion,
                                // in order.
                                std::uint64_t posted = 0, next = 0;
                                bool failed = false;
                                while (!failed || next < posted) {
                                  if (!failed && a.try_post({.id = posted, .bytes = 5000}) == 0) ++posted;
                                  if (next == posted) continue;
                                  const ibv_wc wc = a.wait();
                                  VHCA_REQUIRE_EQ(wc.wr_id, next++);
                                  failed |= wc.status != IBV_WC_SUCCESS;
                                  polled.store(next);
                                }
                              },
                              [&] {
                                while (polled.load() < 50) std::this_thread::yield();
                                (round % 2 ? a : b).to_error();
                              },
                          });
                        }
                      }),
            0);
}

TEST_P(Threads, may_register_and_deregister_while_others_transfer) {
  const auto fabric = make_fabric(1, 2, GetParam());
  EXPECT_EQ(run_alone(fabric,
                      [] {
                        Endpoint a({.nic = 0}), b({.nic = 1});
                        connect(a, b);
                        std::atomic<bool> stop{false};
                        run_threads({
                            [&] {
                              for (std::uint64_t i = 0; i < 500; ++i) {
                                a.post({.id = i, .bytes = 20'000});
                                a.expect(IBV_WC_SUCCESS, i);
                              }
                              stop.store(true);
                            },
                            [&] {
                              while (!stop.load()) {
                                ibv_mr* mr = ibv_reg_mr(b.pd(), b.memory(), 4096, IBV_ACCESS_LOCAL_WRITE);
                                VHCA_REQUIRE(mr != nullptr);
                                VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
                              }
                            },
                        });
                      }),
            0);
}

INSTANTIATE_TEST_SUITE_P(Rates, Threads, ::testing::Values(0ull, 10'000'000'000ull),
                         [](const auto& info) { return info.param ? "paced" : "unlimited"; });

}  // namespace
}  // namespace vhca::test
