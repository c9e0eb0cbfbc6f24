// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace r2bench {
namespace {
constexpr int kPollMs = 100;
}

OutputCapture::OutputCapture(size_t max_bytes) : max_bytes_(max_bytes) {}

OutputCapture::~OutputCapture() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (Stream& stream : streams_) {
    if (stream.dropped) {
      const std::string note = "\n[" + std::to_string(stream.dropped) + " more bytes were dropped]\n";
      [[maybe_unused]] const ssize_t n = write(stream.file, note.data(), note.size());
    }
    if (stream.pipe >= 0) close(stream.pipe);
    close(stream.file);
  }
}

int OutputCapture::add(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
  return add_file(file);
}

int OutputCapture::add_file(int file) {
  Stream stream;
  stream.file = file;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(stream.file);
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  stream.pipe = ends[0];
  streams_.push_back(stream);
  return ends[1];
}

void OutputCapture::start() {
  thread_ = std::thread([this] { loop(); });
}

/// Reads once. false: nothing is there now.
bool OutputCapture::take(Stream& stream) {
  char buffer[16384];
  const ssize_t n = read(stream.pipe, buffer, sizeof(buffer));
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    close(stream.pipe);
    stream.pipe = -1;
    return false;
  }
  if (n < 0) return false;
  const size_t keep = std::min(size_t(n), max_bytes_ - stream.written);
  if (keep > 0 && write_error_ == 0) {
    const ssize_t written = write(stream.file, buffer, keep);
    if (written < ssize_t(keep)) write_error_ = written < 0 ? errno : ENOSPC;
    if (written > 0) stream.written += size_t(written);
  }
  stream.dropped += size_t(n) - keep;
  return true;
}

void OutputCapture::loop() {
  while (true) {
    std::vector<pollfd> ready;
    for (Stream& stream : streams_)
      if (stream.pipe >= 0) ready.push_back({stream.pipe, POLLIN, 0});
    const bool last = stop_ || ready.empty();
    if (!last) poll(ready.data(), nfds_t(ready.size()), kPollMs);
    for (Stream& stream : streams_)
      while (stream.pipe >= 0 && take(stream)) {
      }
    if (last) return;
  }
}

}  // namespace r2bench
