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

/// Sets variables, and gives them back what they were.
class ChangedEnvironment {
 public:
  explicit ChangedEnvironment(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before ? std::optional<std::string>(before) : std::nullopt;
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~ChangedEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }
  ChangedEnvironment(const ChangedEnvironment&) = delete;
  ChangedEnvironment& operator=(const ChangedEnvironment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};
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
  open_plugins();
  input_ = Memory(config_.bytes);
  output_ = Memory(config_.bytes);
  exchange_handles();
  connect();
  service_->run([&] {
    for (const auto& set : sets_) set->register_memory({input_.data(), output_.data()}, input_.size());
  });
  say({{"type", "ready"}});
  talk_.wait_for_start();
}

void Rank::open_plugins() {
  turns_ = {config_.pairs};
  RankConfig other = config_;
  other.collnet = config_.other_collnet;
  other.plugin = config_.other_plugin;
  if (config_.pairs && is_same_plugin(config_.other_plugin, config_.plugin))
    other.plugin = copy_of_plugin(config_.plugin);
  else
    other.plugin_abi = 0;
  // All before the first is opened: closing and reports go through them, also when one cannot be opened.
  for (int set = 0; set < turns_.sets(); ++set) {
    const bool others = Turns::side_of_set(set) == 1;
    sets_.push_back(std::make_unique<Connections>(others ? other : config_,
                                                  others ? other.plugin : config_.plugin,
                                                  communicator() + (uint64_t(set) << 24)));
  }
  if (config_.pairs) {
    // A library reads most of its variables when it starts, and this program those of its trace.
    Writer::instance();
    auto environment = config_.other_environment;
    // The job's trace is of the mode that it is called after; the other side writes as much, for nobody.
    if (std::getenv("R2CC_TRACE"))
      environment["R2CC_TRACE"] = other_trace_.emplace(r2ccl::trace::Reader::create()).path();
    // Each instance replaces the whole file. In a name that no collector reads (they take *.prom).
    if (const char* counters = std::getenv("R2CC_METRICS"); counters && *counters)
      environment.try_emplace("R2CC_METRICS", std::string(counters) + ".beside");
    const ChangedEnvironment changed(environment);
    for (int set = 0; set < turns_.sets(); ++set)
      if (Turns::side_of_set(set) == 1) open(set);
  }
  for (int set = 0; set < turns_.sets(); ++set)
    if (Turns::side_of_set(set) == 0) open(set);
}

void Rank::open(int set) {
  const auto& connections = sets_[size_t(set)];
  connections->open();
  if (set == 0) {
    nlohmann::json names = nlohmann::json::array();
    for (const NetDevice& device : connections->devices()) names.push_back(device.name);
    say({{"type", "hello"},
         {"pid", getpid()},
         {"plugin", connections->plugin().name()},
         {"abi", connections->plugin().abi()},
         {"devices", names}});
  }
  connections->prepare();
}

void Rank::exchange_handles() {
  std::vector<Connections::Handle> handles;
  std::vector<int> shifts;
  service_->run([&] {
    for (const auto& set : sets_) set->listen(handles, shifts);
  });
  say({{"type", "handles"}, {"handles", handles}, {"shifts", shifts}});
  handles = talk_.wait_for_handles().get<std::vector<Connections::Handle>>();
  size_t next = 0;
  for (const auto& set : sets_) next = set->take(handles, next);
}

void Rank::connect() {
  service_->run([&] {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(config_.setup_limit_ms);
    while (true) {
      bool all = true;
      for (const auto& set : sets_) all = set->advance() && all;
      if (all) break;
      if (talk_.aborted()) throw ChannelError("the runner ended the job during set-up");
      if (std::chrono::steady_clock::now() > deadline)
        throw ChannelError("connections of " + config_.label + " were not there after " +
                           std::to_string(config_.setup_limit_ms) + " ms");
      std::this_thread::sleep_for(50us);
    }
    for (int set = 0; set < turns_.sets(); ++set) {
      // Tuners start here, and read the mode.
      const ChangedEnvironment changed(Turns::side_of_set(set) == 1 ? config_.other_environment
                                                                    : std::map<std::string, std::string>{});
      sets_[size_t(set)]->connect_coll();
    }
  });
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

void Rank::charge(int side) {
  if (!config_.pairs || side == charged_side_) return;
  // Without verification this thread sleeps while all operations run, and the progress thread may be asking.
  const uint64_t now_ns =
      config_.verify ? cpu_beside_this_thread_ns() : read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  if (charged_side_ >= 0) cpu_by_side_ns_[size_t(charged_side_)] += now_ns - charged_from_ns_;
  charged_side_ = side;
  charged_from_ns_ = now_ns;
}

void Rank::start(std::optional<uint64_t> number) {
  if (number) charge(turns_.side(*number));
  Connections& set = *sets_[size_t(number ? turns_.set(*number) : turns_.set_of_warmup(operations_))];
  set.start({input_.data(), result()}, operations_);
  polled_ = set.polled();
  if (number) Writer::instance().emit(EventType::kIteration, kNoNicIndex, 0, *number, config_.bytes);
}

uint64_t Rank::operate(std::optional<uint64_t> number) {
  if (number && !cpu_from_ns_) cpu_from_ns_ = cpu_beside_this_thread_ns();
  start(number);
  const bool whole = progress_->run(polled_, [&] {
    // The moment counts; what the comparison finds comes by message, so that it stays off the timeline.
    if (number) Writer::instance().emit(EventType::kIterationDone, kNoNicIndex, 0, (*number)++);
    ++operations_;
    if (config_.verify || !number || !begin(*number)) return false;
    start(number);
    return true;
  });
  if (!whole) throw RunnerTalk::Aborted{};
  charge(-1);
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
  uint64_t coll_operations = 0;
  for (const auto& set : sets_) {
    faults += set->stream_faults();
    coll_operations += set->coll_operations();
  }
  reported_wrong_ = wrong_;
  nlohmann::json message = {{"type", type},
                            {"wrong", wrong_},
                            {"checked", checked_},
                            {"cpu_ns", cpu_ns_},
                            {"checked_iterations", checked_iterations_},
                            {"collnet_operations", coll_operations},
                            {"duplicated", faults.duplicated},
                            {"lost", faults.lost},
                            {"messages", faults.recognised},
                            {"size_errors", faults.size_errors}};
  if (config_.pairs) message["cpu_by_side_ns"] = cpu_by_side_ns_;
  say(message);
}

void Rank::close_all() {
  if (progress_) progress_->stop();
  if (sets_.empty() || !service_) return;
  // On a machine with more ranks than cores both set-up and closing wait for the CPU.
  size_t closes = 0;
  for (const auto& set : sets_) closes += set->closes();
  const auto bound = std::max(kCloseBound + int(closes) * kCloseOne,
                              std::chrono::duration_cast<std::chrono::milliseconds>(set_up_took_));
  const auto close = [this] {
    for (const auto& set : sets_) set->close();
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
