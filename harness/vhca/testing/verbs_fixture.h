// SPDX-License-Identifier: Apache-2.0
// What the emulated tests share: processes on the nodes of a fabric, and an RC endpoint. The test program
// itself never opens a device: all verbs happen in forked children, so that they can be stopped and killed.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/vhca/fabric/fabric_host.h"

namespace vhca::test {

inline std::uint64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// For children, where GoogleTest's assertions reach nobody.
#define VHCA_REQUIRE(condition)                                                                              \
  do {                                                                                                       \
    if (!(condition))                                                                                        \
      throw ::vhca::test::Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #condition); \
  } while (0)
#define VHCA_REQUIRE_EQ(a, b)                                                                               \
  do {                                                                                                      \
    const auto va = (a);                                                                                    \
    const auto vb = (b);                                                                                    \
    if (!(va == vb))                                                                                        \
      throw ::vhca::test::Failure(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #a " is " + \
                                  std::to_string(static_cast<long long>(va)) + ", not " +                   \
                                  std::to_string(static_cast<long long>(vb)));                              \
  } while (0)

// The line between two processes of a test.
class Wire {
 public:
  explicit Wire(int fd) : fd_(fd) {}
  template <typename T>
  void send(const T& value) const {
    if (::send(fd_, &value, sizeof value, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof value))
      throw Failure("wire: send");
  }
  template <typename T>
  T receive() const {
    T value;
    if (::recv(fd_, &value, sizeof value, MSG_WAITALL) != static_cast<ssize_t>(sizeof value))
      throw Failure("wire: receive");
    return value;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A child process on a node. Its destructor kills it if it still runs.
class Process {
 public:
  Process(const FabricHost& fabric, const std::string& node, const std::function<void(const Wire&)>& body) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw Failure("socketpair");
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      ::setenv("VHCA_FABRIC", fabric.path().c_str(), 1);
      ::setenv("VHCA_NODE", node.c_str(), 1);
      int code = 0;
      try {
        body(Wire(ends[1]));
      } catch (const std::exception& e) {
        std::fprintf(stderr, "[%s] %s\n", node.c_str(), e.what());
        code = 1;
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGCONT);
      ::kill(pid_, SIGKILL);
      wait();
    }
    ::close(fd_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Wire wire() const { return Wire(fd_); }
  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Exit code, or 128 + signal.
  int wait() {
    if (pid_ <= 0) return code_;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int fd_ = -1;
  int code_ = -1;
};

inline FabricSpec make_spec(std::size_t nodes, std::size_t nics, PortSpec port = {}) {
  FabricSpec spec;
  for (std::size_t n = 0; n < nodes; ++n)
    spec.nodes.push_back({"node" + std::to_string(n), std::vector<PortSpec>(nics, port)});
  return spec;
}

inline FabricHost make_fabric(std::size_t nodes, std::size_t nics, std::uint64_t rate = 0,
                              std::chrono::nanoseconds latency = std::chrono::nanoseconds(0)) {
  return FabricHost::create(make_spec(nodes, nics, {rate, latency}));
}

struct Address {
  std::uint32_t qp_num;
  std::uint16_t lid;
  std::uint32_t rkey;
  std::uint64_t memory;
  union ibv_gid gid;
};

class Endpoint;

inline constexpr std::uint32_t kQkey = 0x1234567;

struct Options {
  int nic = 0;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint8_t port = 1;
  int gid_index = 1;                // -1: addressed by LID, without a GRH
  std::uint32_t srq_wr = 0;         // > 0: with a shared receive queue of this size
  std::uint64_t send_ops = 0;       // made with ibv_create_qp_ex and these operations
  std::uint64_t walked_fields = 0;  // != 0: an extended CQ with these fields
  const Endpoint* share = nullptr;  // only the QP is new, all else is that endpoint's
  std::size_t bytes = 1 << 20;
  std::uint32_t send_depth = 128;
  std::uint32_t recv_depth = 128;
  std::uint32_t sge = 4;
  std::uint32_t inline_bytes = 256;
  int cq_depth = 1024;
  bool all_signaled = true;
  bool channel = false;
  int qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int mr_access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t timeout = 12;
  std::uint8_t retry = 3;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 1;
  std::uint32_t sq_psn = 0;
  std::uint32_t rq_psn = 0;
  ibv_mtu path_mtu{};              // 0: the port's
  std::uint8_t dest_reads = 1;     // max_dest_rd_atomic
  ibv_context* context = nullptr;  // share one of an earlier endpoint
};

class Device {
 public:
  explicit Device(int nic) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    VHCA_REQUIRE(list != nullptr && count > nic);
    context_ = ibv_open_device(list[nic]);
    ibv_free_device_list(list);
    VHCA_REQUIRE(context_ != nullptr);
  }
  ~Device() { ibv_close_device(context_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ibv_context* get() const { return context_; }

 private:
  ibv_context* context_;
};

class Endpoint {
 public:
  explicit Endpoint(Options options = {}) : options_(options) {
    if (options.share) {
      const Endpoint& other = *options.share;
      context_ = other.context_;
      pd_ = other.pd_;
      channel_ = other.channel_;
      cq_ = other.cq_;
      mr_ = other.mr_;
      memory_ = other.memory_;
      srq_ = other.srq_;
      make_qp();
      return;
    }
    if (!options.context) {
      own_device_ = std::make_unique<Device>(options.nic);
      context_ = own_device_->get();
    } else {
      context_ = options.context;
    }
    VHCA_REQUIRE((pd_ = ibv_alloc_pd(context_)) != nullptr);
    if (options.channel) VHCA_REQUIRE((channel_ = ibv_create_comp_channel(context_)) != nullptr);
    if (options.walked_fields) {
      ibv_cq_init_attr_ex init{};
      init.cqe = static_cast<std::uint32_t>(options.cq_depth);
      init.cq_context = this;
      init.channel = channel_;
      init.wc_flags = options.walked_fields;
      VHCA_REQUIRE((walked_cq_ = ibv_create_cq_ex(context_, &init)) != nullptr);
      cq_ = ibv_cq_ex_to_cq(walked_cq_);
    } else {
      VHCA_REQUIRE((cq_ = ibv_create_cq(context_, options.cq_depth, this, channel_, 0)) != nullptr);
    }
    void* memory = nullptr;
    VHCA_REQUIRE_EQ(::posix_memalign(&memory, 4096, options.bytes), 0);
    memory_ = static_cast<char*>(memory);
    std::memset(memory_, 0, options.bytes);
    VHCA_REQUIRE((mr_ = ibv_reg_mr(pd_, memory_, options.bytes, options.mr_access)) != nullptr);
    if (options.srq_wr) {
      ibv_srq_init_attr init{this, {options.srq_wr, options.sge, 0}};
      VHCA_REQUIRE((srq_ = ibv_create_srq(pd_, &init)) != nullptr);
    }
    make_qp();
  }
  ~Endpoint() {
    if (ah_) ibv_destroy_ah(ah_);
    if (qp_) ibv_destroy_qp(qp_);
    if (options_.share) return;
    if (srq_) ibv_destroy_srq(srq_);
    if (mr_) ibv_dereg_mr(mr_);
    if (cq_) ibv_destroy_cq(cq_);
    if (channel_) ibv_destroy_comp_channel(channel_);
    if (pd_) ibv_dealloc_pd(pd_);
    std::free(memory_);
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void make_qp() {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq_;
    init.srq = srq_;
    init.pd = pd_;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | (options_.send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
    init.send_ops_flags = options_.send_ops;
    init.qp_type = options_.type;
    init.sq_sig_all = options_.all_signaled;
    init.cap = {options_.send_depth, options_.recv_depth, options_.sge, options_.sge, options_.inline_bytes};
    VHCA_REQUIRE((qp_ = ibv_create_qp_ex(context_, &init)) != nullptr);
    to_init();
  }
  void to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = options_.port;
    attr.qkey = kQkey;
    attr.qp_access_flags = static_cast<unsigned>(options_.qp_access);
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp_, &attr,
                                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                      (options_.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
                    0);
  }
  void to_init_again() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
    to_init();
  }
  void destroy_qp() {
    VHCA_REQUIRE_EQ(ibv_destroy_qp(qp_), 0);
    qp_ = nullptr;
  }

  Address address() const {
    ibv_port_attr port{};
    VHCA_REQUIRE_EQ(ibv_query_port(context_, options_.port, &port), 0);
    Address a{qp_->qp_num, port.lid, mr_->rkey, reinterpret_cast<std::uintptr_t>(memory_), {}};
    if (options_.gid_index >= 0)
      VHCA_REQUIRE_EQ(ibv_query_gid(context_, options_.port, options_.gid_index, &a.gid), 0);
    return a;
  }
  ibv_ah_attr path_to(const Address& peer) const {
    ibv_ah_attr path{};
    path.port_num = options_.port;
    path.dlid = peer.lid;
    if (options_.gid_index < 0) return path;
    path.is_global = 1;
    path.grh.dgid = peer.gid;
    path.grh.hop_limit = 7;
    path.grh.sgid_index = static_cast<std::uint8_t>(options_.gid_index);
    return path;
  }
  void connect(const Address& peer) {
    to_rtr(peer);
    to_rts();
  }
  void to_rtr(const Address& peer) {
    peer_ = peer;
    const bool reliable = options_.type == IBV_QPT_RC;
    ibv_qp_attr attr{};
    ibv_port_attr port{};
    VHCA_REQUIRE_EQ(ibv_query_port(context_, options_.port, &port), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = options_.path_mtu ? options_.path_mtu : port.active_mtu;
    attr.dest_qp_num = peer.qp_num;
    attr.rq_psn = options_.rq_psn;
    attr.max_dest_rd_atomic = options_.dest_reads;
    attr.min_rnr_timer = options_.min_rnr_timer;
    attr.ah_attr = path_to(peer);
    const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp_, &attr,
                                  IBV_QP_STATE | (options_.type == IBV_QPT_UD ? 0 : path) |
                                      (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
                    0);
    if (options_.type == IBV_QPT_UD) {
      if (ah_) ibv_destroy_ah(ah_);
      VHCA_REQUIRE((ah_ = ibv_create_ah(pd_, &attr.ah_attr)) != nullptr);
    }
  }
  void to_rts() {
    const bool reliable = options_.type == IBV_QPT_RC;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = options_.timeout;
    attr.retry_cnt = options_.retry;
    attr.rnr_retry = options_.rnr_retry;
    attr.sq_psn = options_.sq_psn;
    attr.max_rd_atomic = 1;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp_, &attr,
                                  IBV_QP_STATE | IBV_QP_SQ_PSN |
                                      (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                      IBV_QP_MAX_QP_RD_ATOMIC
                                                : 0)),
                    0);
  }
  void connect_over(const Wire& wire) {
    wire.send(address());
    connect(wire.receive<Address>());
    wire.send('r');
    wire.receive<char>();
  }
  void to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), 0);
  }
  ibv_qp_state state() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    VHCA_REQUIRE_EQ(ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }

  struct Work {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t id = 0;
    std::size_t offset = 0;
    std::size_t bytes = 0;
    std::size_t remote_offset = 0;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint32_t imm = 0;
    std::uint32_t rkey = 0;  // 0: the peer's
    std::uint32_t lkey = 0;  // 0: ours
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
    std::uint32_t qkey = kQkey;
  };
  int try_post(const Work& work) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_ + work.offset),
                static_cast<std::uint32_t>(work.bytes), work.lkey ? work.lkey : mr_->lkey};
    ibv_send_wr wr{};
    wr.wr_id = work.id;
    wr.sg_list = &sge;
    wr.num_sge = work.bytes ? 1 : 0;
    wr.opcode = work.opcode;
    wr.send_flags = work.flags;
    wr.imm_data = work.imm;
    const std::uint64_t remote = peer_.memory + work.remote_offset;
    const std::uint32_t rkey = work.rkey ? work.rkey : peer_.rkey;
    if (options_.type == IBV_QPT_UD)
      wr.wr.ud = {ah_, peer_.qp_num, work.qkey};
    else if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
      wr.wr.atomic = {remote, work.compare_add, work.swap, rkey};
    else
      wr.wr.rdma = {remote, rkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_, &wr, &bad);
  }
  void post(const Work& work) { VHCA_REQUIRE_EQ(try_post(work), 0); }
  int try_post_recv(std::uint64_t id, std::size_t offset, std::size_t bytes) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_ + offset), static_cast<std::uint32_t>(bytes),
                mr_->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = bytes ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    return srq_ ? ibv_post_srq_recv(srq_, &wr, &bad) : ibv_post_recv(qp_, &wr, &bad);
  }
  void post_recv(std::uint64_t id, std::size_t offset = 0, std::size_t bytes = 0) {
    VHCA_REQUIRE_EQ(try_post_recv(id, offset, bytes), 0);
  }
  ibv_wc wait(std::uint64_t limit_ms = 20'000) {
    ibv_wc wc;
    const std::uint64_t end = now_ns() + limit_ms * 1'000'000;
    for (;;) {
      const int got = ibv_poll_cq(cq_, 1, &wc);
      VHCA_REQUIRE(got >= 0);
      if (got == 1) return wc;
      VHCA_REQUIRE(now_ns() < end);
    }
  }
  ibv_wc expect(ibv_wc_status status, std::uint64_t id) {
    const ibv_wc wc = wait();
    VHCA_REQUIRE_EQ(wc.status, status);
    VHCA_REQUIRE_EQ(wc.wr_id, id);
    VHCA_REQUIRE_EQ(wc.qp_num, qp_->qp_num);
    return wc;
  }
  bool nothing_to_poll() {
    ibv_wc wc;
    return ibv_poll_cq(cq_, 1, &wc) == 0;
  }

  char* memory() const { return memory_; }
  ibv_context* context() const { return context_; }
  ibv_qp* qp() const { return qp_; }
  ibv_cq* cq() const { return cq_; }
  ibv_cq_ex* walked_cq() const { return walked_cq_; }
  ibv_srq* srq() const { return srq_; }
  ibv_ah* ah() const { return ah_; }
  std::uint64_t& word(std::size_t offset) const {
    return *reinterpret_cast<std::uint64_t*>(memory_ + offset);
  }
  ibv_pd* pd() const { return pd_; }
  ibv_mr* mr() const { return mr_; }
  ibv_comp_channel* channel() const { return channel_; }
  Address& peer() { return peer_; }

 private:
  Options options_;
  std::unique_ptr<Device> own_device_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_cq_ex* walked_cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
  char* memory_ = nullptr;
  Address peer_{};
};

// Two endpoints in one process.
inline void connect(Endpoint& a, Endpoint& b) {
  a.connect(b.address());
  b.connect(a.address());
}
// The next asynchronous event of the endpoint's device.
inline ibv_async_event wait_async(Endpoint& e) {
  pollfd fd{e.context()->async_fd, POLLIN, 0};
  VHCA_REQUIRE_EQ(::poll(&fd, 1, 20'000), 1);
  ibv_async_event event;
  VHCA_REQUIRE_EQ(ibv_get_async_event(e.context(), &event), 0);
  return event;
}
// Two processes exchange what connect_over() sends.
inline void introduce(const Process& a, const Process& b) {
  const auto address_a = a.wire().receive<Address>();
  const auto address_b = b.wire().receive<Address>();
  a.wire().send(address_b);
  b.wire().send(address_a);
  a.wire().receive<char>();
  b.wire().receive<char>();
  a.wire().send('g');
  b.wire().send('g');
}

}  // namespace vhca::test
