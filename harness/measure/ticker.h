// SPDX-License-Identifier: Apache-2.0
// Measures how late this machine wakes a thread that sleeps: the noise floor under every recovery number.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "harness/measure/result.h"

namespace r2bench {

/// Sleeps to absolute deadlines from construction to stop(), and keeps by how much each was missed.
class Ticker {
 public:
  explicit Ticker(std::chrono::microseconds period = std::chrono::milliseconds(1));
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  /// Ends the thread. The lateness in ms. May be called once.
  Distribution stop();

 private:
  void run();

  std::chrono::microseconds period_;
  std::atomic<bool> stop_{false};
  std::vector<double> late_ms_;
  std::thread thread_;
};

}  // namespace r2bench
