// SPDX-License-Identifier: Apache-2.0
// The device, its protection domain and its memory.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faultinject/testing/agent/agent.h"

namespace agent {
namespace {

constexpr size_t kBufferBytes = 8 << 20;

std::string hex(const ibv_gid& gid) {
  char text[33];
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", gid.raw[i]);
  return text;
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

std::string query_device(std::istringstream&) {
  ibv_device_attr attr{};
  return ok_or_errno(V(ibv_query_device)(context, &attr));
}

// The most entries that a completion queue may have.
std::string max_cqe(std::istringstream&) {
  ibv_device_attr attr{};
  const int rc = V(ibv_query_device)(context, &attr);
  return rc == 0 ? "ok " + std::to_string(attr.max_cqe) : "errno " + std::to_string(rc);
}

std::string port_state(std::istringstream& in) {
  int port = 1;
  in >> port;
  ibv_port_attr attr{};
  const int rc = ibv_query_port(context, uint8_t(in ? port : 1), &attr);
  return rc == 0 ? "ok " + std::to_string(attr.state) + " " + std::to_string(attr.phys_state)
                 : "errno " + std::to_string(rc);
}

std::string show_gid(std::istringstream& in) {
  int index = 0;
  in >> index;
  ibv_gid gid{};
  return V(ibv_query_gid)(context, 1, index, &gid) == 0 ? "ok " + hex(gid) : "error gid";
}

std::string try_to_alloc_pd(std::istringstream&) {
  ibv_pd* more = V(ibv_alloc_pd)(context);
  if (more == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_dealloc_pd)(more) == 0 ? "ok" : "error dealloc_pd";
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

}  // namespace

Commands device_commands() {
  using In = std::istringstream;
  return {
      {"open", open_device},
      {"reopen", reopen},
      {"old_version", old_version},
      {"device", query_device},
      {"max_cqe", max_cqe},
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
      {"cycle", cycle},
  };
}

}  // namespace agent
