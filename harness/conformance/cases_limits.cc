// SPDX-License-Identifier: Apache-2.0
// What a device promises not to exceed, and what it must refuse.
#include <cstdint>
#include <cstring>

#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

void send_queue(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.send_depth = 16, .cq_depth = 4096});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(pair.a.qp(), &attributes, IBV_QP_CAP, &init) == 0, "ibv_query_qp");
  notes.expect_true("cap is at least what was asked for", init.cap.max_send_wr >= 16);
  // The peer drops everything, so nothing leaves the queue.
  pair.b.destroy_qp();
  uint32_t taken = 0;
  int rc = 0;
  while (taken < 4096 && (rc = pair.a.post({.id = taken, .bytes = 8})) == 0) ++taken;
  notes.expect_true("takes max_send_wr", taken >= init.cap.max_send_wr);
  notes.expect("one more than it has room for", "ENOMEM", taken < 4096 ? errno_name(rc) : "no end");
}

void receive_queue(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.recv_depth = 16});
  uint32_t taken = 0;
  int rc = 0;
  while (taken < 4096 && (rc = pair.a.post_recv(taken)) == 0) ++taken;
  notes.expect_true("takes max_recv_wr", taken >= 16);
  notes.expect("one more than it has room for", "ENOMEM", taken < 4096 ? errno_name(rc) : "no end");
}

void inline_data(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.inline_bytes = 64;
  Pair pair(device_a, device_b, options);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(pair.a.qp(), &attributes, IBV_QP_CAP, &init) == 0, "ibv_query_qp");
  const uint32_t room = init.cap.max_inline_data;
  notes.expect_true("room for what was asked for", room >= 64);
  std::memset(pair.a.memory(), 'x', 64);
  require(pair.a.post({.id = 1, .bytes = 64, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .lkey = 0}) == 0,
          "post inline");
  std::memset(pair.a.memory(), 'y', 64);  // inline data may be overwritten when the post has returned
  notes.expect("without a key", "SUCCESS", status_name(pair.a.wait().status));
  notes.expect("the data of the time of the post", std::string(64, 'x'), std::string(pair.b.memory(), 64));
  const int rc = pair.a.post({.id = 2, .bytes = room + 1, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE});
  notes.expect("one byte more than there is room for", "EINVAL|ENOMEM", errno_name(rc));
}

void scatter_elements(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b, {.sge = 2});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(pair.a.qp(), &attributes, IBV_QP_CAP, &init) == 0, "ibv_query_qp");
  std::vector<ibv_sge> parts(init.cap.max_send_sge + 1, ibv_sge{pair.a.address(), 4, pair.a.mr()->lkey});
  ibv_send_wr request{};
  request.sg_list = parts.data();
  request.num_sge = int(parts.size());
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = pair.b.address();
  request.wr.rdma.rkey = pair.b.mr()->rkey;
  ibv_send_wr* bad = nullptr;
  notes.expect("more elements than max_send_sge", "EINVAL|ENOMEM",
               errno_name(ibv_post_send(pair.a.qp(), &request, &bad)));
  notes.expect_true("bad_wr is the refused one", bad == &request);
}

void create_beyond_the_device(Device& device_a, Device&, Notes& notes) {
  Endpoint a(device_a);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = a.cq();
  init.cap = {uint32_t(device_a.limits().max_qp_wr) + 1, 1, 1, 1, 0};
  errno = 0;
  ibv_qp* qp = ibv_create_qp(a.pd(), &init);
  notes.expect("a queue pair deeper than max_qp_wr", "EINVAL|ENOMEM",
               qp == nullptr ? errno_name(errno) : "made");
  if (qp != nullptr) ibv_destroy_qp(qp);
  init.cap = {1, 1, uint32_t(device_a.limits().max_sge) + 1, 1, 0};
  errno = 0;
  qp = ibv_create_qp(a.pd(), &init);
  notes.expect("with more than max_sge elements", "EINVAL|ENOMEM",
               qp == nullptr ? errno_name(errno) : "made");
  if (qp != nullptr) ibv_destroy_qp(qp);
  errno = 0;
  ibv_cq* cq = ibv_create_cq(device_a.context(), 0, nullptr, nullptr, 0);
  notes.expect("a completion queue of 0 entries", "EINVAL", cq == nullptr ? errno_name(errno) : "made");
  if (cq != nullptr) ibv_destroy_cq(cq);
  errno = 0;
  cq = ibv_create_cq(device_a.context(), device_a.limits().max_cqe + 1, nullptr, nullptr, 0);
  notes.expect("one larger than max_cqe", "EINVAL|ENOMEM", cq == nullptr ? errno_name(errno) : "made");
  if (cq != nullptr) ibv_destroy_cq(cq);
  errno = 0;
  cq = ibv_create_cq(device_a.context(), 16, nullptr, nullptr, device_a.context()->num_comp_vectors);
  notes.expect("a completion vector that the device has not", "EINVAL",
               cq == nullptr ? errno_name(errno) : "made");
  if (cq != nullptr) ibv_destroy_cq(cq);
  cq = ibv_create_cq(device_a.context(), 16, nullptr, nullptr, device_a.context()->num_comp_vectors - 1);
  notes.expect_true("its last one is taken", cq != nullptr);
  if (cq != nullptr) ibv_destroy_cq(cq);
}

void gid_table(Device& device_a, Device&, Notes& notes) {
  // An attribute of the kernel's interface has a length of 16 bits, and libibverbs refuses what is longer.
  const size_t most = UINT16_MAX / sizeof(ibv_gid_entry);
  std::vector<ibv_gid_entry> entries(most + 1);
  const ssize_t all = ibv_query_gid_table(device_a.context(), entries.data(), most, 0);
  if (all == -EOPNOTSUPP || all == -ENOSYS) throw NotOffered("ibv_query_gid_table");
  notes.expect_true("there are entries", all > 0);
  if (all <= 0) return;
  notes.expect_true("room for all of them is enough",
                    ibv_query_gid_table(device_a.context(), entries.data(), size_t(all), 0) == all);
  const ssize_t rc = ibv_query_gid_table(device_a.context(), entries.data(), size_t(all) - 1, 0);
  notes.expect("room for one less", "EINVAL", rc < 0 ? errno_name(int(-rc)) : "filled");
  const ssize_t more = ibv_query_gid_table(device_a.context(), entries.data(), most + 1, 0);
  notes.expect("room for more than 64 KiB", "EINVAL", more < 0 ? errno_name(int(-more)) : "filled");
}

void memory_regions(Device& device_a, Device&, Notes& notes) {
  Endpoint a(device_a);
  errno = 0;
  ibv_mr* region = ibv_reg_mr(a.pd(), a.memory(), 4096, IBV_ACCESS_REMOTE_WRITE);
  notes.expect("REMOTE_WRITE without LOCAL_WRITE", "EINVAL", region == nullptr ? errno_name(errno) : "made");
  if (region != nullptr) ibv_dereg_mr(region);
  region = ibv_reg_mr(a.pd(), a.memory() + 17, 3, 0);
  notes.expect_true("three bytes at an odd address",
                    region != nullptr && region->addr == a.memory() + 17 && region->length == 3);
  ibv_mr* second = ibv_reg_mr(a.pd(), a.memory() + 17, 3, 0);
  notes.expect_true("the same memory twice has two keys",
                    region != nullptr && second != nullptr && region->lkey != second->lkey);
  if (region != nullptr) ibv_dereg_mr(region);
  if (second != nullptr) ibv_dereg_mr(second);
  errno = 0;
  region = ibv_reg_mr(a.pd(), reinterpret_cast<void*>(uintptr_t(1) << 46), 4096, IBV_ACCESS_LOCAL_WRITE);
  notes.expect("memory that is not mapped", "EFAULT|ENOMEM", region == nullptr ? errno_name(errno) : "made");
  if (region != nullptr) ibv_dereg_mr(region);
}

void objects_in_use(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  notes.expect("ibv_destroy_cq under a queue pair", "EBUSY", errno_name(ibv_destroy_cq(pair.a.cq())));
  notes.expect("ibv_dealloc_pd under a region", "EBUSY", errno_name(ibv_dealloc_pd(pair.a.pd())));
}

void foreign_protection_domain(Device& device_a, Device& device_b, Notes& notes) {
  Pair pair(device_a, device_b);
  Endpoint other(device_a);
  require(pair.a.post({.id = 1, .bytes = 8, .lkey = other.mr()->lkey}) == 0, "post");
  notes.expect("a key of another protection domain", "LOC_PROT_ERR", status_name(pair.a.wait().status));
}

void port_attributes(Device& device_a, Device&, Notes& notes) {
  const ibv_port_attr port = device_a.port();
  notes.expect_true("ACTIVE", port.state == IBV_PORT_ACTIVE);
  notes.expect_true("active_mtu is one", port.active_mtu >= IBV_MTU_256 && port.active_mtu <= IBV_MTU_4096);
  notes.expect_true("active_mtu is no more than max_mtu", port.active_mtu <= port.max_mtu);
  notes.expect_true("there is a GID", device_a.gid().global.interface_id != 0);
  ibv_gid none{};
  notes.expect_true("a GID beyond the table is refused",
                    ibv_query_gid(device_a.context(), 1, port.gid_tbl_len, &none) != 0);
  ibv_port_attr other{};
  notes.expect_true("port 0 is refused", ibv_query_port(device_a.context(), 0, &other) != 0);
  notes.expect_true(
      "a port too many is refused",
      ibv_query_port(device_a.context(), uint8_t(device_a.limits().phys_port_cnt + 1), &other) != 0);
}

}  // namespace

std::vector<Case> limit_cases() {
  return {{"limits.send_queue", send_queue},
          {"limits.receive_queue", receive_queue},
          {"limits.inline_data", inline_data},
          {"limits.scatter_elements", scatter_elements},
          {"limits.create_beyond_the_device", create_beyond_the_device},
          {"limits.gid_table", gid_table},
          {"limits.memory_regions", memory_regions},
          {"limits.objects_in_use", objects_in_use},
          {"limits.foreign_protection_domain", foreign_protection_domain},
          {"limits.port_attributes", port_attributes}};
}

}  // namespace r2bench::conformance
