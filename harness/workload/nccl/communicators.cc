// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/communicators.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "harness/workload/cpu/small_float.h"

namespace r2bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kAskEvery = 2ms;   // NCCL for an asynchronous error
constexpr auto kCloseBound = 6s;  // of all communicators
constexpr auto kAbortBound = 3s;

/// The factor of a premultiplied sum, as the type stores it: what the pattern scales by.
std::vector<char> premultiplier(DataType type) {
  std::vector<char> bytes(element_size(type));
  const auto store = [&](auto value) { std::memcpy(bytes.data(), &value, bytes.size()); };
  switch (type) {
    case DataType::kFloat64:
      store(0.5);
      break;
    case DataType::kFloat32:
      store(0.5f);
      break;
    case DataType::kFloat16:
      store(Float16(0.5));
      break;
    case DataType::kBfloat16:
      store(Bfloat16(0.5));
      break;
    case DataType::kFloat8e4m3:
      store(Float8e4m3(0.5));
      break;
    case DataType::kFloat8e5m2:
      store(Float8e5m2(0.5));
      break;
    default:
      store(uint64_t{3});  // the low bytes
  }
  return bytes;
}

}  // namespace

Communicators::Communicators(const nccl::Library& nccl, const RankConfig& config, const NcclOptions& options)
    : driver_(cuda::Driver::instance()), nccl_(nccl), config_(config), options_(options) {
  lanes_.resize(size_t(options.communicators * options.sets()));
  for (Lane& lane : lanes_) {
    driver_.check(driver_.StreamCreate(&lane.stream, cuda::kStreamNonBlocking), "cuStreamCreate");
    driver_.check(driver_.EventCreate(&lane.done, cuda::kEventDisableTiming), "cuEventCreate");
  }
  driver_.check(driver_.EventCreate(&begin_, cuda::kEventDisableTiming), "cuEventCreate");
  if (!is_beside(options.transport)) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int side = NcclOptions::side_of_set(int(i) / options.communicators);
    lanes_[i].network = has_plugin(options.transport) && side == 0 ? "R2CCL" : "IB";
  }
}

std::vector<nccl::UniqueId> Communicators::make_ids() const {
  const bool again = options_.renewal && options_.renewal->by == RenewBy::kAbort;
  std::vector<nccl::UniqueId> ids(lanes_.size() * (again ? 2 : 1));
  for (nccl::UniqueId& id : ids) nccl_.check(nccl_.GetUniqueId(&id), "ncclGetUniqueId");
  return ids;
}

void Communicators::initialise(const std::vector<nccl::UniqueId>& ids) {
  for (size_t i = 0; i < lanes_.size(); ++i) join(lanes_[i], ids.at(i));
  spare_ids_.assign(ids.begin() + std::ptrdiff_t(lanes_.size()), ids.end());
}

void Communicators::join(Lane& lane, const nccl::UniqueId& id) {
  if (lane.network) {
    nccl::Config config;
    config.net_name = lane.network;
    nccl_.check(nccl_.CommInitRankConfig(&lane.comm, config_.ranks(), id, config_.rank(), &config),
                "ncclCommInitRankConfig");
  } else {
    nccl_.check(nccl_.CommInitRank(&lane.comm, config_.ranks(), id, config_.rank()), "ncclCommInitRank");
  }
  prepare_reduction(lane);
}

void Communicators::prepare_reduction(Lane& lane) {
  lane.reduction = nccl::operation_number(config_.reduction);
  if (config_.reduction != Reduction::kPremulSum) return;
  std::vector<char> factor = premultiplier(config_.dtype);
  nccl_.check(nccl_.RedOpCreatePreMulSum(&lane.reduction, factor.data(), nccl_type(config_.dtype),
                                         nccl::kScalarOnHost, lane.comm),
              "ncclRedOpCreatePreMulSum", lane.comm);
}

void Communicators::enqueue(const GpuData& data, const Lane& lane, int part) {
  const CollectivePlan& plan = data.plan();
  const void* from = data.send_buffer(part);
  void* to = data.receive_buffer(part);
  const int type = nccl_type(config_.dtype), rank = config_.rank(), ranks = config_.ranks();
  const auto check = [&](int result, const char* call) { nccl_.check(result, call, lane.comm); };
  const auto exchange = [&](int peer, const void* out, int source, void* in) {
    check(nccl_.Send(out, plan.count, type, peer, lane.comm, lane.stream), "ncclSend");
    check(nccl_.Recv(in, plan.count, type, source, lane.comm, lane.stream), "ncclRecv");
  };
  switch (config_.op) {
    case Operation::kAllReduce:
      return check(nccl_.AllReduce(from, to, plan.count, type, lane.reduction, lane.comm, lane.stream),
                   "ncclAllReduce");
    case Operation::kReduceScatter:
      return check(nccl_.ReduceScatter(from, to, plan.count, type, lane.reduction, lane.comm, lane.stream),
                   "ncclReduceScatter");
    case Operation::kAllGather:
      return check(nccl_.AllGather(from, to, plan.count, type, lane.comm, lane.stream), "ncclAllGather");
    case Operation::kBroadcast:
      return check(nccl_.Broadcast(from, to, plan.count, type, 0, lane.comm, lane.stream), "ncclBroadcast");
    case Operation::kSendRecv:
      return exchange((rank + 1) % ranks, from, (rank + ranks - 1) % ranks, to);
    case Operation::kAllToAll:
      for (int peer = 0; peer < ranks; ++peer)
        exchange(peer, data.sent(part, size_t(peer) * plan.count), peer,
                 data.received(part, size_t(peer) * plan.count));
      return;
  }
}

void Communicators::enqueue_all(const GpuData& data, int set) {
  const bool pairs = config_.op == Operation::kSendRecv || config_.op == Operation::kAllToAll;
  for (int c = 0; c < options_.communicators; ++c) {
    const Lane& lane = lanes_[size_t(set * options_.communicators + c)];
    const bool group = pairs || options_.group_calls > 1;
    if (group) nccl_.check(nccl_.GroupStart(), "ncclGroupStart");
    for (int call = 0; call < options_.group_calls; ++call)
      enqueue(data, lane, c * options_.group_calls + call);
    if (group) nccl_.check(nccl_.GroupEnd(), "ncclGroupEnd", lane.comm);
  }
}

void Communicators::capture(const GpuData& data) {
  const cuda::Stream first = lanes_[0].stream;
  driver_.check(driver_.StreamBeginCapture(first, cuda::kCaptureThreadLocal), "cuStreamBeginCapture");
  // The other communicators' streams fork from the first one's and join it again, so that one graph has them
  // all.
  driver_.check(driver_.EventRecord(begin_, first), "cuEventRecord");
  for (size_t c = 1; c < lanes_.size(); ++c)
    driver_.check(driver_.StreamWaitEvent(lanes_[c].stream, begin_, 0), "cuStreamWaitEvent");
  enqueue_all(data, 0);
  for (size_t c = 1; c < lanes_.size(); ++c) {
    driver_.check(driver_.EventRecord(lanes_[c].done, lanes_[c].stream), "cuEventRecord");
    driver_.check(driver_.StreamWaitEvent(first, lanes_[c].done, 0), "cuStreamWaitEvent");
  }
  cuda::Graph graph = nullptr;
  driver_.check(driver_.StreamEndCapture(first, &graph), "cuStreamEndCapture");
  driver_.check(driver_.GraphInstantiateWithFlags(&graph_, graph, 0), "cuGraphInstantiate");
  driver_.check(driver_.GraphDestroy(graph), "cuGraphDestroy");
}

void Communicators::start(const GpuData& data, int set) {
  if (options_.graph) {
    if (!graph_) capture(data);
    driver_.check(driver_.GraphLaunch(graph_, lanes_[0].stream), "cuGraphLaunch");
  } else {
    enqueue_all(data, set);
  }
  started_ = std::span(lanes_).subspan(size_t(set * options_.communicators), size_t(options_.communicators));
  for (const Lane& lane : started_) {
    driver_.check(driver_.EventRecord(lane.done, options_.graph ? lanes_[0].stream : lane.stream),
                  "cuEventRecord");
  }
}

bool Communicators::wait(const std::function<bool()>& stop) {
  auto ask = Clock::now() + kAskEvery;
  for (const Lane& lane : started_) {
    while (true) {
      const int state = driver_.EventQuery(lane.done);
      if (state == cuda::kSuccess) break;
      if (state != cuda::kNotReady) driver_.check(state, "cuEventQuery");
      if (Clock::now() >= ask) {
        if (stop()) return false;
        for (const Lane& each : started_) nccl_.check_async(each.comm);
        ask = Clock::now() + kAskEvery;
      }
      sched_yield();
    }
  }
  return true;
}

bool Communicators::close(bool abort) {
  // NCCL does not destroy a communicator while there is a graph with its operations.
  if (graph_ && !abort) driver_.GraphExecDestroy(std::exchange(graph_, nullptr));
  std::vector<nccl::Comm> comms;
  for (Lane& lane : lanes_)
    if (lane.comm) comms.push_back(std::exchange(lane.comm, nullptr));
  // A call that hangs must hold up neither the report nor the process's end.
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  std::thread([comms, ended, abort, close = nccl_.CommDestroy, give_up = nccl_.CommAbort] {
    for (const nccl::Comm comm : comms) (abort ? give_up : close)(comm);
    ended->set_value();
  }).detach();
  return future.wait_for(abort ? kAbortBound : kCloseBound) == std::future_status::ready;
}

}  // namespace r2bench
