// SPDX-License-Identifier: Apache-2.0
// The process's events, counted, as a text file that Prometheus' node exporter reads (its textfile
// collector). Fed by the trace writer from the events that are emitted anyway; knows nothing of channels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "r2ccl/trace/event.h"

namespace r2ccl::trace {

class Metrics {
 public:
  /// `path` as in R2CC_METRICS: "%p" becomes the process id, "%%" a percent sign. `nics`: names of the local
  /// NICs, by index. Nothing is written yet.
  Metrics(const std::string& path, std::vector<std::string> nics);

  /// Counts one event. Any thread. Never blocks for longer than write() takes to copy the counts.
  void count(const Event& event) noexcept;

  /// Writes the file when something has changed and a second has passed since it was last written, or
  /// `at_once`. `now`: CLOCK_MONOTONIC, nanoseconds. The file is complete at any moment: another one takes
  /// its place. A file that cannot be written is said once in the log; counting goes on.
  void write(uint64_t now, bool at_once = false) noexcept;

  /// The file's content. `now` as in write(): outages that go on count up to it.
  std::string text(uint64_t now) const;
  const std::string& path() const { return path_; }

 private:
  using Labels = std::string;  // `nic="vhca0"`, as they stand between the braces
  using Counts = std::map<Labels, uint64_t>;

  void count_locked(const Event& event);
  void end_outage(const Event& event);  // the channel has a path again, or wants none any more
  Labels nic(uint16_t index) const;
  void count_plan(const Event& event);

  const std::string path_;
  const std::vector<std::string> nics_;

  mutable std::mutex mutex_;  // guards the following
  Counts failures_, failed_;
  std::vector<Counts> by_nic_;  // in the order of kNicCounters
  Counts gray_now_;  // by NIC: 1 when it is gray
  uint64_t channels_ = 0, replayed_bytes_ = 0, replayed_segments_ = 0, duplicates_ = 0;
  uint64_t plans_ = 0;
  /// Of a group, by its newest view. Groups count their epochs for themselves.
  struct Plan {
    uint64_t thousandths = 1000;                    // that the weakest node carries
    uint64_t epoch = 0, bytes = 0;                  // of the largest AllReduce that was planned
    size_t algorithm = kPlannedAlgorithms;          // that runs it; kPlannedAlgorithms: it is not known
  };
  std::map<uint32_t, Plan> plan_of_;                 // by group, of those that have not ended
  uint64_t without_path_ns_ = 0;                     // of outages that are over
  std::map<uint32_t, uint64_t> without_path_since_;  // channel: since when (CLOCK_MONOTONIC, ns)
  bool changed_ = true;                              // a file of zeros says that somebody is at work

  uint64_t written_at_ = 0;  // write() only
  bool written_ = false, failed_to_write_ = false;
};

}  // namespace r2ccl::trace
