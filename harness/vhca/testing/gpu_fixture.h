// SPDX-License-Identifier: Apache-2.0
// What tests of GPU memory share: buffers on the stand-in for a GPU, work requests, and two processes of
// which one writes into the other's.
#pragma once

#include <gtest/gtest.h>

#include "harness/vhca/testing/stand_in_gpu.h"
#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {

inline constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
inline constexpr std::size_t kBytes = 4 << 20;

inline unsigned char pattern(std::size_t at, unsigned seed) {
  return static_cast<unsigned char>(at * 7 + at / 4096 + seed);
}

// GPU memory registered on one NIC. Never freed: the process ends.
struct GpuBuffer {
  GpuBuffer(const StandInGpu& gpu, Endpoint& endpoint, std::size_t bytes = kBytes, int number = 0)
      : at(gpu.allocate(bytes, number)), view(gpu.view(at)), bytes(bytes) {
    mr = ibv_reg_mr(endpoint.pd(), reinterpret_cast<void*>(at), bytes, kAll);
    VHCA_REQUIRE(mr != nullptr);
  }
  ~GpuBuffer() { ibv_dereg_mr(mr); }
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;
  void fill(unsigned seed) {
    for (std::size_t i = 0; i < bytes; ++i) view[i] = pattern(i, seed);
  }
  ibv_sge piece(std::size_t offset, std::size_t length) const {
    return {at + offset, static_cast<std::uint32_t>(length), mr->lkey};
  }
  std::uint64_t at;
  unsigned char* view;
  std::size_t bytes;
  ibv_mr* mr;
};

struct Remote {
  std::uint64_t at;
  std::uint32_t rkey;
};

struct Request {
  ibv_wr_opcode opcode;
  std::vector<ibv_sge> pieces;
  Remote to{};
};
inline void post(Endpoint& endpoint, Request request) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = request.pieces.data();
  wr.num_sge = static_cast<int>(request.pieces.size());
  wr.opcode = request.opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    wr.wr.atomic = {request.to.at, 1, 0, request.to.rkey};
  else
    wr.wr.rdma = {request.to.at, request.to.rkey};
  VHCA_REQUIRE_EQ(ibv_post_send(endpoint.qp(), &wr, &bad), 0);
}
inline void carry(Endpoint& endpoint, Request request) {
  post(endpoint, std::move(request));
  endpoint.expect(IBV_WC_SUCCESS, 0);
}
inline void post_receive(Endpoint& endpoint, std::vector<ibv_sge> pieces) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  VHCA_REQUIRE_EQ(ibv_post_recv(endpoint.qp(), &wr, &bad), 0);
}
inline ibv_sge host_piece(const Endpoint& endpoint, std::size_t offset, std::size_t length) {
  return {reinterpret_cast<std::uintptr_t>(endpoint.memory() + offset), static_cast<std::uint32_t>(length),
          endpoint.mr()->lkey};
}
template <typename T>
void require_pattern(const T* data, std::size_t from, std::size_t length, unsigned seed) {
  for (std::size_t i = 0; i < length; ++i)
    VHCA_REQUIRE_EQ(static_cast<unsigned char>(data[i]), pattern(from + i, seed));
}

// Each hears what the other says, until one of them ends.
inline void relay(const Process& a, const Process& b) {
  pollfd ends[2] = {{a.wire().fd(), POLLIN, 0}, {b.wire().fd(), POLLIN, 0}};
  for (;;) {
    ::poll(ends, 2, -1);
    for (int from = 0; from < 2; ++from) {
      char data[256];
      if (!(ends[from].revents & (POLLIN | POLLHUP))) continue;
      const ssize_t bytes = ::recv(ends[from].fd, data, sizeof data, MSG_DONTWAIT);
      if (bytes <= 0) return;
      ::send(ends[1 - from].fd, data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
    }
  }
}

class GpuTest : public ::testing::Test {
 protected:
  // Two processes with a connection on NIC `nic`; the target's registers GPU memory and tells of it.
  using Initiator = std::function<void(const Wire&, Endpoint&, StandInGpu&, Remote)>;
  using Target = std::function<void(const Wire&, Endpoint&, StandInGpu&, GpuBuffer&)>;
  void between(const Initiator& initiate, const Target& receive) {
    Process target(fabric_, "node1", [&](const Wire& wire) {
      StandInGpu gpu;
      Endpoint b({.nic = 1});
      GpuBuffer buffer(gpu, b);
      b.connect_over(wire);
      wire.send(Remote{buffer.at, buffer.mr->rkey});
      receive(wire, b, gpu, buffer);
    });
    Process initiator(fabric_, "node0", [&](const Wire& wire) {
      StandInGpu gpu;
      Endpoint a({.nic = 0});
      a.connect_over(wire);
      initiate(wire, a, gpu, wire.receive<Remote>());
      wire.send('d');
    });
    introduce(target, initiator);
    relay(target, initiator);
    EXPECT_EQ(initiator.wait(), 0);
    EXPECT_EQ(target.wait(), 0);
    EXPECT_EQ(fabric_.usage().memory_regions, 0u);
  }
  void run(const std::function<void()>& body) {
    Process process(fabric_, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(2, 2);
};

}  // namespace vhca::test
