// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/runner_talk.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "harness/workload/rank_exit.h"

namespace r2bench {

using namespace std::chrono_literals;

RunnerTalk::RunnerTalk(MessageSocket socket, std::function<void(const nlohmann::json&)> also)
    : socket_(std::move(socket)), also_(std::move(also)), listener_([this] { listen(); }) {}

RunnerTalk::~RunnerTalk() {
  leaving_ = true;
  listener_.join();
}

void RunnerTalk::say(const nlohmann::json& message) {
  std::lock_guard lock(send_mutex_);
  socket_.send(message);
}

void RunnerTalk::listen() {
  while (!leaving_) {
    const auto message = socket_.receive(50ms);
    if (!message) {
      // Nobody is left who could use a result, or end us: go at once, whatever NCCL and the GPU are doing.
      if (socket_.closed()) _exit(kRankOrphaned);
      continue;
    }
    take(*message);
    if (also_) also_(*message);
  }
}

void RunnerTalk::take(const nlohmann::json& message) {
  const std::string type = message.value("type", "");
  std::lock_guard lock(mutex_);
  if (type == "config") config_ = message;
  if (type == "handles") handles_ = message.at("handles");
  if (type == "start") started_ = true;
  if (type == "grant") {
    granted_ = std::max<uint64_t>(granted_, message.value("iterations", uint64_t{0}));
    final_ = final_ || message.value("final", false);
  }
  if (type == "close") close_ = true;
  if (type == "abort") aborted_ = true;
  told_.notify_all();
}

template <typename Condition>
void RunnerTalk::wait_for(Condition condition) {
  std::unique_lock lock(mutex_);
  told_.wait(lock, [&] { return aborted_ || condition(); });
  if (aborted_) throw Aborted{};
}

nlohmann::json RunnerTalk::wait_for_config() {
  wait_for([&] { return !config_.is_null(); });
  return config_;
}

nlohmann::json RunnerTalk::wait_for_handles() {
  wait_for([&] { return !handles_.is_null(); });
  return handles_;
}

void RunnerTalk::wait_for_start() {
  wait_for([&] { return started_; });
}

void RunnerTalk::wait_for_close() {
  wait_for([&] { return close_; });
}

bool RunnerTalk::wait_for_grant(uint64_t number) {
  wait_for([&] { return number < granted_ || final_; });
  return granted(number);
}

bool RunnerTalk::granted(uint64_t number) {
  std::lock_guard lock(mutex_);
  return number < granted_;
}

}  // namespace r2bench
