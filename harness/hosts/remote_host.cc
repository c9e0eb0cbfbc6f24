// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/remote_host.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"
#include "harness/hosts/remote_parts.h"
#include "r2ccl/base/clock.h"

namespace r2bench {

using nlohmann::json;
using r2ccl::trace::Event;
using std::chrono::milliseconds;

namespace {

constexpr uint64_t kPingEveryNs = 100 * r2ccl::kNsPerMs;
constexpr int kFirstPings = 16;
constexpr milliseconds kListen{100};
constexpr milliseconds kPrepareBound{60'000};
constexpr milliseconds kPutBackBound{130'000};
constexpr int kReleaseBounds = 6;  // of an answer: a GPU may take long until its memory is free

uint64_t ns(milliseconds time) { return uint64_t(time.count()) * r2ccl::kNsPerMs; }

}  // namespace

RemoteHost::RemoteHost(SecureLink link, const json& hello, milliseconds answer_bound)
    : link_(std::move(link)), answer_bound_(answer_bound) {
  facts_.name = hello.value("name", "");
  facts_.kernel = hello.value("kernel", "");
  facts_.boot_id = hello.value("boot_id", "");
  facts_.revision = hello.value("revision", "");
  facts_.order = hello.value("order", 0);
  facts_.cores = hello.value("cores", 0);
  listener_ = std::thread([this] { listen(); });
  try {
    compare_clocks();
  } catch (...) {  // no destructor runs for what has not been constructed
    stop_ = true;
    listener_.join();
    throw;
  }
  worst_clock_ns_ = 0;
  pinged_ns_ = r2ccl::now_ns();
}

RemoteHost::~RemoteHost() {
  tell({{"type", "quit"}});
  stop_ = true;
  if (listener_.joinable()) listener_.join();
}

void RemoteHost::listen() {
  while (!stop_) {
    const auto message = link_.receive(kListen);
    const uint64_t arrived_ns = r2ccl::now_ns();
    if (!message && !link_.closed()) continue;
    const std::lock_guard lock(mutex_);
    if (message) {
      try {
        take(*message, arrived_ns);
      } catch (const std::exception& error) {
        lost_ = std::string("it sent what cannot be understood: ") + error.what();
      }
    } else if (lost_.empty()) {
      lost_ = link_.why();
    }
    answered_.notify_all();
    if (!lost_.empty()) return;
  }
}

/// With the lock held.
uint64_t RemoteHost::to_runner(uint64_t host_ns) {
  const auto [time_ns, bound_ns] = clock_.convert(host_ns);
  worst_clock_ns_ = std::max(worst_clock_ns_, bound_ns);
  return time_ns;
}

/// With the lock held.
uint64_t RemoteHost::to_runner_once(uint64_t host_ns) {
  const auto [known, is_new] = fault_times_.try_emplace(host_ns, 0);
  if (is_new) known->second = to_runner(host_ns);
  return known->second;
}

void RemoteHost::to_runner(faultinject::FaultState& state) {
  for (uint64_t* time : {&state.armed_ns, &state.triggered_ns, &state.t0_ns, &state.healed_ns})
    *time = to_runner_once(*time);
  for (uint64_t& time : state.recent_ns) time = to_runner_once(time);
}

void RemoteHost::take(const json& message, uint64_t arrived_ns) {
  heard_ns_ = arrived_ns;
  silent_ns_ = 0;
  const std::string type = message.value("type", "");
  if (message.contains("sent_ns")) {
    ++clock_samples_;
    clock_.add({message["sent_ns"], message.at("received_ns"), message.at("answered_ns"), arrived_ns});
    note_clock_jump();
  }
  if (type == "answer") {
    answers_[message.at("request")] = message;
  } else if (type == "rank") {
    json said = message.at("message");
    for (const char* time : {"time_ns", "from_ns", "to_ns"})
      if (said.contains(time)) said[time] = to_runner(said[time].get<uint64_t>());
    inbox_[message.at("rank")].messages.push_back(std::move(said));
  } else if (type == "ended") {
    inbox_[message.at("rank")].ended = message.at("status").get<int>();
  } else if (type == "events") {
    take_events(message);
  } else if (type == "output") {
    take_output(message);
  } else if (type == "fault") {
    auto state = fields_from_json<faultinject::FaultState>(message.at("state"));
    to_runner(state);
    states_[message.at("id")] = state;
  } else if (type == "note") {
    notes_.push_back(
        {to_runner(message.at("time_ns").get<uint64_t>()), message.at("name"), message.at("text")});
  } else if (type == "trouble") {
    lost_ = message.at("refused");
  }
}

/// With the lock held.
void RemoteHost::note_clock_jump() {
  const uint64_t beyond_ns = clock_.beyond_ns();
  if (beyond_ns == told_beyond_ns_ || beyond_ns < 2 * told_beyond_ns_)
    return;  // while a clock is corrected, not each step
  told_beyond_ns_ = beyond_ns;
  notes_.push_back({r2ccl::now_ns(), "clock_jumped",
                    "the clock of host " + facts_.name + " and the runner's ran apart faster than by " +
                        std::to_string(ClockOffset::kMostDriftPpm) + " ppm: times of it may be off by " +
                        std::to_string(beyond_ns / 1000) +
                        " us more. Was one of them suspended, or does NTP correct a large error?"});
}

void RemoteHost::take_events(const json& message) {
  Inbox& inbox = inbox_[message.at("rank")];
  inbox.lost += message.at("lost").get<uint64_t>();
  const json::binary_t& data = message.at("data").get_binary();
  const size_t before = inbox.events.size();
  inbox.events.resize(before + data.size() / sizeof(Event));
  std::memcpy(inbox.events.data() + before, data.data(), (inbox.events.size() - before) * sizeof(Event));
  for (size_t i = before; i < inbox.events.size(); ++i)
    inbox.events[i].time_ns = to_runner(inbox.events[i].time_ns);
}

void RemoteHost::take_output(const json& message) {
  for (const RankPlan& rank : plan_.ranks) {
    if (rank.rank != message.at("rank").get<int>()) continue;
    const std::filesystem::path path = std::filesystem::path(folder_) / rank.log;
    std::ofstream file(path, std::ios::app | std::ios::binary);
    const json::binary_t& data = message.at("data").get_binary();
    file.write(reinterpret_cast<const char*>(data.data()), std::streamsize(data.size()));
    if (!file.flush() && log_error_ == 0) log_error_ = errno ? errno : EIO;
  }
}

void RemoteHost::tell(json message) {
  const std::lock_guard lock(sending_);
  link_.send(message);
}

/// From now on: what was known before, and how far the clocks had run apart, is forgotten.
void RemoteHost::compare_clocks() {
  {
    const std::lock_guard lock(mutex_);
    clock_ = {};
    told_beyond_ns_ = 0;
  }
  for (int i = 0; i < kFirstPings; ++i) ask({{"type", "ping"}, {"sent_ns", r2ccl::now_ns()}}, answer_bound_);
}

void RemoteHost::lose(std::unique_lock<std::mutex>& lock, const std::string& why) {
  lost_ = why;
  lock.unlock();
  tell({{"type", "quit"}});  // it may come to itself, with ranks of a job that is over
  lock.lock();
}

json RemoteHost::ask(json request, milliseconds wait) {
  const uint64_t number = next_request_++;
  request["request"] = number;
  const std::string type = request["type"];
  const uint64_t asked_ns = r2ccl::now_ns(), wait_ns = ns(wait);
  tell(std::move(request));
  std::unique_lock lock(mutex_);
  const auto over = [&] { return answers_.contains(number) || !lost_.empty(); };
  const bool decides = wait >= answer_bound_;  // whether the host is gone
  const auto until_ns = [&] {
    return decides ? std::min(std::max(asked_ns, heard_ns_) + wait_ns,
                              asked_ns + std::max(wait_ns, ns(kPutBackBound)))
                   : asked_ns + wait_ns;
  };
  for (uint64_t now; !over() && (now = r2ccl::now_ns()) < until_ns();)
    answered_.wait_for(lock, std::chrono::nanoseconds(until_ns() - now), over);
  const auto found = answers_.find(number);
  if (found == answers_.end() && lost_.empty() && decides)
    lose(lock, "it did not answer '" + type + "' within " + std::to_string(wait.count()) + " ms");
  if (found == answers_.end())
    throw FabricError("host " + facts_.name + " did not answer '" + type +
                      "': " + (lost_.empty() ? std::to_string(wait.count()) + " ms have passed" : lost_));
  const json answer = std::move(found->second);
  answers_.erase(found);
  if (answer.contains("refused"))
    throw FabricError("host " + facts_.name + ": " + answer["refused"].get<std::string>());
  return answer;
}

void RemoteHost::prepare(const HostPlan& plan) {
  release();
  compare_clocks();
  {
    const std::lock_guard lock(mutex_);
    plan_ = plan;
    worst_clock_ns_ = 0;
    fault_times_.clear();
  }
  for (const RankPlan& rank : plan.ranks) {
    const std::filesystem::path path = std::filesystem::path(folder_) / rank.log;
    std::error_code failed;
    std::filesystem::create_directory(path.parent_path(), failed);
    if (!std::ofstream(path, std::ios::trunc))
      throw FabricError("cannot write " + path.string() + ": " + std::strerror(errno));
  }
  const json answer = ask({{"type", "prepare"}, {"plan", plan.to_json()}}, kPrepareBound);
  evidence_ = answer.at("evidence");
  devices_ = answer.at("devices").get<std::map<int, std::vector<std::string>>>();
  environment_ = answer.at("environment").get<std::map<std::string, std::string>>();
  board_ = std::make_unique<Board>(*this);
  for (const RankPlan& rank : plan.ranks) ports_[rank.rank] = std::make_unique<Port>(*this, rank.rank);
}

void RemoteHost::start() {
  const json answer = ask({{"type", "start"}}, kPrepareBound);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < plan_.ranks.size(); ++i)
    inbox_[plan_.ranks[i].rank].pid = answer.at("pids").at(i).get<pid_t>();
}

void RemoteHost::tick() {
  const uint64_t now = r2ccl::now_ns();
  if (now < pinged_ns_ + kPingEveryNs) return;
  const uint64_t step = now - std::exchange(pinged_ns_, now);
  {
    std::unique_lock lock(mutex_);
    silent_ns_ += std::min(step, 2 * kPingEveryNs);  // a runner that does not run hears nobody
    if (lost_.empty() && silent_ns_ > ns(answer_bound_))
      lose(lock, "it was silent for " + std::to_string(answer_bound_.count()) + " ms");
  }
  tell({{"type", "ping"}, {"sent_ns", r2ccl::now_ns()}});
}

faultinject::FaultBoard& RemoteHost::board() { return *board_; }

RankPort& RemoteHost::rank(int rank) { return *ports_.at(rank); }

uint64_t RemoteHost::drain(int rank, std::vector<Event>& out) {
  const std::lock_guard lock(mutex_);
  Inbox& inbox = inbox_[rank];
  out.insert(out.end(), inbox.events.begin(), inbox.events.end());
  inbox.events.clear();
  return std::exchange(inbox.lost, 0);
}

std::vector<HostNote> RemoteHost::notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

void RemoteHost::put_back() {
  if (plan_.real_faults.empty()) return;
  try {
    ask({{"type", "put_back"}}, kPutBackBound);
  } catch (const std::exception&) {  // failure() says so; its guard puts back what the agent cannot
  }
}

void RemoteHost::decline(r2ccl::trace::EventType type) { tell({{"type", "decline"}, {"event", int(type)}}); }

ThreadReport RemoteHost::threads() {
  ThreadReport report;
  for (const RankPlan& rank : plan_.ranks) report.brief[rank.rank] = " (its host does not answer)";
  try {
    const json answer = ask({{"type", "threads"}}, answer_bound_);
    report.full = answer.at("full");
    for (size_t i = 0; i < plan_.ranks.size(); ++i)
      report.brief[plan_.ranks[i].rank] = answer.at("brief").at(i);
  } catch (const std::exception& error) {
    report.full = std::string(error.what()) + "\n";
  }
  return report;
}

void RemoteHost::settle() {
  try {
    ask({{"type", "settle"}, {"sent_ns", r2ccl::now_ns()}}, answer_bound_);
  } catch (const std::exception&) {  // failure() says so
  }
}

void RemoteHost::release() {
  if (plan_.ranks.empty()) return;
  try {  // what real faults have changed is put back with it
    ask({{"type", "release"}}, plan_.real_faults.empty() ? kReleaseBounds * answer_bound_ : kPutBackBound);
  } catch (const std::exception&) {  // failure() says so
  }
  ports_.clear();
  board_.reset();
  const std::lock_guard lock(mutex_);
  plan_ = {};
  inbox_.clear();
  states_.clear();
}

std::optional<std::string> RemoteHost::failure() {
  const std::lock_guard lock(mutex_);
  if (lost_.empty()) return std::nullopt;
  return "host " + facts_.name + " is gone (" + lost_ + "), and its ranks with it";
}

uint64_t RemoteHost::heard_ns() const {
  const std::lock_guard lock(mutex_);
  return heard_ns_;
}

HostFacts RemoteHost::facts() const {
  const std::lock_guard lock(mutex_);
  HostFacts facts = facts_;
  facts.clock_offset_ms = double(clock_.offset_ns()) / 1e6;
  facts.clock_bound_ms = double(std::max(worst_clock_ns_, clock_.bound_ns(r2ccl::now_ns()))) / 1e6;
  facts.clock_beyond_ms = double(clock_.beyond_ns()) / 1e6;
  return facts;
}

}  // namespace r2bench
