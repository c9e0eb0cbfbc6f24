// SPDX-License-Identifier: Apache-2.0
// A rank's conversation with the runner, of every engine: what it has said so far, and waiting for more. A thread of its own
// listens, so that a rank that waits for its GPU still hears that the job is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/launch/message_socket.h"

namespace r2bench {

class RunnerTalk {
 public:
  /// The runner has ended the job.
  struct Aborted {};

  /// `also` hears each message, on the listening thread, once it has taken effect here. It may be empty; what it uses
  /// must outlive this object.
  explicit RunnerTalk(MessageSocket socket, std::function<void(const nlohmann::json&)> also = {});
  ~RunnerTalk();

  void say(const nlohmann::json& message);
  bool aborted() const { return aborted_; }

  // Each waits; throws Aborted when the runner has ended the job.
  nlohmann::json wait_for_config();
  nlohmann::json wait_for_handles();
  void wait_for_start();
  void wait_for_close();
  /// Until operation `number` may begin (true), or no more will be granted (false).
  bool wait_for_grant(uint64_t number);
  /// Without waiting.
  bool granted(uint64_t number);

 private:
  void listen();
  void take(const nlohmann::json& message);
  template <typename Condition>
  void wait_for(Condition condition);

  MessageSocket socket_;
  std::function<void(const nlohmann::json&)> also_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable told_;
  nlohmann::json config_, handles_;
  bool started_ = false, final_ = false, close_ = false;
  uint64_t granted_ = 0;
  std::atomic<bool> aborted_{false}, leaving_{false};
  std::thread listener_;
};

}  // namespace r2bench
