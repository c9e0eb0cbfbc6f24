// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/communicators.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "harness/workload/cpu/small_float.h"
#include "harness/workload/nccl/waiting.h"

namespace r2bench {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

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

Communicators::Communicators(const nccl::Library& nccl, const RankConfig& config, const NcclOptions& options,
                             std::function<void()> interrupt)
    : driver_(cuda::Driver::instance()),
      nccl_(nccl),
      config_(config),
      options_(options),
      interrupt_(std::move(interrupt)) {
  lanes_.resize(size_t(options.communicators * options.turns().sets()));
  for (Lane& lane : lanes_) {
    driver_.check(driver_.StreamCreate(&lane.stream, cuda::kStreamNonBlocking), "cuStreamCreate");
    driver_.check(driver_.EventCreate(&lane.done, cuda::kEventDisableTiming), "cuEventCreate");
  }
  driver_.check(driver_.EventCreate(&begin_, cuda::kEventDisableTiming), "cuEventCreate");
  if (!is_beside(options.transport)) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int side = Turns::side_of_set(int(i) / options.communicators);
    lanes_[i].network = has_plugin(options.transport) && side == 0 ? "R2CCL" : "IB";
  }
}

std::vector<nccl::UniqueId> Communicators::make_ids() const {
  const bool again = options_.renewal && options_.renewal->by == RenewBy::kAbort;
  std::vector<nccl::UniqueId> ids(lanes_.size() * (again ? 2 : 1));
  for (nccl::UniqueId& id : ids) nccl_.check(nccl_.GetUniqueId(&id), "ncclGetUniqueId");
  return ids;
}

void Communicators::initialise(const std::vector<nccl::UniqueId>& ids, std::vector<GpuData::Buffer> buffers) {
  if (options_.registers) buffers_ = std::move(buffers);
  for (size_t i = 0; i < lanes_.size(); ++i) join(lanes_[i], ids.at(i));
  spare_ids_.assign(ids.begin() + std::ptrdiff_t(lanes_.size()), ids.end());
}

void Communicators::join(Lane& lane, const nccl::UniqueId& id) {
  if (lane.network || !options_.blocking) {
    nccl::Config config;
    config.net_name = lane.network;
    if (!options_.blocking) config.blocking = 0;
    const int result = nccl_.CommInitRankConfig(&lane.comm, config_.ranks(), id, config_.rank(), &config);
    finish(result, "ncclCommInitRankConfig", lane.comm);
  } else {
    nccl_.check(nccl_.CommInitRank(&lane.comm, config_.ranks(), id, config_.rank()), "ncclCommInitRank");
  }
  prepare(lane);
}

void Communicators::prepare(Lane& lane) {
  lane.registrations.clear();
  for (const GpuData::Buffer& buffer : buffers_)
    finish(nccl_.CommRegister(lane.comm, buffer.at, buffer.bytes, &lane.registrations.emplace_back()),
           "ncclCommRegister", lane.comm);
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
  const auto check = [&](int result, const char* call) {
    // In a group nothing has begun yet.
    if (options_.blocking || result != nccl::kInProgress) nccl_.check(result, call, lane.comm);
  };
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
    const int result = group ? nccl_.GroupEnd() : options_.blocking ? nccl::kSuccess : nccl::kInProgress;
    finish(result, group ? "ncclGroupEnd" : "a call on a nonblocking communicator", lane.comm);
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

void Communicators::wait() {
  const auto look = [this] {
    interrupt_();
    for (const Lane& lane : started_) nccl_.check_async(lane.comm);
  };
  for (const Lane& lane : started_)
    poll_until(
        [&] {
          const int state = driver_.EventQuery(lane.done);
          if (state != cuda::kNotReady) driver_.check(state, "cuEventQuery");
          return state == cuda::kSuccess;
        },
        look);
}

int Communicators::settle(nccl::Comm comm) const {
  int state = nccl::kInProgress;
  poll_until(
      [&] {
        nccl_.check(nccl_.CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
        return state != nccl::kInProgress;
      },
      interrupt_);
  return state;
}

void Communicators::finish(int result, const char* call, nccl::Comm comm) const {
  if (!options_.blocking && result == nccl::kInProgress) result = settle(comm);
  nccl_.check(result, call, comm);
}

bool Communicators::close(bool abort) {
  // NCCL does not destroy a communicator while there is a graph with its operations.
  if (graph_ && !abort) driver_.GraphExecDestroy(std::exchange(graph_, nullptr));
  std::vector<std::pair<nccl::Comm, std::vector<void*>>> comms;
  for (Lane& lane : lanes_)
    if (lane.comm) comms.emplace_back(std::exchange(lane.comm, nullptr), lane.registrations);
  // A call that hangs must hold up neither the report nor the process's end.
  auto ended = std::make_shared<std::promise<void>>();
  auto future = ended->get_future();
  std::thread([comms, ended, abort, blocking = options_.blocking, &nccl = nccl_] {
    for (const auto& [comm, registrations] : comms) {
      if (abort) {
        nccl.CommAbort(comm);
        continue;
      }
      for (void* registration : registrations) nccl.CommDeregister(comm, registration);
      if (!blocking) {
        nccl.CommFinalize(comm);
        for (int state = nccl::kInProgress; state == nccl::kInProgress; std::this_thread::sleep_for(1ms))
          if (nccl.CommGetAsyncError(comm, &state) != nccl::kSuccess) break;
      }
      nccl.CommDestroy(comm);
    }
    ended->set_value();
  }).detach();
  return future.wait_for(abort ? kAbortBound : kCloseBound) == std::future_status::ready;
}

}  // namespace r2bench
