// SPDX-License-Identifier: Apache-2.0
// Work requests, one command each.
#include <string.h>

#include <vector>

#include "faultinject/testing/agent/agent.h"
#include "faultinject/testing/agent/interface.h"

namespace agent {

int post(Pair& pair, ibv_wr_opcode opcode, uint64_t wr_id, uint32_t bytes, uint64_t offset, bool signaled,
         bool inlined) {
  ibv_sge piece{uint64_t(buffer) + offset, bytes, mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &piece;
  wr.num_sge = bytes > 0 ? 1 : 0;
  wr.opcode = opcode;
  wr.send_flags = (signaled ? unsigned(IBV_SEND_SIGNALED) : 0u) | (inlined ? unsigned(IBV_SEND_INLINE) : 0u);
  wr.imm_data = uint32_t(wr_id);
  wr.wr.rdma.remote_addr = pair.remote_address + offset;
  wr.wr.rdma.rkey = pair.remote_key;
  if (pair.qp->qp_type == IBV_QPT_UD) wr.wr.ud = {pair.ah, pair.remote_number, kDatagramKey};
  return post_send(pair.qp, wr);
}

namespace {

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

}  // namespace

Commands work_commands() {
  return {
      {"post", send},
      {"chain", chain},
      {"recv", receive},
  };
}

}  // namespace agent
