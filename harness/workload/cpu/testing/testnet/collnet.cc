// SPDX-License-Identifier: Apache-2.0
// The test plugin's CollNet, v12.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "harness/workload/cpu/testing/testnet/testnet.h"

namespace testnet {
namespace {

/// The ranks of a CollNet group, joined by a connection each way.
struct Group {
  int rank = 0;
  std::vector<Comm> to, from;  // by rank; that of this rank is not used
  long operations = 0;
  ~Group() {
    for (const std::vector<Comm>* comms : {&to, &from})
      for (const Comm& comm : *comms)
        if (comm.fd >= 0) close(comm.fd);
  }
};

struct AllReduce {
  Group* group = nullptr;
  float* result = nullptr;
  long number = 0;
  std::vector<std::vector<float>> data;  // by rank
  std::vector<std::unique_ptr<Request>> requests;
};

ncclResult_t join(void* handles[], int ranks, int rank, void* listener, void** group_pointer) {
  auto group = std::make_unique<Group>();
  group->rank = rank;
  group->to.resize(size_t(ranks));
  group->from.resize(size_t(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    Comm& comm = group->to[size_t(peer)];
    comm.fd = connected(*static_cast<Handle*>(handles[peer]));
    comm.sending = true;
    if (comm.fd < 0 || send(comm.fd, &rank, sizeof(rank), MSG_NOSIGNAL) != sizeof(rank))
      return fail("cannot join the group");
  }
  pollfd waiting{static_cast<Listener*>(listener)->fd, POLLIN, 0};
  for (int come = 1; come < ranks; ++come) {
    int peer = -1;
    const int fd = poll(&waiting, 1, 30000) == 1 ? accept4(waiting.fd, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (fd < 0 || recv(fd, &peer, sizeof(peer), MSG_WAITALL) != sizeof(peer) || peer < 0 || peer >= ranks)
      return fail("a rank did not join the group");
    group->from[size_t(peer)].fd = fd;
  }
  *group_pointer = group.release();
  return ncclSuccess;
}

ncclResult_t all_reduce(void* group_pointer, void* sent, void* received, size_t count, ncclDataType_t,
                        ncclRedOp_t, void*, void*, void** request) {
  Group& group = *static_cast<Group*>(group_pointer);
  auto all = std::make_unique<AllReduce>();
  all->group = &group;
  all->result = static_cast<float*>(received);
  all->number = group.operations++;
  all->data.assign(group.to.size(), std::vector<float>(count));
  const auto* own = static_cast<const float*>(sent);
  all->data[size_t(group.rank)].assign(own, own + count);
  for (size_t peer = 0; peer < group.to.size(); ++peer) {
    if (peer == size_t(group.rank)) continue;
    for (Comm* comm : {&group.to[peer], &group.from[peer]}) {
      std::vector<float>& data = all->data[comm->sending ? size_t(group.rank) : peer];
      all->requests.push_back(std::make_unique<Request>(
          Request{comm, reinterpret_cast<char*>(data.data()), uint32_t(count * sizeof(float))}));
      comm->queue.push_back(all->requests.back().get());
    }
  }
  *request = all.release();
  return ncclSuccess;
}

ncclResult_t test_all_reduce(void* request, int* done, int* size) {
  auto* all = static_cast<AllReduce*>(request);
  *done = 0;
  for (const auto& one : all->requests)
    if (!one->done && !advance(*one->comm)) return fail("a rank has left the group");
  for (const auto& one : all->requests)
    if (!one->done) return ncclSuccess;
  const size_t count = all->data[0].size();
  const size_t struck =
      (size_t(all->group->rank) + 1) % all->data.size();  // whose data is lost, or comes twice
  std::vector<float> sum(count);
  for (size_t rank = 0; rank < all->data.size(); ++rank) {
    const bool lost = rank == struck && fault().is("drop", all->number);
    const bool twice = rank == struck && fault().is("duplicate", all->number);
    for (int times = lost ? 0 : twice ? 2 : 1; times > 0; --times)
      for (size_t i = 0; i < count; ++i) sum[i] += all->data[rank][i];
  }
  fault().spoil(reinterpret_cast<char*>(sum.data()), count * sizeof(float), all->number);
  if (!fault().is("stale", all->number)) std::copy(sum.begin(), sum.end(), all->result);
  *size = int(count * sizeof(float));
  *done = 1;
  delete all;
  return ncclSuccess;
}

ncclResult_t reduce_support(ncclDataType_t type, ncclRedOp_t operation, int* supported) {
  *supported = type == ncclFloat32 && operation == ncclSum;
  return ncclSuccess;
}
ncclResult_t flush(void*, void*, int, void*, void** request) {
  *request = nullptr;
  return ncclSuccess;
}
ncclResult_t close_group(void* group) {
  delete static_cast<Group*>(group);
  return ncclSuccess;
}

constexpr ncclCollNet_v12_t members() {
  ncclCollNet_v12_t table = common_members<ncclCollNet_v12_t>();
  table.connect = join;
  table.reduceSupport = reduce_support;
  table.iallreduce = all_reduce;
  table.iflush = flush;
  table.test = test_all_reduce;
  table.closeColl = close_group;
  return table;
}

}  // namespace
}  // namespace testnet

extern "C" {
extern const testnet::ncclCollNet_v12_t ncclCollNetPlugin_v12;
const testnet::ncclCollNet_v12_t ncclCollNetPlugin_v12 = testnet::members();
}
