// SPDX-License-Identifier: Apache-2.0
// Memory that is registered by a descriptor, as a GPU's is: a memfd stands for the dma-buf.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::size_t kBytes = 1 << 20;
constexpr std::uint64_t kNowhere = 0x7777'0000'0000;  // no address of any process

struct Buffer {
  explicit Buffer(std::size_t bytes) : bytes(bytes) {
    fd = ::memfd_create("buffer", MFD_CLOEXEC);
    VHCA_REQUIRE(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    view = static_cast<unsigned char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    VHCA_REQUIRE(view != MAP_FAILED);
  }
  ~Buffer() {
    ::munmap(view, bytes);
    if (fd >= 0) ::close(fd);
  }
  void forget_descriptor() {
    ::close(fd);
    fd = -1;
  }
  std::size_t bytes;
  int fd = -1;
  unsigned char* view;
};

unsigned char pattern(std::size_t at) { return static_cast<unsigned char>(at * 7 + at / 4096 + 1); }

class DmaBuf : public ::testing::Test {
 protected:
  void run(const std::function<void()>& body) {
    Process process(fabric_, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(2, 2);
};

// WRITE from the middle of one buffer into the middle of another process's, and READ back, through addresses
// that nobody has mapped; the program's own descriptor is closed by then.
TEST_F(DmaBuf, is_written_and_read_under_the_iova) {
  constexpr std::size_t kOffset = 3 * 4096 + 64, kLength = 300'000;
  struct Told {
    std::uint32_t rkey;
  };
  Process target(fabric_, "node1", [&](const Wire& wire) {
    Buffer buffer(kBytes);
    Endpoint b({.nic = 1});
    ibv_mr* region = ibv_reg_dmabuf_mr(b.pd(), kOffset, kLength, kNowhere + 64, buffer.fd, kAll);
    VHCA_REQUIRE(region != nullptr);
    buffer.forget_descriptor();
    b.connect_over(wire);
    wire.send(Told{region->rkey});
    wire.receive<char>();
    for (std::size_t at = 0; at < kBytes; ++at)
      VHCA_REQUIRE_EQ(buffer.view[at], at >= kOffset && at < kOffset + kLength ? pattern(at - kOffset) : 0);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(region), 0);
  });
  Process initiator(fabric_, "node0", [&](const Wire& wire) {
    Buffer buffer(kBytes);
    for (std::size_t at = 0; at < kLength; ++at) buffer.view[8192 + at] = pattern(at);
    Endpoint a({.nic = 0});
    ibv_mr* region = ibv_reg_dmabuf_mr(a.pd(), 0, kBytes, kNowhere, buffer.fd, kAll);
    VHCA_REQUIRE(region != nullptr);
    buffer.forget_descriptor();
    a.connect_over(wire);
    const auto told = wire.receive<Told>();
    const auto transfer = [&](ibv_wr_opcode opcode, std::uint64_t local) {
      ibv_sge sge{kNowhere + local, kLength, region->lkey};
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma = {kNowhere + 64, told.rkey};
      ibv_send_wr* bad = nullptr;
      VHCA_REQUIRE_EQ(ibv_post_send(a.qp(), &wr, &bad), 0);
      a.expect(IBV_WC_SUCCESS, 0);
    };
    transfer(IBV_WR_RDMA_WRITE, 8192);
    transfer(IBV_WR_RDMA_READ, 8192 + kLength + 5);
    for (std::size_t at = 0; at < kLength; ++at)
      VHCA_REQUIRE_EQ(buffer.view[8192 + kLength + 5 + at], pattern(at));
    wire.send('d');
    VHCA_REQUIRE_EQ(ibv_dereg_mr(region), 0);
  });
  introduce(target, initiator);
  initiator.wire().send(target.wire().receive<Told>());
  target.wire().send(initiator.wire().receive<char>());
  EXPECT_EQ(initiator.wait(), 0);
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(fabric_.usage().memory_regions, 0u);
}

TEST_F(DmaBuf, a_key_ends_where_the_region_ends) {
  run([] {
    Buffer buffer(kBytes);
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    ibv_mr* region = ibv_reg_dmabuf_mr(b.pd(), 4096, 8192, kNowhere, buffer.fd, kAll);
    VHCA_REQUIRE(region != nullptr);
    a.peer().memory = kNowhere;
    a.post({.id = 1, .bytes = 8192, .rkey = region->rkey});
    a.expect(IBV_WC_SUCCESS, 1);
    a.post({.id = 2, .bytes = 8, .remote_offset = 8188, .rkey = region->rkey});
    a.expect(IBV_WC_REM_ACCESS_ERR, 2);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(region), 0);
  });
}

TEST_F(DmaBuf, is_refused_as_a_kernel_refuses_it) {
  run([] {
    Buffer buffer(kBytes);
    Endpoint a({.nic = 0});
    const auto refused = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                             int access) {
      errno = 0;
      ibv_mr* region = ibv_reg_dmabuf_mr(a.pd(), offset, length, iova, fd, access);
      VHCA_REQUIRE(region == nullptr);
      return errno;
    };
    VHCA_REQUIRE_EQ(refused(0, 0, 0, buffer.fd, kAll), EINVAL);
    VHCA_REQUIRE_EQ(refused(64, 4096, 0, buffer.fd, kAll), EINVAL);       // another place of the page
    VHCA_REQUIRE_EQ(refused(0, kBytes + 1, 0, buffer.fd, kAll), EINVAL);  // beyond the end
    VHCA_REQUIRE_EQ(refused(kBytes, 4096, 0, buffer.fd, kAll), EINVAL);
    VHCA_REQUIRE_EQ(refused(~0ull << 12, 8192, 0, buffer.fd, kAll), EINVAL);
    VHCA_REQUIRE_EQ(refused(0, 4096, 0, -1, kAll), EBADF);
    VHCA_REQUIRE_EQ(refused(0, 4096, 0, buffer.fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    VHCA_REQUIRE_EQ(refused(0, 4096, 0, buffer.fd, kAll | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    int ends[2];
    VHCA_REQUIRE_EQ(::pipe(ends), 0);
    VHCA_REQUIRE_EQ(refused(0, 4096, 0, ends[0], kAll), EINVAL);  // nothing to map
    ibv_mr* relaxed = ibv_reg_dmabuf_mr(a.pd(), 0, 4096, 0, buffer.fd, kAll | IBV_ACCESS_RELAXED_ORDERING);
    VHCA_REQUIRE(relaxed != nullptr);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(relaxed), 0);
  });
}

TEST_F(DmaBuf, a_device_may_be_told_not_to_know_them) {
  run([] {
    ::setenv("VHCA_DMABUF", "0", 1);
    Buffer buffer(kBytes);
    Endpoint a({.nic = 0});
    VHCA_REQUIRE(ibv_reg_dmabuf_mr(a.pd(), 0, 4096, 0, buffer.fd, kAll) == nullptr && errno == EOPNOTSUPP);
    VHCA_REQUIRE(ibv_reg_dmabuf_mr(a.pd(), 0, 0, 0, -1, 0) == nullptr && errno == EOPNOTSUPP);
  });
}

}  // namespace
}  // namespace vhca::test
