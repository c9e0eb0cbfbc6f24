// SPDX-License-Identifier: Apache-2.0
// Takes what child processes print, into one bounded file each, so that a child that talks without end fills
// no disk and never waits for us.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace r2bench {

class OutputCapture {
 public:
  /// At most `max_bytes` per file; the rest is counted and dropped, and the file says so.
  explicit OutputCapture(size_t max_bytes = 4u << 20);
  /// Reads what is in the pipes at that moment, then ends, although somebody may go on writing.
  ~OutputCapture();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  /// Opens `path` and returns the descriptor that is to become the child's stdout and stderr; close it after
  /// the child has been started. Call before start(). Throws std::system_error.
  int add(const std::string& path);
  /// The same into an open file, which this object closes.
  int add_file(int file);
  void start();
  /// errno of the first write that failed (ENOSPC …), 0 when all went well.
  int write_error() const { return write_error_; }

 private:
  struct Stream {
    int pipe = -1;
    int file = -1;
    size_t written = 0;
    size_t dropped = 0;
  };
  static constexpr size_t kChunk = 16384;
  void loop();
  size_t take(Stream& stream, size_t most);
  /// What is in its pipe now, and no more.
  void take_rest(Stream& stream);

  size_t max_bytes_;
  std::vector<Stream> streams_;
  std::atomic<bool> stop_{false};
  std::atomic<int> write_error_{0};
  std::thread thread_;
};

}  // namespace r2bench
