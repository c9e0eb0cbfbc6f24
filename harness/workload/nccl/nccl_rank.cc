// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/nccl_rank.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "harness/workload/cpu/cpu_time.h"
#include "harness/workload/cpu/operation.h"
#include "harness/workload/nccl/topology_file.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {

using r2ccl::trace::EventType;
using r2ccl::trace::Writer;

namespace {

constexpr uint16_t kNoNicIndex = 0xffff;

/// Which network the ranks were told to take.
std::string network(Transport transport, const std::string& plugin, const std::string& nccl) {
  switch (transport) {
    case Transport::kIb:
      return "IB transport of NCCL " + nccl;
    case Transport::kIbFailover:
      return "IB transport of NCCL " + nccl + " with its failover and recovery";
    case Transport::kIbBesideIb:
      return "IB transport of NCCL " + nccl + ", twice";
    case Transport::kPluginBesideIb:
      return "R2CCL and the IB transport in NCCL " + nccl + ", in turns";
    case Transport::kPlugin:
      break;
  }
  return (plugin == Workload{}.plugin ? "R2CCL" : plugin) + " in NCCL " + nccl;
}

}  // namespace

int NcclRank::run() {
  int exit_code = kRankOk;
  try {
    const nlohmann::json message = talk_.wait_for_config();
    config_ = RankConfig::from_json(message);
    options_ = NcclOptions::from_json(message.at("nccl"));
    prctl(PR_SET_NAME, ("r2bench:" + std::to_string(options_.job_rank)).c_str());
    set_up();
    talk_.say({{"type", "ready"}});
    talk_.wait_for_start();
    try {
      iterate();
      report_correctness("finished");
      talk_.wait_for_close();
    } catch (const std::runtime_error& e) {
      exit_code = fail("plugin", e.what(), kRankPluginError);
    }
  } catch (const RunnerTalk::Aborted&) {
    report_correctness("correctness");
    talk_.say({{"type", "aborted"}});
    exit_code = kRankAborted;
  } catch (const std::exception& e) {
    exit_code = fail("setup", e.what(), kRankSetupError);
  }
  // Kernels of a failed operation spin until their communicator is aborted.
  if (communicators_ && !communicators_->close(exit_code != kRankOk)) {
    fprintf(stderr, "%s: NCCL did not close its communicators\n", config_.label.c_str());
    talk_.say({{"type", "stuck_close"}});
    if (exit_code == kRankOk) exit_code = kRankPluginError;
  }
  talk_.say({{"type", "closed"}});
  fflush(nullptr);
  _exit(exit_code);
}

int NcclRank::fail(const char* kind, const std::string& text, int exit_code) {
  fprintf(stderr, "%s: %s\n", config_.label.c_str(), text.c_str());
  report_correctness("correctness");
  talk_.say({{"type", "error"}, {"kind", kind}, {"text", text}, {"time_ns", r2ccl::now_ns()}});
  return exit_code;
}

void NcclRank::set_up() {
  const cuda::Gpu gpu(options_.job_rank);
  if (options_.ranks_per_node > gpu.count())
    throw cuda::CudaError(
        "the " + std::to_string(options_.ranks_per_node) + " ranks of a node need a GPU each, and there " +
        (gpu.count() == 1 ? "is 1" : "are " + std::to_string(gpu.count())) +
        "; take more nodes and 'ranks_per_node: 1': ranks of different nodes may share a GPU");
  // Before NCCL is loaded: some of its versions read the environment then.
  if (!options_.placed_nics.empty())
    setenv("NCCL_TOPO_FILE", write_topology_file(gpu.place(), options_.placed_nics).c_str(), 0);
  nccl_ = std::make_unique<nccl::Library>(options_.library);
  greet(gpu);
  if (options_.renewal) nccl_->check_can(options_.renewal->by);
  if (is_beside(options_.transport) || !options_.blocking)
    nccl_->check_has(nccl_->CommInitRankConfig, "ncclCommInitRankConfig",
                     options_.blocking ? "a communicator over another network" : "'blocking: false'", "2.14");
  if (!options_.blocking)
    nccl_->check_has(nccl_->CommFinalize, "ncclCommFinalize", "'blocking: false'", "2.14");
  if (options_.registers) nccl_->check_has(nccl_->CommDeregister, "ncclCommDeregister", "'register'", "2.19");
  data_ = std::make_unique<GpuData>(config_, options_.parts());
  data_->prove_kernels();

  // Ids travel through the runner, from the group's first rank to all.
  communicators_ = std::make_unique<Communicators>(*nccl_, config_, options_, [this] { look_up(); });
  using Handle = std::vector<unsigned char>;
  const bool twice = options_.renewal && options_.renewal->by == RenewBy::kAbort;
  std::vector<Handle> handles(size_t(options_.communicators * options_.turns().sets()) * (twice ? 2 : 1));
  if (config_.rank() == 0) {
    const std::vector<nccl::UniqueId> ids = communicators_->make_ids();
    for (size_t i = 0; i < ids.size(); ++i)
      handles[i].assign(ids[i].bytes, ids[i].bytes + nccl::kUniqueIdBytes);
  }
  const int first = (config_.ranks() - config_.rank()) % config_.ranks();  // places on in the ring
  talk_.say({{"type", "handles"}, {"handles", handles}, {"shifts", std::vector<int>(handles.size(), first)}});
  std::vector<nccl::UniqueId> ids;
  for (const Handle& handle : talk_.wait_for_handles().get<std::vector<Handle>>()) {
    if (handle.size() != nccl::kUniqueIdBytes) throw nccl::NcclError("the first rank has sent no id");
    std::copy(handle.begin(), handle.end(), ids.emplace_back().bytes);
  }
  communicators_->initialise(ids, data_->buffers());
}

void NcclRank::greet(const cuda::Gpu& gpu) {
  const std::string version = nccl_->version(), name = gpu.name();
  talk_.say(
      {{"type", "hello"},
       {"pid", getpid()},
       {"plugin", network(options_.transport, config_.plugin, version)},
       {"abi", 0},
       {"devices", {name}},
       {"facts",
        {{"nccl", version},
         {"gpu", std::to_string(gpu.count()) + " × " + name + ", compute capability " + gpu.capability()},
         {"cuda_driver", cuda::Gpu::driver_version()}}}});
}

void NcclRank::iterate() {
  for (int w = 0; w < config_.warmup; ++w) {
    data_->prepare(operations_);
    operate(std::nullopt);
  }
  talk_.say({{"type", "warm"}, {"time_ns", r2ccl::now_ns()}});
  for (uint64_t i = 0;; ++i) {
    if (config_.verify || operations_ == 0) data_->prepare(operations_);
    if (config_.in_step) talk_.say({{"type", "prepared"}, {"iteration", i}});
    if (!talk_.granted(i) && !talk_.wait_for_grant(i)) return;
    operate(i);
  }
}

void NcclRank::operate(std::optional<uint64_t> number) {
  if (number && !cpu_from_ns_) cpu_from_ns_ = cpu_beside_this_thread_ns();
  const uint64_t cpu_before_ns = number && is_beside(options_.transport) ? cpu_beside_this_thread_ns() : 0;
  if (number) Writer::instance().emit(EventType::kIteration, kNoNicIndex, 0, *number, config_.bytes);
  carry_out(options_.renewal && number && *number == uint64_t(options_.renewal->iter), number);
  if (number) Writer::instance().emit(EventType::kIterationDone, kNoNicIndex, 0, *number);
  if (number) {
    const uint64_t now_ns = cpu_beside_this_thread_ns();
    cpu_ns_ = now_ns - *cpu_from_ns_;
    if (is_beside(options_.transport)) cpu_by_side_ns_[options_.turns().side(*number)] += now_ns - cpu_before_ns;
  }
  if (config_.verify && !left_out_) verify();
  ++operations_;
}

void NcclRank::carry_out(bool renews, std::optional<uint64_t> number) {
  if (left_out_) return;
  if (renews) {
    if (const auto delay = options_.renewal->delay) {
      communicators_->start(*data_);
      for (const uint64_t until = r2ccl::now_ns() + uint64_t(delay->count()); r2ccl::now_ns() < until;) {
        look_up();
        usleep(50);
      }
    }
    renew(*number);
    if (left_out_) return;
    data_->prepare(operations_);  // the operation begins anew, on what it began with
  }
  const Turns turns = options_.turns();
  communicators_->start(*data_, number ? turns.set(*number) : turns.set_of_warmup(operations_));
  communicators_->wait();
}

void NcclRank::renew(uint64_t number) {
  const int without = options_.renewal->without;
  left_out_ = without == config_.rank();
  if (without >= 0) {
    if (without == 0) {
      config_.group.first += config_.group.step;
      --config_.group.position;
    }
    --config_.group.size;
  }
  const bool open = communicators_->open();
  const uint64_t from_ns = r2ccl::now_ns();
  communicators_->renew(config_.group, !left_out_);
  if (!left_out_) data_->regroup(config_.group);
  talk_.say({{"type", "renewed"},
             {"iteration", number},
             {"operation_open", open},
             {"ranks", left_out_ ? 0 : config_.ranks()},
             {"ms", double(r2ccl::now_ns() - from_ns) / 1e6},
             {"time_ns", from_ns}});
}

void NcclRank::verify() {
  const uint64_t wrong = data_->count_wrong(operations_);
  wrong_ += wrong;
  checked_ += elements_compared(config_);
  ++checked_iterations_;
  if (wrong && reported_wrong_ == 0)
    fprintf(stderr, "%s: %llu wrong elements in operation %llu\n", config_.label.c_str(),
            (unsigned long long)wrong, (unsigned long long)operations_);
  if (wrong_ != reported_wrong_) report_correctness("correctness");
}

void NcclRank::report_correctness(const char* type) {
  reported_wrong_ = wrong_;
  nlohmann::json message = {{"type", type},
                            {"wrong", wrong_},
                            {"checked", checked_},
                            {"cpu_ns", cpu_ns_},
                            {"checked_iterations", checked_iterations_}};
  if (is_beside(options_.transport)) message["cpu_by_side_ns"] = cpu_by_side_ns_;
  talk_.say(message);
}

}  // namespace r2bench
