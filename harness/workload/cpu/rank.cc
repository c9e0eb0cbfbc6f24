// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/rank.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "harness/workload/cpu/cpu_time.h"
#include "harness/workload/cpu/pattern.h"
#include "harness/workload/cpu/plugin_log.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {

using namespace std::chrono_literals;
using r2ccl::trace::EventType;
using r2ccl::trace::Writer;

namespace {
constexpr uint16_t kNoNicIndex = 0xffff;
constexpr auto kCloseBound = 3s;   // as long as an application would wait in ncclCommAbort, and …
constexpr auto kCloseOne = 200ms;  // … for each channel: they are closed one after the other
}  // namespace

Rank::Rank(MessageSocket socket)
    : talk_(std::move(socket), [this](const nlohmann::json& message) { hear(message); }) {}

void Rank::hear(const nlohmann::json& message) {
  const std::string type = message.value("type", "");
  std::lock_guard lock(mutex_);
  if (type == "sleep") {
    const auto duration = std::chrono::nanoseconds(message.value("ns", int64_t{0}));
    if (const auto at = message.find("at"); at != message.end())
      sleeps_[at->get<uint64_t>()] = duration;
    else
      sleep_once(duration);
  }
  if (type == "abort" && progress_) progress_->stop();
}

void Rank::sleep_once(std::chrono::nanoseconds duration) {
  if (progress_)
    progress_->sleep_once(duration, [this](uint64_t from, uint64_t to) {
      say({{"type", "slept"}, {"from_ns", from}, {"to_ns", to}});
    });
}

int Rank::fail(const char* kind, const std::string& text, int exit_code, const std::string& plugin_words) {
  fprintf(stderr, "%s: %s\n", config_.label.c_str(), text.c_str());
  report_correctness("correctness");
  say({{"type", "error"},
       {"kind", kind},
       {"text", text},
       {"time_ns", r2ccl::now_ns()},
       {"plugin_words", plugin_words},
       {"warnings", plugin_warnings()}});
  return exit_code;
}

int Rank::run() {
  int exit_code = kRankOk;
  try {
    config_ = RankConfig::from_json(talk_.wait_for_config());
    prctl(PR_SET_NAME, ("r2bench:" + std::to_string(config_.job_rank(config_.rank()))).c_str());
    service_ = std::make_unique<ServiceThread>();
    {
      auto progress = std::make_unique<ProgressThread>();
      std::lock_guard lock(mutex_);
      progress_ = std::move(progress);
    }
    try {
      const auto began = std::chrono::steady_clock::now();
      set_up();
      set_up_took_ = std::chrono::steady_clock::now() - began;
    } catch (const RunnerTalk::Aborted&) {
      throw;
    } catch (const std::exception& e) {
      exit_code = fail("setup", e.what(), kRankSetupError);
    }
    if (exit_code == kRankOk) {
      try {
        iterate();
        report_correctness("finished");
        talk_.wait_for_close();
      } catch (const ChannelError& e) {
        exit_code = fail("plugin", e.what(), kRankPluginError, e.plugin_words());
      }
    }
  } catch (const RunnerTalk::Aborted&) {
    report_correctness("correctness");
    say({{"type", "aborted"}, {"warnings", plugin_warnings()}});
    exit_code = kRankAborted;
  } catch (const std::exception& e) {
    exit_code = fail("setup", e.what(), kRankSetupError);
  }
  close_all();
  say({{"type", "closed"}, {"warnings", plugin_warnings()}});
  // The plugin may own threads that never end, and a close may hang: no destructors, no atexit.
  fflush(nullptr);
  if (exit_code != kRankOk) _exit(exit_code);
  return exit_code;
}

void Rank::set_up() {
  open_plugin();
  input_ = Memory(config_.bytes);
  output_ = Memory(config_.bytes);
  make_channels();
  set_up_coll();
  Handles handles = exchange_handles();
  connect(handles);
  connect_coll({handles.begin() + std::ptrdiff_t(channels_.size()), handles.end()});
  const UserBuffers user{input_.data(), output_.data()};
  service_->run([&] {
    for (Channel& channel : channels_) channel.register_memory(user, input_.size());
    for (CollChannel& channel : coll_channels_) channel.register_memory();
  });
  say({{"type", "ready"}});
  talk_.wait_for_start();
}

void Rank::open_plugin() {
  plugin_ = load_net_plugin(config_.plugin, config_.plugin_abi);
  if (const auto status = plugin_->init(plugin_logger); status != r2ccl::nccl_abi::ncclSuccess) {
    std::string why;
    for (const auto& line : plugin_warnings()) why += "; " + line;
    throw PluginError("the net plugin '" + config_.plugin + "' (" + plugin_->name() + ", v" +
                      std::to_string(plugin_->abi()) + ") refused to start: " + describe(status) + why);
  }
  int count = 0;
  if (const auto status = plugin_->devices(&count); status != r2ccl::nccl_abi::ncclSuccess || count <= 0)
    throw PluginError("the net plugin offers no device: " + describe(status) + ", " + std::to_string(count) +
                      " devices");
  nlohmann::json names = nlohmann::json::array();
  for (int d = 0; d < count; ++d) {
    devices_.push_back(plugin_->properties(d));
    names.push_back(devices_.back().name);
    for (int e = 0; e < d; ++e)
      if (devices_[size_t(e)].name == devices_.back().name)
        throw PluginError("two devices of the net plugin have the name " + devices_.back().name);
  }
  say({{"type", "hello"},
       {"pid", getpid()},
       {"plugin", plugin_->name()},
       {"abi", plugin_->abi()},
       {"devices", names}});
}

void Rank::make_channels() {
  const int count = int(devices_.size());
  const int channels = config_.channels > 0 ? config_.channels : count;
  plan_ = plan_channels(config_, channels);
  for (size_t c = 0; c < plan_.size(); ++c) {
    const int turn = int(c) % channels;
    const int device =
        config_.devices.empty() ? turn % count : config_.devices[size_t(turn) % config_.devices.size()];
    if (device >= count)
      throw PluginError("the net plugin offers " + std::to_string(count) + " devices, but channel " +
                        std::to_string(c) + " is meant for device " + std::to_string(device));
    channels_.emplace_back(*plugin_, config_, int(c), plan_[c].shift, device, devices_[size_t(device)].name);
  }
}

Rank::Handles Rank::exchange_handles() {
  Handles handles(channels_.size(), Handle(r2ccl::nccl_abi::NCCL_NET_HANDLE_MAXSIZE));
  nlohmann::json shifts = nlohmann::json::array();
  for (const ChannelPlan& plan : plan_) shifts.push_back(plan.shift);
  service_->run([&] {
    for (size_t c = 0; c < channels_.size(); ++c) channels_[c].listen(handles[c].data());
    for (CollChannel& channel : coll_channels_) {
      Handle handle(r2ccl::nccl_abi::NCCL_NET_HANDLE_MAXSIZE);
      channel.listen(handle.data());
      for (int shift = 0; shift < config_.ranks(); ++shift) {
        handles.push_back(handle);
        shifts.push_back(shift);
      }
    }
  });
  say({{"type", "handles"}, {"handles", handles}, {"shifts", shifts}});
  return talk_.wait_for_handles().get<Handles>();
}

void Rank::connect(Handles& handles) {
  service_->run([&] {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(config_.setup_limit_ms);
    while (true) {
      bool all = true;
      for (size_t c = 0; c < channels_.size(); ++c)
        all = channels_[c].advance_connections(handles.at(c).data()) && all;
      if (all) return;
      if (talk_.aborted()) throw ChannelError("the runner ended the job during set-up");
      if (std::chrono::steady_clock::now() > deadline)
        throw ChannelError("connections of " + config_.label + " were not there after " +
                           std::to_string(config_.setup_limit_ms) + " ms");
      std::this_thread::sleep_for(50us);
    }
  });
}

void Rank::set_up_coll() {
  if (config_.op != Operation::kAllReduce || config_.collnet == CollNet::kOff) return;
  coll_plugin_ = load_coll_plugin(config_.plugin, config_.plugin_abi);
  int count = 0;
  if (coll_plugin_ && coll_plugin_->init(communicator(), plugin_logger) != r2ccl::nccl_abi::ncclSuccess)
    coll_plugin_.reset();
  if (coll_plugin_ && (coll_plugin_->devices(&count) != r2ccl::nccl_abi::ncclSuccess || count <= 0)) {
    coll_plugin_->finalize();
    coll_plugin_.reset();
  }
  if (!coll_plugin_) {
    if (config_.collnet == CollNet::kForce)
      throw PluginError("'collnet: force', but the net plugin '" + config_.plugin + "' offers no CollNet");
    return;
  }
  if (count != int(devices_.size()))
    throw PluginError("CollNet has " + std::to_string(count) + " devices, the net has " +
                      std::to_string(devices_.size()));
  int supported = 0;
  coll_plugin_->reduce_support(nccl_type(config_.dtype), nccl_operation(config_.reduction), &supported);
  if (!supported)
    throw PluginError("CollNet does not reduce NCCL's data type " + std::to_string(nccl_type(config_.dtype)));

  // One group, as NCCL makes one for each GPU: on the NIC of the first channel. The plugin may use more of
  // them.
  const int first = channels_.front().device();
  const NetDevice& device = devices_[size_t(first)];
  size_t longest = 0;
  if (const std::string found = coll_plugin_->properties(first, &longest); found != device.name)
    throw PluginError("CollNet calls device " + std::to_string(first) + " " + found + ", the net " +
                      device.name);
  const size_t elements = config_.bytes / element_size(config_.dtype);
  coll_channels_.emplace_back(*coll_plugin_, config_, first, device.name, Part{0, elements});
  double mbps = 0;
  std::vector<int> devices;
  for (const Channel& channel : channels_)
    if (std::find(devices.begin(), devices.end(), channel.device()) == devices.end()) {
      devices.push_back(channel.device());
      mbps += devices_[size_t(channel.device())].speed_mbps;
    }
  // NCCL's model of a network that adds by itself: each byte goes out once and comes back once.
  const double once_us = double(config_.bytes) * 8 / std::max(mbps, 1.0);
  costs_ = {once_us * 2 * (config_.ranks() - 1) / config_.ranks() + 10, once_us + 20};
}

void Rank::connect_coll(const Handles& handles) {
  const size_t ranks = size_t(config_.ranks());
  bool all = true;
  service_->run([&] {
    for (size_t c = 0; c < coll_channels_.size(); ++c) {
      // From this rank on, as they came; by rank, as they are wanted.
      std::vector<std::vector<unsigned char>> by_rank(ranks);
      for (size_t shift = 0; shift < ranks; ++shift)
        by_rank[(size_t(config_.rank()) + shift) % ranks] = handles.at(c * ranks + shift);
      all = coll_channels_[c].connect(by_rank) && all;
    }
  });
  if (coll_channels_.empty()) return;
  if (!all) {
    // NCCL's ranks tell each other; here the plugin's refusal is everybody's.
    if (config_.collnet == CollNet::kForce)
      throw PluginError("'collnet: force', but the net plugin '" + config_.plugin +
                        "' refuses to connect CollNet");
    for (CollChannel& channel : coll_channels_) channel.close();
    coll_channels_.clear();
    return;
  }
  tuner_ = load_tuner_plugin(config_.plugin, plugin_->abi());
  if (!tuner_) return;
  if (const auto status =
          tuner_->init(communicator(), size_t(config_.ranks()), size_t(config_.ranks()), plugin_logger);
      status != r2ccl::nccl_abi::ncclSuccess)
    throw PluginError("the tuner refused to start, which NCCL does not take: " + describe(status));
}

void Rank::choose() {
  through_coll_ = false;
  if (!coll_channels_.empty()) {
    Algorithm algorithm = cheapest(costs_);
    if (tuner_) {
      if (const auto status = tuner_->choose(config_.bytes, costs_, &algorithm);
          status != r2ccl::nccl_abi::ncclSuccess)
        throw ChannelError("the tuner's getCollInfo failed, which ends an operation: " + describe(status));
    }
    through_coll_ = config_.collnet == CollNet::kForce || algorithm == Algorithm::kCollNet;
  }
  polled_.clear();
  if (through_coll_) {
    ++coll_operations_;
    for (CollChannel& channel : coll_channels_) polled_.push_back(&channel);
  } else {
    for (Channel& channel : channels_) polled_.push_back(&channel);
  }
}

void Rank::iterate() {
  for (int w = 0; w < config_.warmup; ++w) {
    prepare();
    operate(std::nullopt);
  }
  say({{"type", "warm"}, {"time_ns", r2ccl::now_ns()}});
  for (uint64_t i = 0;;) {
    prepare();
    if (config_.in_step) say({{"type", "prepared"}, {"iteration", i}});
    if (!talk_.wait_for_grant(i) || !begin(i)) return;
    i = operate(i);
  }
}

bool Rank::begin(uint64_t number) {
  if (!talk_.granted(number)) return false;
  std::lock_guard lock(mutex_);
  if (const auto sleep = sleeps_.find(number); sleep != sleeps_.end()) sleep_once(sleep->second);
  return true;
}

uint64_t Rank::operate(std::optional<uint64_t> number) {
  const UserBuffers user{input_.data(), result()};
  const auto start = [&] {
    choose();
    if (through_coll_)
      for (CollChannel& channel : coll_channels_) channel.start(user);
    else
      for (size_t c = 0; c < channels_.size(); ++c) channels_[c].start(plan_[c].lanes, user, operations_);
    if (number) Writer::instance().emit(EventType::kIteration, kNoNicIndex, 0, *number, config_.bytes);
  };
  if (number && !cpu_from_ns_) cpu_from_ns_ = cpu_beside_this_thread_ns();
  start();
  const bool whole = progress_->run(polled_, [&] {
    // The moment counts; what the comparison finds comes by message, so that it stays off the timeline.
    if (number) Writer::instance().emit(EventType::kIterationDone, kNoNicIndex, 0, (*number)++);
    ++operations_;
    if (config_.verify || !number || !begin(*number)) return false;
    start();
    return true;
  });
  if (!whole) throw RunnerTalk::Aborted{};
  if (number) cpu_ns_ = cpu_beside_this_thread_ns() - *cpu_from_ns_;
  if (config_.verify) verify(operations_ - 1);
  return number.value_or(0);
}

void Rank::prepare() {
  const size_t elements = config_.bytes / element_size(config_.dtype);
  if (config_.verify || operations_ == 0) {
    fill_input(config_.data(), input_.data(), 0, elements, config_.job_rank(config_.rank()),
               data_operation(config_.seed, operations_));
    if (!config_.in_place) poison(output_.data(), output_.size());
    copy_own_chunk(config_, input_.data(), output_.data());
  }
}

void Rank::verify(uint64_t operation) {
  const uint64_t wrong = count_wrong(config_, result(), data_operation(config_.seed, operation));
  wrong_ += wrong;
  checked_ += elements_compared(config_);
  ++checked_iterations_;
  if (wrong && reported_wrong_ == 0)
    fprintf(stderr, "%s: %llu wrong elements in operation %llu\n", config_.label.c_str(),
            (unsigned long long)wrong, (unsigned long long)operation);
  if (wrong_ != reported_wrong_) report_correctness("correctness");
}

void Rank::report_correctness(const char* type) {
  StreamFaults faults;
  for (const Channel& channel : channels_) {
    faults.duplicated += channel.stream_faults().duplicated;
    faults.lost += channel.stream_faults().lost;
    faults.size_errors += channel.stream_faults().size_errors;
    faults.recognised += channel.stream_faults().recognised;
  }
  reported_wrong_ = wrong_;
  say({{"type", type},
       {"wrong", wrong_},
       {"checked", checked_},
       {"cpu_ns", cpu_ns_},
       {"checked_iterations", checked_iterations_},
       {"collnet_operations", coll_operations_},
       {"duplicated", faults.duplicated},
       {"lost", faults.lost},
       {"messages", faults.recognised},
       {"size_errors", faults.size_errors}});
}

void Rank::close_all() {
  if (progress_) progress_->stop();
  if (!plugin_ || !service_) return;
  // On a machine with more ranks than cores both set-up and closing wait for the CPU.
  const auto bound = std::max(kCloseBound + int(channels_.size() + coll_channels_.size()) * kCloseOne,
                              std::chrono::duration_cast<std::chrono::milliseconds>(set_up_took_));
  const auto close = [this] {
    for (CollChannel& channel : coll_channels_) channel.close();
    for (Channel& channel : channels_) channel.close();
    try {
      if (tuner_) tuner_->finalize();
      plugin_->finalize();
      if (coll_plugin_) coll_plugin_->finalize();
    } catch (const std::exception& e) {
      fprintf(stderr, "%s: %s\n", config_.label.c_str(), e.what());
    }
  };
  const bool left = !progress_ || progress_->has_left_within(bound);
  const bool closed = left && service_->run_for(close, bound);
  if (closed) return;
  fprintf(stderr, "%s: %s within %lld s\n", config_.label.c_str(),
          left ? "the plugin did not close" : "a call of the plugin did not return",
          (long long)std::chrono::duration_cast<std::chrono::seconds>(bound).count());
  say({{"type", "stuck_close"}});
  fflush(nullptr);
  _exit(kRankPluginError);
}

}  // namespace r2bench
