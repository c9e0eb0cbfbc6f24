// SPDX-License-Identifier: Apache-2.0
// 64 processes on nodes of 8 NICs, each with a QP to every process, itself included: 4096 QPs that all live
// and carry data at once.
#include <gtest/gtest.h>

#include "harness/vhca/testing/shared_page.h"

namespace vhca::test {
namespace {

constexpr std::size_t kProcesses = 64, kNodes = 4, kNics = 8, kRounds = 3;
constexpr std::size_t kSources = 64 * kProcesses;  // where a process keeps what it sends
constexpr std::uint64_t kLongMs = 900'000;

struct Meeting {
  std::atomic<std::uint32_t> arrived[kRounds + 2];
  std::atomic<bool> counted;
  Address addresses[kProcesses][kProcesses];  // [of][towards]
};

void meet(Meeting& meeting, std::size_t round) {
  meeting.arrived[round].fetch_add(1);
  VHCA_REQUIRE(eventually([&] { return meeting.arrived[round].load() >= kProcesses; }, kLongMs));
}

std::uint64_t stamp(std::size_t round, std::size_t from, std::size_t to) {
  return round << 32 | from << 16 | to;
}

void take_part(Meeting& meeting, std::size_t me) {
  // The QP towards process j is on NIC (me + j) % 8, at both ends.
  std::vector<std::unique_ptr<Endpoint>> owners(kNics), ends(kProcesses);
  Options options{.bytes = 2 * kSources,
                  .send_depth = 4,
                  .recv_depth = 4,
                  .sge = 1,
                  .inline_bytes = 0,
                  .timeout = 20,
                  .retry = 7};
  for (std::size_t nic = 0; nic < kNics; ++nic) {
    options.nic = static_cast<int>(nic);
    owners[nic] = std::make_unique<Endpoint>(options);
    owners[nic]->destroy_qp();
  }
  for (std::size_t j = 0; j < kProcesses; ++j) {
    options.share = owners[(me + j) % kNics].get();
    options.nic = static_cast<int>((me + j) % kNics);
    ends[j] = std::make_unique<Endpoint>(options);
    meeting.addresses[me][j] = ends[j]->address();
  }
  meet(meeting, 0);
  for (std::size_t j = 0; j < kProcesses; ++j) {
    ends[j]->connect(meeting.addresses[j][me]);
    ends[j]->post_recv(j, 64 * j, 64);
  }
  meet(meeting, 1);
  VHCA_REQUIRE(eventually([&] { return meeting.counted.load(); }, kLongMs));
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t j = 0; j < kProcesses; ++j) {
      ends[j]->word(kSources + 64 * j) = stamp(round, me, j);
      ends[j]->post({.opcode = IBV_WR_SEND, .id = 1000 + j, .offset = kSources + 64 * j, .bytes = 64});
    }
    for (std::size_t nic = 0; nic < kNics; ++nic) {
      std::size_t sent = 0, received = 0;
      while (sent < kProcesses / kNics || received < kProcesses / kNics) {
        const ibv_wc wc = owners[nic]->wait(kLongMs);
        VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_SEND) {
          ++sent;
          continue;
        }
        ++received;
        const std::size_t from = wc.wr_id;
        VHCA_REQUIRE_EQ(ends[from]->qp()->qp_num, wc.qp_num);
        VHCA_REQUIRE_EQ(ends[from]->word(64 * from), stamp(round, from, me));
      }
    }
    // Only now: nobody is a round ahead of anybody.
    for (std::size_t j = 0; j < kProcesses; ++j) ends[j]->post_recv(j, 64 * j, 64);
    meet(meeting, 2 + round);
  }
  for (auto& end : ends) end.reset();
}

TEST(Scale, sixty_four_processes_with_4096_queue_pairs_on_nodes_of_eight_nics) {
  const FabricHost fabric = make_fabric(kNodes, kNics);
  SharedPage<Meeting> meeting;
  std::vector<std::unique_ptr<Process>> processes;
  for (std::size_t i = 0; i < kProcesses; ++i)
    processes.push_back(
        std::make_unique<Process>(fabric, "node" + std::to_string(i % kNodes), [&, i](const Wire& wire) {
          take_part(*meeting.operator->(), i);
          wire.receive<char>();
        }));
  ASSERT_TRUE(eventually([&] { return meeting->arrived[1].load() == kProcesses; }));
  EXPECT_EQ(fabric.usage().processes, kProcesses);
  EXPECT_EQ(fabric.usage().queue_pairs, kProcesses * kProcesses);
  meeting->counted.store(true);
  for (auto& process : processes) process->wire().send('e');
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
  std::uint64_t messages = 0;
  for (std::size_t node = 0; node < kNodes; ++node)
    for (std::size_t nic = 0; nic < kNics; ++nic) messages += fabric.counters(node, nic).rx_messages;
  EXPECT_EQ(messages, kRounds * kProcesses * kProcesses);
  EXPECT_EQ(fabric.usage().queue_pairs, 0u);
  EXPECT_EQ(fabric.usage().arena_bytes, 0u);
}

}  // namespace
}  // namespace vhca::test
