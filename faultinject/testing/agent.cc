// SPDX-License-Identifier: Apache-2.0
// A small real verbs program that does what it is told, one line at a time on stdin, and answers with one
// line on stdout. The tests run one per virtual node, with the injector preloaded. It is built twice: linked
// with libibverbs, and bound at run time by dlopen and dlvsym, as NCCL does it. With AGENT_EXTENDED in its
// environment the linked one posts through ibv_qp_ex and polls through ibv_cq_ex.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#ifdef AGENT_BINDS_AT_RUN_TIME
static void* verbs(const char* name) {
  static void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* found = handle != nullptr ? dlvsym(handle, name, "IBVERBS_1.1") : nullptr;
  if (handle != nullptr && found == nullptr) found = dlvsym(handle, name, "IBVERBS_1.0");  // never changed
  if (found == nullptr) {
    fprintf(stderr, "agent: %s: %s\n", name, dlerror());
    exit(3);
  }
  return found;
}
#define V(name) (reinterpret_cast<decltype(&::name)>(verbs(#name)))
// The inline ibv_query_port falls back on the exported one, which this program is not linked with.
#undef ibv_query_port
extern "C" int ibv_query_port(ibv_context* device, uint8_t port, _compat_ibv_port_attr* attributes) {
  return V(ibv_query_port)(device, port, attributes);
}
#define ibv_query_port(context, port_num, port_attr) ___ibv_query_port(context, port_num, port_attr)
#else
#define V(name) (&::name)
#endif
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace {

constexpr size_t kBufferBytes = 8 << 20;

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

struct Pair {
  ibv_qp* qp = nullptr;
  ibv_cq *send_cq = nullptr, *recv_cq = nullptr;
  ibv_comp_channel* channel = nullptr;
  int timeout = 14, retries = 7;
  uint64_t remote_address = 0;
  uint32_t remote_key = 0, remote_number = 0;
  ibv_ah* ah = nullptr;              // UD: where the next datagram goes
  std::vector<ibv_ah*> other_ahs;    // and where those before it went
  bool only_receives_sends = false;  // no access for anybody's writes and reads
};

constexpr uint32_t kDatagramKey = 0x11111111;

ibv_context* context = nullptr;
ibv_pd* pd = nullptr;
ibv_mr* mr = nullptr;
uint8_t* buffer = nullptr;
std::vector<Pair> pairs;

#ifdef AGENT_BINDS_AT_RUN_TIME
constexpr bool kExtended = false;
ibv_cq* create_extended_cq(int, ibv_comp_channel*) { return nullptr; }
ibv_qp* create_extended_qp(const ibv_qp_init_attr&) { return nullptr; }
#else
const bool kExtended = getenv("AGENT_EXTENDED") != nullptr;

ibv_cq* create_extended_cq(int entries, ibv_comp_channel* channel) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = uint32_t(entries);
  attributes.channel = channel;
  attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &attributes);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_qp* create_extended_qp(const ibv_qp_init_attr& plain) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = plain.send_cq;
  attributes.recv_cq = plain.recv_cq;
  attributes.cap = plain.cap;
  attributes.qp_type = plain.qp_type;
  attributes.srq = plain.srq;
  attributes.pd = pd;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
  if (plain.qp_type != IBV_QPT_UD)
    attributes.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (plain.qp_type == IBV_QPT_RC) attributes.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
  return ibv_create_qp_ex(context, &attributes);
}
#endif

ibv_cq* create_cq(int entries, ibv_comp_channel* channel) {
  return kExtended ? create_extended_cq(entries, channel)
                   : V(ibv_create_cq)(context, entries, nullptr, channel, 0);
}

// What ibv_poll_cq does, by either interface.
int poll_cq(ibv_cq* plain, int entries, ibv_wc* wcs) {
  if (!kExtended) return ibv_poll_cq(plain, entries, wcs);
  if (entries == 0) return 0;
  auto* cq = reinterpret_cast<ibv_cq_ex*>(plain);  // both begin alike, as ibv_cq_ex_to_cq() has it
  ibv_poll_cq_attr attributes{};
  int rc = ibv_start_poll(cq, &attributes);
  if (rc != 0) return rc == ENOENT ? 0 : -rc;
  int count = 0;
  do {
    ibv_wc& wc = wcs[count++];
    wc = {};
    wc.wr_id = cq->wr_id;
    wc.status = cq->status;
    wc.qp_num = ibv_wc_read_qp_num(cq);
  } while (count < entries && (rc = ibv_next_poll(cq)) == 0);
  ibv_end_poll(cq);
  return count;
}

#ifdef AGENT_BINDS_AT_RUN_TIME
int post_extended(ibv_qp*, const ibv_send_wr&) { return ENOSYS; }
#else
int post_extended(ibv_qp* plain, const ibv_send_wr& wr) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(plain);
  ibv_wr_start(qp);
  qp->wr_id = wr.wr_id;
  qp->wr_flags = wr.send_flags & ~unsigned(IBV_SEND_INLINE);
  const uint32_t key = wr.wr.rdma.rkey;
  const uint64_t address = wr.wr.rdma.remote_addr;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, key, address, wr.imm_data);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(qp, key, address);
      break;
    case IBV_WR_SEND:
      ibv_wr_send(qp);
      break;
    default:
      ibv_wr_rdma_write(qp, key, address);
  }
  if (plain->qp_type == IBV_QPT_UD)
    ibv_wr_set_ud_addr(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(wr.sg_list->addr), wr.sg_list->length);
  } else {
    ibv_wr_set_sge_list(qp, size_t(wr.num_sge), wr.sg_list);
  }
  return ibv_wr_complete(qp);
}
#endif

std::string hex(const ibv_gid& gid) {
  char text[33];
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", gid.raw[i]);
  return text;
}
ibv_gid unhex(const std::string& text) {
  ibv_gid gid{};
  for (int i = 0; i < 16; i++) gid.raw[i] = uint8_t(std::stoul(text.substr(size_t(2 * i), 2), nullptr, 16));
  return gid;
}

std::string open_device(std::istringstream& in) {
  int nic = 0;
  in >> nic;
  int count = 0;
  ibv_device** list = V(ibv_get_device_list)(&count);
  if (list == nullptr || nic >= count) return "error devices " + std::to_string(count);
  context = V(ibv_open_device)(list[nic]);
  V(ibv_free_device_list)(list);
  if (context == nullptr) return "error open";
  pd = V(ibv_alloc_pd)(context);
  buffer = static_cast<uint8_t*>(aligned_alloc(4096, kBufferBytes));
  memset(buffer, 0, kBufferBytes);
  mr = V(ibv_reg_mr)(pd, buffer, kBufferBytes,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (mr == nullptr) return "error reg_mr " + std::to_string(errno);
  ibv_gid gid{};
  V(ibv_query_gid)(context, 1, 1, &gid);
  std::ostringstream out;
  out << "ok " << hex(gid) << " " << uint64_t(buffer) << " " << mr->rkey;
  return out.str();
}

std::string make_pair(std::istringstream& in) {
  Pair pair;
  int depth = 0;
  std::string queues, sleeping, access;
  in >> pair.timeout >> pair.retries >> depth >> queues >> sleeping >> access;
  pair.only_receives_sends = access == "no_access";
  const ibv_qp_type type = sleeping == "uc" ? IBV_QPT_UC : sleeping == "ud" ? IBV_QPT_UD : IBV_QPT_RC;
  if (sleeping == "channel") pair.channel = V(ibv_create_comp_channel)(context);
  pair.send_cq = create_cq(4 * depth + 16, pair.channel);
  pair.recv_cq = queues == "split" ? create_cq(4 * depth + 16, pair.channel) : pair.send_cq;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = pair.send_cq;
  attributes.recv_cq = pair.recv_cq;
  attributes.qp_type = type;
  attributes.cap.max_send_wr = uint32_t(depth);
  attributes.cap.max_recv_wr = uint32_t(depth);
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 2;
  attributes.cap.max_inline_data = 64;
  if (sleeping == "srq") {
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = 16;
    shared.attr.max_sge = 1;
    attributes.srq = V(ibv_create_srq)(pd, &shared);
    if (attributes.srq == nullptr) return "error create_srq " + std::to_string(errno);
  }
  pair.qp = kExtended ? create_extended_qp(attributes) : V(ibv_create_qp)(pd, &attributes);
  if (pair.qp == nullptr) return "error create_qp " + std::to_string(errno);
  pairs.push_back(pair);
  return "ok " + std::to_string(pairs.size() - 1) + " " + std::to_string(pair.qp->qp_num) + " " +
         std::to_string(attributes.cap.max_send_wr);
}

std::string to_init(Pair& pair) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kDatagramKey;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (pair.qp->qp_type == IBV_QPT_RC) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
  if (pair.only_receives_sends) attr.qp_access_flags = 0;
  const int more = pair.qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | more);
  return rc == 0 ? "" : "error init " + std::to_string(rc);
}

std::string to_rts(Pair& pair) {
  const bool reliable = pair.qp->qp_type == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = uint8_t(pair.timeout);
  attr.retry_cnt = uint8_t(pair.retries);
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  const int more =
      reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | more);
  return rc == 0 ? "ok" : "error rts " + std::to_string(rc);
}

// connect ID NUMBER GID ADDRESS KEY [receive]: to RTS, or only to RTR.
std::string connect(std::istringstream& in) {
  size_t id = 0;
  uint32_t number = 0;
  std::string gid, only;
  in >> id >> number >> gid;
  Pair& pair = pairs.at(id);
  in >> pair.remote_address >> pair.remote_key >> only;
  pair.remote_number = number;
  if (const std::string error = to_init(pair); !error.empty()) return error;
  const ibv_qp_type type = pair.qp->qp_type;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = number;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = unhex(gid);
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  if (type == IBV_QPT_UD) {
    ibv_ah_attr to = attr.ah_attr;
    pair.ah = V(ibv_create_ah)(pd, &to);
    if (pair.ah == nullptr) return "error create_ah " + std::to_string(errno);
  }
  const int reliable = type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  const int connected =
      type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable;
  const int rc = V(ibv_modify_qp)(pair.qp, &attr, IBV_QP_STATE | connected);
  if (rc != 0) return "error rtr " + std::to_string(rc);
  return only == "receive" ? "ok" : to_rts(pair);
}

// aim ID NUMBER GID: datagrams go to that queue pair from now on.
std::string aim(std::istringstream& in) {
  size_t id = 0;
  std::string gid;
  in >> id;
  Pair& pair = pairs.at(id);
  in >> pair.remote_number >> gid;
  ibv_ah_attr to{};
  to.is_global = 1;
  to.grh.dgid = unhex(gid);
  to.grh.sgid_index = 1;
  to.grh.hop_limit = 64;
  to.port_num = 1;
  pair.other_ahs.push_back(pair.ah);
  pair.ah = V(ibv_create_ah)(pd, &to);
  return pair.ah != nullptr ? "ok" : "error create_ah " + std::to_string(errno);
}

int post(Pair& pair, ibv_wr_opcode opcode, uint64_t wr_id, uint32_t bytes, uint64_t offset, bool signaled,
         bool inlined) {
  ibv_sge piece{uint64_t(buffer) + offset, bytes, mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = bytes > 0 ? 1 : 0;
  wr.opcode = opcode;
  wr.send_flags = (signaled ? unsigned(IBV_SEND_SIGNALED) : 0u) | (inlined ? unsigned(IBV_SEND_INLINE) : 0u);
  wr.imm_data = uint32_t(wr_id);
  wr.wr.rdma.remote_addr = pair.remote_address + offset;
  wr.wr.rdma.rkey = pair.remote_key;
  if (pair.qp->qp_type == IBV_QPT_UD) wr.wr.ud = {pair.ah, pair.remote_number, kDatagramKey};
  return kExtended ? post_extended(pair.qp, wr) : ibv_post_send(pair.qp, &wr, &bad);
}

std::string send(std::istringstream& in) {
  size_t id = 0;
  std::string opcode, option;
  uint64_t wr_id = 0, offset = 0;
  uint32_t bytes = 0;
  in >> id >> opcode >> wr_id >> bytes >> offset;
  bool signaled = true, inlined = false;
  while (in >> option) {
    signaled = signaled && option != "unsignaled";
    inlined = inlined || option == "inline";
  }
  const ibv_wr_opcode code = opcode == "imm"    ? IBV_WR_RDMA_WRITE_WITH_IMM
                             : opcode == "send" ? IBV_WR_SEND
                             : opcode == "read" ? IBV_WR_RDMA_READ
                                                : IBV_WR_RDMA_WRITE;
  const int rc = post(pairs.at(id), code, wr_id, bytes, offset, signaled, inlined);
  if (inlined) memset(buffer + offset, 0, bytes);  // what was posted inline is the provider's at once
  return rc == 0 ? "ok" : "errno " + std::to_string(rc);
}

std::string receive(std::istringstream& in) {
  size_t id = 0;
  uint64_t wr_id = 0;
  in >> id >> wr_id;
  ibv_sge piece{uint64_t(buffer), 4096, mr->lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  const int rc = ibv_post_recv(pairs.at(id).qp, &wr, &bad);
  return rc == 0 ? "ok" : "errno " + std::to_string(rc);
}

// poll ID QUEUE COUNT MS: "wr_id:status:at_ns" for each completion, until COUNT are there or MS have passed.
std::string poll_queue(std::istringstream& in) {
  size_t id = 0;
  std::string queue;
  int wanted = 0;
  uint64_t ms = 0;
  in >> id >> queue >> wanted >> ms;
  ibv_cq* cq = queue == "recv" ? pairs.at(id).recv_cq : pairs.at(id).send_cq;
  const uint64_t end = now_ns() + ms * 1000000;
  std::ostringstream out;
  out << "ok";
  int seen = 0;
  do {
    ibv_wc wcs[4];
    const int count = poll_cq(cq, std::min(4, wanted - seen), wcs);
    if (count < 0) return "error poll";
    for (int i = 0; i < count; i++) {
      if (wcs[i].qp_num != pairs.at(id).qp->qp_num) continue;
      seen++;
      out << " " << wcs[i].wr_id << ":" << int(wcs[i].status) << ":" << now_ns();
    }
    if (count == 0) std::this_thread::yield();
  } while (seen < wanted && now_ns() < end);
  return out.str();
}

// Sleeps on the completion channel, as a program does that does not spin.
std::string sleep_queue(std::istringstream& in) {
  size_t id = 0;
  std::string queue;
  int wanted = 0, ms = 0;
  in >> id >> queue >> wanted >> ms;
  Pair& pair = pairs.at(id);
  ibv_cq* cq = queue == "recv" ? pair.recv_cq : pair.send_cq;
  const uint64_t end = now_ns() + uint64_t(ms) * 1000000;
  std::ostringstream out;
  out << "ok";
  int seen = 0;
  for (;;) {
    ibv_req_notify_cq(cq, 0);
    ibv_wc wc;
    while (seen < wanted && poll_cq(cq, 1, &wc) > 0) {
      seen++;
      out << " " << wc.wr_id << ":" << int(wc.status) << ":" << now_ns();
    }
    if (seen >= wanted) return out.str();
    const int64_t left = int64_t(end - now_ns()) / 1000000;
    pollfd p{pair.channel->fd, POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, int(left)) <= 0) return out.str();
    ibv_cq* which = nullptr;
    void* cookie = nullptr;
    if (V(ibv_get_cq_event)(pair.channel, &which, &cookie) == 0) V(ibv_ack_cq_events)(which, 1);
  }
}

// cq_event ID [COUNT]: COUNT threads (1) sleep in ibv_get_cq_event; what each was told, the failures first.
std::string sleep_in_get(std::istringstream& in) {
  size_t id = 0, count = 1;
  in >> id >> count;
  std::vector<std::string> told(in ? count : 1);
  std::vector<std::thread> threads;
  for (std::string& answer : told)
    threads.emplace_back([&answer, channel = pairs.at(id).channel] {
      ibv_cq* which = nullptr;
      void* cookie = nullptr;
      const bool came = V(ibv_get_cq_event)(channel, &which, &cookie) == 0;
      answer = came ? "event" : "errno " + std::to_string(errno);
      if (came) V(ibv_ack_cq_events)(which, 1);
    });
  for (std::thread& thread : threads) thread.join();
  std::sort(told.begin(), told.end());
  std::string all;
  for (const std::string& answer : told) all += (all.empty() ? "" : ", ") + answer;
  return all;
}

// poll_channel ID MS: sleeps in poll() on its completion channel. "ok REVENTS", 0 when nothing comes.
std::string poll_channel(std::istringstream& in) {
  size_t id = 0;
  int ms = 0;
  in >> id >> ms;
  pollfd channel{pairs.at(id).channel->fd, POLLIN, 0};
  ::poll(&channel, 1, ms);
  return "ok " + std::to_string(channel.revents);
}

std::string destroy_channel(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  const int descriptor = pairs.at(id).channel->fd;
  const int rc = V(ibv_destroy_comp_channel)(pairs.at(id).channel);
  if (rc != 0) return "errno " + std::to_string(rc);
  pairs.at(id).channel = nullptr;
  return fcntl(descriptor, F_GETFD) < 0 ? "ok" : "error it is still open";
}

std::string try_to_make_channel() {
  ibv_comp_channel* channel = V(ibv_create_comp_channel)(context);
  if (channel == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_destroy_comp_channel)(channel) == 0 ? "ok" : "error destroy_comp_channel";
}

// chain ID COUNT: a list of COUNT writes, wr_id 1 to COUNT; which one was refused.
std::string chain(std::istringstream& in) {
  size_t id = 0, count = 0;
  in >> id >> count;
  Pair& pair = pairs.at(id);
  ibv_sge piece{uint64_t(buffer), 8, mr->lkey};
  std::vector<ibv_send_wr> wrs(count);
  for (size_t i = 0; i < count; i++) {
    wrs[i].wr_id = i + 1;
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &piece;
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_RDMA_WRITE;
    wrs[i].send_flags = IBV_SEND_SIGNALED;
    wrs[i].wr.rdma.remote_addr = pair.remote_address;
    wrs[i].wr.rdma.rkey = pair.remote_key;
  }
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(pair.qp, wrs.data(), &bad);
  return rc == 0 ? "ok"
                 : "errno " + std::to_string(rc) + " at " + std::to_string(bad != nullptr ? bad->wr_id : 0);
}

// register|register_iova|register_iova2|register_dmabuf: tries to, and forgets it.
std::string try_to_register(const std::string& how) {
  static uint8_t memory[4096];
  const int access = IBV_ACCESS_LOCAL_WRITE;
  errno = 0;
  ibv_mr* made = how == "register" ? V(ibv_reg_mr)(pd, memory, sizeof memory, access)
                 : how == "register_iova"
                     ? V(ibv_reg_mr_iova)(pd, memory, sizeof memory, uint64_t(memory), access)
                 : how == "register_iova2"
                     ? V(ibv_reg_mr_iova2)(pd, memory, sizeof memory, uint64_t(memory), unsigned(access))
                     : V(ibv_reg_dmabuf_mr)(pd, 0, sizeof memory, 0, -1, access);
  if (made == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_dereg_mr)(made) == 0 ? "ok" : "error dereg";
}

std::string show_gid(std::istringstream& in) {
  int index = 0;
  in >> index;
  ibv_gid gid{};
  return V(ibv_query_gid)(context, 1, index, &gid) == 0 ? "ok " + hex(gid) : "error gid";
}

std::string wait_event(std::istringstream& in) {
  int ms = 0;
  in >> ms;
  pollfd p{context->async_fd, POLLIN, 0};
  if (::poll(&p, 1, ms) <= 0) return "none";
  ibv_async_event event{};
  if (V(ibv_get_async_event)(context, &event) != 0) return "error get_async_event";
  std::string text = "event " + std::to_string(event.event_type);
  if (event.event_type == IBV_EVENT_QP_FATAL) text += " " + std::to_string(event.element.qp->qp_num);
  V(ibv_ack_async_event)(&event);
  return text;
}

// watch [ID]: puts the async descriptor, or the completion channel, into an epoll set, once. watched MS: what
// that set, and poll(), say of it: "ok EVENTS REVENTS", both 0 when nothing comes within MS.
int epoll_set = -1, watched_fd = -1;

std::string watch(std::istringstream& in) {
  size_t id = 0;
  watched_fd = in >> id ? pairs.at(id).channel->fd : context->async_fd;
  epoll_set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.u64 = 0x1234567890abcdef;
  return epoll_ctl(epoll_set, EPOLL_CTL_ADD, watched_fd, &interest) == 0 ? "ok" : "error epoll_ctl";
}

std::string watched(std::istringstream& in) {
  int ms = 0;
  in >> ms;
  epoll_event event{};
  if (epoll_wait(epoll_set, &event, 1, ms) > 0 && event.data.u64 != 0x1234567890abcdef) return "error data";
  pollfd p{watched_fd, POLLIN, 0};
  ::poll(&p, 1, 0);
  return "ok " + std::to_string(event.events) + " " + std::to_string(p.revents);
}

std::string reopen(std::istringstream& in) {
  size_t nic = 0;
  in >> nic;
  ibv_device** list = V(ibv_get_device_list)(nullptr);
  errno = 0;
  ibv_context* second = V(ibv_open_device)(list[nic]);
  const int error = errno;
  V(ibv_free_device_list)(list);
  if (second == nullptr) return "errno " + std::to_string(error);
  return V(ibv_close_device)(second) == 0 ? "ok" : "error close";
}

// cycle NIC COUNT: opens and closes the device so often; how many bytes of the heap that has taken.
std::string cycle(std::istringstream& in) {
  size_t nic = 0;
  int count = 0;
  in >> nic >> count;
  ibv_device** list = V(ibv_get_device_list)(nullptr);
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < count; i++) {
    ibv_context* one = V(ibv_open_device)(list[nic]);
    if (one == nullptr || V(ibv_close_device)(one) != 0) return "error cycle " + std::to_string(i);
  }
  const size_t after = mallinfo2().uordblks;
  V(ibv_free_device_list)(list);
  return "ok " + std::to_string(int64_t(after) - int64_t(before));
}

// old_version PATH: asks that library, which has one, for the ibv_open_device of IBVERBS_1.0.
std::string old_version(std::istringstream& in) {
  std::string path;
  in >> path;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle != nullptr ? dlvsym(handle, "ibv_open_device", "IBVERBS_1.0") : nullptr;
  if (found == nullptr) return std::string("error ") + dlerror();
  errno = 0;
  const bool null = reinterpret_cast<decltype(&::ibv_open_device)>(found)(nullptr) == nullptr;
  return null && errno == ENOTSUP ? "ok" : "error not its own";
}

std::string port_state(std::istringstream& in) {
  int port = 1;
  in >> port;
  ibv_port_attr attr{};
  const int rc = ibv_query_port(context, uint8_t(in ? port : 1), &attr);
  return rc == 0 ? "ok " + std::to_string(attr.state) + " " + std::to_string(attr.phys_state)
                 : "errno " + std::to_string(rc);
}

std::string qp_state(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int rc = V(ibv_query_qp)(pairs.at(id).qp, &attr, IBV_QP_STATE, &init);
  if (rc != 0) return "errno " + std::to_string(rc);
  return "ok " + std::to_string(attr.qp_state) + " " +
         std::to_string(__atomic_load_n(&pairs.at(id).qp->state, __ATOMIC_RELAXED));
}

// gaze: a thread reads ibv_qp::state of every queue pair, over and over; answers once it has begun. gazed:
// ends it when it has read all of them COUNT times; how often it did, and how often one was ERR. No queue
// pair may be made or destroyed in between.
std::thread gazer;
std::atomic<bool> gazing{false};
std::atomic<uint64_t> gazes{0};
uint64_t errs_gazed = 0;

void wait_for_gazes(uint64_t count) {
  while (gazes.load() < count) std::this_thread::yield();
}

std::string gaze() {
  gazing = true;
  gazes = errs_gazed = 0;
  gazer = std::thread([] {
    for (; gazing.load(std::memory_order_relaxed); gazes++)
      for (const Pair& pair : pairs)
        errs_gazed += __atomic_load_n(&pair.qp->state, __ATOMIC_RELAXED) == IBV_QPS_ERR;
  });
  wait_for_gazes(1);
  return "ok";
}

std::string gazed(std::istringstream& in) {
  uint64_t count = 0;
  in >> count;
  wait_for_gazes(count);  // a busy machine may have let it read only a few times
  gazing = false;
  gazer.join();
  return "ok " + std::to_string(gazes) + " " + std::to_string(errs_gazed);
}

std::string move_to(std::istringstream& in, ibv_qp_state state) {
  size_t id = 0;
  in >> id;
  ibv_qp_attr attr{};
  attr.qp_state = state;
  const int rc = V(ibv_modify_qp)(pairs.at(id).qp, &attr, IBV_QP_STATE);
  return rc == 0 ? "ok" : "errno " + std::to_string(rc);
}

// stream WINDOW BYTES MS ID...: keeps WINDOW writes of BYTES in flight on each pair; answers how long it
// took, for how much of that it did not run, the bytes completed per pair and whether the completions of each
// came in order.
std::string stream(std::istringstream& in) {
  uint64_t window = 0, ms = 0;
  uint32_t bytes = 0;
  in >> window >> bytes >> ms;
  struct Flow {
    Pair* pair;
    uint64_t posted = 0, done = 0;
    bool ordered = true;
  };
  std::vector<Flow> flows;
  for (size_t id; in >> id;) flows.push_back({&pairs.at(id)});
  constexpr uint64_t kPauseNs = 10000000;  // any longer, and the injector need not make it good
  const uint64_t end = now_ns() + ms * 1000000;
  uint64_t paused = 0;
  for (uint64_t last = 0, now = now_ns(); now < end;) {
    for (Flow& flow : flows) {
      while (flow.posted - flow.done < window &&
             post(*flow.pair, IBV_WR_RDMA_WRITE, flow.posted, bytes, 0, true, false) == 0)
        flow.posted++;
      ibv_wc wcs[8];
      const int count = poll_cq(flow.pair->send_cq, 8, wcs);
      for (int i = 0; i < count; i++) {
        if (wcs[i].status != IBV_WC_SUCCESS) return "error status " + std::to_string(wcs[i].status);
        flow.ordered = flow.ordered && wcs[i].wr_id == flow.done;
        flow.done++;
      }
    }
    std::this_thread::yield();
    last = now, now = now_ns();
    if (now - last > kPauseNs) paused += now - last;
  }
  const uint64_t took = now_ns() - (end - ms * 1000000);
  for (Flow& flow : flows) {  // leave nothing in flight
    const uint64_t give_up = now_ns() + 10000000000ull;
    uint64_t done = flow.done;
    while (done < flow.posted && now_ns() < give_up) {
      ibv_wc wc;
      if (poll_cq(flow.pair->send_cq, 1, &wc) == 1) {
        flow.ordered = flow.ordered && wc.wr_id == done;
        done++;
      }
    }
    flow.ordered = flow.ordered && done == flow.posted;
  }
  std::ostringstream out;
  out << "ok " << took << " " << paused;
  for (const Flow& flow : flows) out << " " << flow.done * bytes << ":" << flow.ordered;
  return out.str();
}

// posts ID COUNT: so many writes of 8 bytes, 8 in flight; how many of them were refused with EIO.
std::string posts(std::istringstream& in) {
  size_t id = 0;
  uint64_t count = 0, refused = 0, in_flight = 0;
  in >> id >> count;
  Pair& pair = pairs.at(id);
  while (count > 0 || in_flight > 0) {
    if (count > 0 && in_flight < 8) {
      const int rc = post(pair, IBV_WR_RDMA_WRITE, count, 8, 0, true, false);
      if (rc != 0 && rc != EIO) return "error post " + std::to_string(rc);
      count--;
      refused += rc != 0;
      in_flight += rc == 0;
      continue;
    }
    ibv_wc wcs[8];
    const int done = poll_cq(pair.send_cq, 8, wcs);
    for (int i = 0; i < done; i++)
      if (wcs[i].status != IBV_WC_SUCCESS) return "error status " + std::to_string(wcs[i].status);
    if (done > 0) in_flight -= uint64_t(done);
  }
  return "ok " + std::to_string(refused);
}

// hammer MS ID: one thread posts, two poll, one asks for states, until MS have passed. For data race
// detection.
std::string hammer(std::istringstream& in) {
  uint64_t ms = 0;
  size_t id = 0;
  in >> ms >> id;
  Pair& pair = pairs.at(id);
  const uint64_t end = now_ns() + ms * 1000000;
  std::atomic<uint64_t> posted{0}, completed{0}, failed{0};
  std::atomic<bool> all_posted{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (now_ns() < end) {
      if (posted - completed < 8 && post(pair, IBV_WR_RDMA_WRITE, posted, 4096, 0, true, false) == 0)
        posted++;
      std::this_thread::yield();
    }
    all_posted = true;
  });
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      while (!all_posted || posted != completed) {
        ibv_wc wcs[4];
        const int count = poll_cq(pair.send_cq, 4, wcs);
        for (int k = 0; k < count; k++) failed += wcs[k].status != IBV_WC_SUCCESS;
        if (count > 0) completed += uint64_t(count);
        if (now_ns() > end + 5000000000ull) break;
        std::this_thread::yield();
      }
    });
  threads.emplace_back([&] {
    while (now_ns() < end) {
      ibv_port_attr attr{};
      ibv_query_port(context, 1, &attr);
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) thread.join();
  return "ok " + std::to_string(posted) + " " + std::to_string(completed) + " " + std::to_string(failed);
}

Pair& pair_of(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  return pairs.at(id);
}

std::string ok_or_errno(int rc) { return rc == 0 ? "ok" : "errno " + std::to_string(rc); }

// signalled ID: whether an event of its completion queues waits for it.
std::string signalled(std::istringstream& in) {
  pollfd channel{pair_of(in).channel->fd, POLLIN, 0};
  return "ok " + std::to_string(::poll(&channel, 1, 0));
}

std::string query_device(std::istringstream&) {
  ibv_device_attr attr{};
  return ok_or_errno(V(ibv_query_device)(context, &attr));
}

std::string try_to_alloc_pd(std::istringstream&) {
  ibv_pd* more = V(ibv_alloc_pd)(context);
  if (more == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_dealloc_pd)(more) == 0 ? "ok" : "error dealloc_pd";
}

std::string poll_once(std::istringstream& in) {
  ibv_wc wc{};
  return "ok " + std::to_string(poll_cq(pair_of(in).send_cq, 1, &wc));
}

std::string try_to_create_cq(std::istringstream&) {
  ibv_cq* cq = create_cq(16, nullptr);
  if (cq == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_destroy_cq)(cq) == 0 ? "ok" : "error destroy_cq";
}

std::string destroy_qp(std::istringstream& in) {
  Pair& pair = pair_of(in);
  const int rc = V(ibv_destroy_qp)(pair.qp);
  if (rc == 0) pair.qp = nullptr;
  return ok_or_errno(rc);
}

// set OFFSET WORD: of the registered memory; get OFFSET.
std::string set_word(std::istringstream& in) {
  uint64_t at = 0, word = 0;
  in >> at >> word;
  memcpy(buffer + at, &word, 8);
  return "ok";
}
std::string get_word(std::istringstream& in) {
  uint64_t at = 0, word = 0;
  in >> at;
  memcpy(&word, buffer + at, 8);
  return "ok " + std::to_string(word);
}

// raise NAME VALUE: an event for the triggers of faults.
std::string raise_event(std::istringstream& in) {
  std::string name;
  uint64_t value = 0;
  in >> name >> value;
  auto* event = reinterpret_cast<void (*)(const char*, uint64_t)>(dlsym(RTLD_DEFAULT, "faultinject_event"));
  if (event != nullptr) event(name.c_str(), value);
  return event != nullptr ? "ok" : "none";
}

// fork: a child that opens a device of its own; what state it finds the port in.
std::string fork_and_open(std::istringstream&) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    ibv_device** list = V(ibv_get_device_list)(&count);
    ibv_context* own = list != nullptr && count > 0 ? V(ibv_open_device)(list[0]) : nullptr;
    ibv_port_attr attr{};
    const bool asked = own != nullptr && ibv_query_port(own, 1, &attr) == 0;
    _exit(asked ? 10 + attr.state : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return "ok " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

std::string try_event(std::istringstream&) {
  ibv_async_event event{};
  return V(ibv_get_async_event)(context, &event) == 0 ? "event" : "errno " + std::to_string(errno);
}

std::string close_all(std::istringstream&) {
  for (Pair& pair : pairs) {
    if (pair.qp != nullptr) V(ibv_destroy_qp)(pair.qp);
    if (pair.ah != nullptr) V(ibv_destroy_ah)(pair.ah);
    for (ibv_ah* ah : pair.other_ahs) V(ibv_destroy_ah)(ah);
    V(ibv_destroy_cq)(pair.send_cq);
    if (pair.recv_cq != pair.send_cq) V(ibv_destroy_cq)(pair.recv_cq);
    if (pair.channel != nullptr) V(ibv_destroy_comp_channel)(pair.channel);
  }
  pairs.clear();
  V(ibv_dereg_mr)(mr);
  V(ibv_dealloc_pd)(pd);
  return V(ibv_close_device)(context) == 0 ? "ok" : "error";
}

using In = std::istringstream;
const std::map<std::string, std::string (*)(In&)> kCommands = {
    // device, memory and protection domain
    {"open", open_device},
    {"reopen", reopen},
    {"old_version", old_version},
    {"device", query_device},
    {"port", port_state},
    {"gid", show_gid},
    {"alloc_pd", try_to_alloc_pd},
    {"dereg", [](In&) { return ok_or_errno(V(ibv_dereg_mr)(mr)); }},
    {"register", [](In&) { return try_to_register("register"); }},
    {"register_iova", [](In&) { return try_to_register("register_iova"); }},
    {"register_iova2", [](In&) { return try_to_register("register_iova2"); }},
    {"register_dmabuf", [](In&) { return try_to_register("register_dmabuf"); }},
    {"set", set_word},
    {"get", get_word},
    {"close", close_all},
    // queue pairs
    {"qp", make_pair},
    {"connect", connect},
    {"init",
     [](In& in) {
       const std::string error = to_init(pair_of(in));
       return error.empty() ? "ok" : error;
     }},
    {"rts", [](In& in) { return to_rts(pair_of(in)); }},
    {"err", [](In& in) { return move_to(in, IBV_QPS_ERR); }},
    {"reset", [](In& in) { return move_to(in, IBV_QPS_RESET); }},
    {"state", qp_state},
    {"field",  // ibv_qp::state as it stands, without a query
     [](In& in) {
       return "ok " + std::to_string(__atomic_load_n(&pair_of(in).qp->state, __ATOMIC_RELAXED));
     }},
    {"gaze", [](In&) { return gaze(); }},
    {"gazed", gazed},
    {"aim", aim},
    {"cycle", cycle},
    {"destroy", destroy_qp},
    // work
    {"post", send},
    {"chain", chain},
    {"recv", receive},
    {"stream", stream},
    {"posts", posts},
    {"hammer", hammer},
    // completions
    {"create_cq", try_to_create_cq},
    {"destroy_cq", [](In& in) { return ok_or_errno(V(ibv_destroy_cq)(pair_of(in).send_cq)); }},
    {"poll", poll_queue},
    {"poll_once", poll_once},
    {"sleep", sleep_queue},
    {"arm",
     [](In& in) {
       return std::string(ibv_req_notify_cq(pair_of(in).send_cq, 0) == 0 ? "ok" : "error req_notify_cq");
     }},
    {"signalled", signalled},
    {"cq_event", sleep_in_get},
    {"channel", [](In&) { return try_to_make_channel(); }},
    {"poll_channel", poll_channel},
    {"destroy_channel", destroy_channel},
    // async events
    {"event", wait_event},
    {"watch", watch},
    {"watched", watched},
    {"try_event", try_event},
    {"nonblock",
     [](In&) { return std::string(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0 ? "ok" : "error"); }},
    // the process
    {"now", [](In&) { return "ok " + std::to_string(now_ns()); }},
    {"raise", raise_event},
    {"fork", fork_and_open},
};

std::string answer(const std::string& line) {
  std::istringstream in(line);
  std::string command;
  in >> command;
  const auto known = kCommands.find(command);
  return known == kCommands.end() ? "error unknown " + command : known->second(in);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line) && line != "quit";)
    std::cout << answer(line) << std::endl;
  return 0;
}
