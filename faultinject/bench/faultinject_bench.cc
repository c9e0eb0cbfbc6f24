// SPDX-License-Identifier: Apache-2.0
// What the injector costs per post and per poll. The operations behind it do nothing, so that all that is
// measured is the way there: without the library, with it and nothing armed, and with faults armed and at
// work. The library is linked in, not preloaded; the patched operations and the slow path are the same code.
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#include <memory>

#include "faultinject/control/board_host.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace {

using namespace faultinject;

// A device whose operations succeed at once. One completion is always there when asked for.
struct FakeDevice {
  ibv_device device{};
  verbs_context extended{};
  ibv_cq cq{};
  ibv_qp qp{};

  static int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; }
  static int poll_one(ibv_cq*, int, ibv_wc* wc) {
    wc->wr_id = 1;
    wc->status = IBV_WC_SUCCESS;
    wc->opcode = IBV_WC_RDMA_WRITE;
    wc->qp_num = 17;
    return 1;
  }
  static int req_notify(ibv_cq*, int) { return 0; }

  FakeDevice() {
    extended.context.device = &device;
    extended.context.async_fd = -1;
    extended.context.abi_compat = nullptr;  // not an extended context: only ops count here
    extended.context.ops.post_send = post_send;
    extended.context.ops.poll_cq = poll_one;
    extended.context.ops.req_notify_cq = req_notify;
    cq.context = qp.context = &extended.context;
    qp.qp_num = 17;
    qp.qp_type = IBV_QPT_RC;
    qp.send_cq = qp.recv_cq = &cq;
  }
  ibv_context* context() { return &extended.context; }
};

// One process, one board, one patched device, for all benchmarks of this program.
struct Injected {
  BoardHost board = BoardHost::create({{"node0", 2}}, 1);
  FakeDevice device;
  std::unique_ptr<Context> context;

  static Injected& get() {
    static Injected injected;
    return injected;
  }
  Injected() {
    setenv("FAULTINJECT_BOARD", board.path().c_str(), 1);
    setenv("FAULTINJECT_NODE", "node0", 1);
    read_environment();
    Process* process = Process::current_or_new();
    if (process == nullptr) abort();
    Slot* slot = take_slot(device.context());
    context = std::make_unique<Context>(*process, *slot, device.context(), 0, 0, 1);
    patch(*slot, *context);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = &device.cq;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = 128;
    context->add_qp(&device.qp, attributes);
    context->sync(monotonic_ns());
    post();  // the first operation of all is noted on the board
  }
  void post() {
    ibv_send_wr wr{}, *bad = nullptr;
    ibv_post_send(&device.qp, &wr, &bad);
  }
  uint32_t arm(const char* kind, const char* target) {
    FaultSpec spec(fault_kind(kind));
    spec.target = parse_target(target);
    spec.trigger.kind = Trigger::Kind::kNow;
    const uint32_t id = board.arm(spec);
    context->sync(monotonic_ns());
    return id;
  }
  void heal() {
    board.heal_all();
    context->sync(monotonic_ns());
  }
};

// The program's own loop: one post, one poll that finds its completion.
void post_and_poll(benchmark::State& state, ibv_qp& qp, ibv_cq& cq) {
  char data[64];
  ibv_sge piece{reinterpret_cast<uint64_t>(data), sizeof data, 0};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 1;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_wc wc;
  for (auto _ : state) {
    benchmark::DoNotOptimize(ibv_post_send(&qp, &wr, &bad));
    benchmark::DoNotOptimize(ibv_poll_cq(&cq, 1, &wc));
  }
}

void without_library(benchmark::State& state) {
  FakeDevice device;
  benchmark::DoNotOptimize(device.context()->ops.post_send);
  post_and_poll(state, device.qp, device.cq);
}
BENCHMARK(without_library);

void nothing_armed(benchmark::State& state) {
  Injected& injected = Injected::get();
  if (find_slot(injected.device.context())->slow.load() != 0) state.SkipWithError("the slow path is on");
  post_and_poll(state, injected.device.qp, injected.device.cq);
}
BENCHMARK(nothing_armed);

void fault_on_another_nic(benchmark::State& state) {
  Injected& injected = Injected::get();
  injected.arm("noop", "node0/nic1");
  if (find_slot(injected.device.context())->slow.load() != 0) state.SkipWithError("the slow path is on");
  post_and_poll(state, injected.device.qp, injected.device.cq);
  injected.heal();
}
BENCHMARK(fault_on_another_nic);

void noop_at_work(benchmark::State& state) {
  Injected& injected = Injected::get();
  injected.arm("noop", "node0/nic0");
  if (find_slot(injected.device.context())->slow.load() == 0) state.SkipWithError("the slow path is off");
  post_and_poll(state, injected.device.qp, injected.device.cq);
  injected.heal();
}
BENCHMARK(noop_at_work);

void port_down_armed(benchmark::State& state) {
  Injected& injected = Injected::get();
  FaultSpec spec;
  spec.kind = &fault_kind("port_down");
  spec.target = parse_target("node0/nic0");
  injected.board.arm(spec);
  injected.context->sync(monotonic_ns());
  post_and_poll(state, injected.device.qp, injected.device.cq);
  injected.heal();
}
BENCHMARK(port_down_armed);

void event_that_nobody_waits_for(benchmark::State& state) {
  Process* process = (Injected::get(), Process::current());
  for (auto _ : state)
    if (process->board().event_bits.load(std::memory_order_relaxed) != 0) process->event("iteration", 1);
}
BENCHMARK(event_that_nobody_waits_for);

}  // namespace

namespace {

// The extended interface of a device whose operations do nothing.
struct ExtendedDevice {
  ibv_qp_ex qp{};
  ibv_cq_ex cq{};
  explicit ExtendedDevice(ibv_context* context) {
    qp.qp_base.context = cq.context = context;
    qp.wr_start = [](ibv_qp_ex*) {};
    qp.wr_rdma_write = [](ibv_qp_ex*, uint32_t, uint64_t) {};
    qp.wr_set_sge = [](ibv_qp_ex*, uint32_t, uint64_t, uint32_t) {};
    qp.wr_complete = [](ibv_qp_ex*) { return 0; };
    cq.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return 0; };
    cq.end_poll = [](ibv_cq_ex*) {};
    cq.read_qp_num = [](ibv_cq_ex*) { return 17u; };
  }
};

void post_and_poll_extended(benchmark::State& state, ExtendedDevice& device) {
  ibv_poll_cq_attr attributes{};
  for (auto _ : state) {
    ibv_wr_start(&device.qp);
    device.qp.wr_id = 1;
    device.qp.wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(&device.qp, 1, 1);
    ibv_wr_set_sge(&device.qp, 1, 1, 64);
    benchmark::DoNotOptimize(ibv_wr_complete(&device.qp));
    benchmark::DoNotOptimize(ibv_start_poll(&device.cq, &attributes));
    benchmark::DoNotOptimize(ibv_wc_read_qp_num(&device.cq));
    ibv_end_poll(&device.cq);
  }
}

void extended_without_library(benchmark::State& state) {
  FakeDevice plain;
  ExtendedDevice device(plain.context());
  benchmark::DoNotOptimize(&device);
  post_and_poll_extended(state, device);
}
BENCHMARK(extended_without_library);

void extended_nothing_armed(benchmark::State& state) {
  Injected& injected = Injected::get();
  ExtendedDevice device(injected.device.context());
  Slot& slot = *find_slot(injected.device.context());
  extended_adopt(&device.qp, slot);
  extended_adopt(&device.cq, slot);
  if (slot.slow.load() != 0) state.SkipWithError("the slow path is on");
  post_and_poll_extended(state, device);
  extended_take(&device.qp.qp_base);
  extended_take(ibv_cq_ex_to_cq(&device.cq));
}
BENCHMARK(extended_nothing_armed);

}  // namespace

BENCHMARK_MAIN();
