// SPDX-License-Identifier: Apache-2.0
// The trace ring: a file that one process writes without locks and any number of processes read. A writer
// never waits for a reader; a reader that falls behind learns how many events it lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "r2ccl/trace/event.h"

namespace r2ccl::trace {

/// Writes events into the ring that R2CC_TRACE names. Several copies of this code in one process (the
/// plugin's and the workload's) may write to the same ring. Without R2CC_TRACE emit() costs one branch.
class Writer {
 public:
  /// Opens `path` (created and sized by Reader::create). An empty path gives a writer that drops everything.
  explicit Writer(const std::string& path);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// The process's writer, opened on first use from R2CC_TRACE.
  static Writer& instance();

  /// Stamps the event with the time, thread and sequence and publishes it. Rare events and kIteration are
  /// also offered to the fault injector when one is loaded (`faultinject_event(name, a)`).
  void emit(EventType type, uint16_t nic, uint32_t channel, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
            uint32_t peer = 0) noexcept;

  bool enabled() const noexcept { return header_ != nullptr; }
  /// From now on `metrics` counts the rare events, too. It must outlive the writer.
  void feed(class Metrics& metrics) noexcept { metrics_.store(&metrics, std::memory_order_release); }

 private:
  struct Header* header_ = nullptr;
  size_t mapped_ = 0;
  void (*fault_hook_)(const char*, uint64_t) = nullptr;
  std::atomic<class Metrics*> metrics_{nullptr};
};

/// Creates a ring and reads it while writers are at work.
class Reader {
 public:
  /// An anonymous (memfd) ring of `capacity` events, a power of two. `path()` is what R2CC_TRACE must say
  /// in processes of the same user; it is valid while this reader lives.
  /// Throws std::system_error when memory cannot be had.
  static Reader create(size_t capacity = 1 << 16);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  const std::string& path() const { return path_; }
  /// Appends every event published since the last call to `out`, in order of sequence.
  /// Returns how many events were overwritten before they could be read.
  uint64_t drain(std::vector<Event>& out);
  /// From about now on writers leave out events of this type, which saves them the time and the ring the
  /// room. Only hot types can be declined; for others nothing changes.
  void decline(EventType type) noexcept;

 private:
  Reader() = default;
  int fd_ = -1;
  struct Header* header_ = nullptr;
  size_t mapped_ = 0;
  uint64_t next_ = 1;
  std::string path_;
};

}  // namespace r2ccl::trace
