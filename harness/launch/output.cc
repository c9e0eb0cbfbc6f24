// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace r2bench {
namespace {
constexpr int kPollMs = 100;
constexpr int kReadsInTurn = 16;  // of one stream, before the others have theirs

/// What is in a pipe now; whoever still writes into it may go on for ever.
size_t bytes_in(int pipe) {
  int bytes = 0;
  return ioctl(pipe, FIONREAD, &bytes) == 0 && bytes > 0 ? size_t(bytes) : 0;
}
}  // namespace

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

/// Reads once, `most` bytes at most. Returns how many; 0: nothing is there now.
size_t OutputCapture::take(Stream& stream, size_t most) {
  char buffer[kChunk];
  const ssize_t n = read(stream.pipe, buffer, std::min(most, sizeof(buffer)));
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    close(stream.pipe);
    stream.pipe = -1;
    return 0;
  }
  if (n < 0) return 0;
  const size_t keep = write_error_ ? 0 : std::min(size_t(n), max_bytes_ - stream.written);
  ssize_t written = 0;
  if (keep > 0) {
    written = write(stream.file, buffer, keep);
    if (written < ssize_t(keep)) write_error_ = written < 0 ? errno : ENOSPC;
    written = std::max<ssize_t>(written, 0);
  }
  stream.written += size_t(written);
  stream.dropped += size_t(n - written);
  return size_t(n);
}

void OutputCapture::take_rest(Stream& stream) {
  if (stream.pipe < 0) return;
  for (size_t left = bytes_in(stream.pipe); left > 0 && stream.pipe >= 0;) {
    const size_t taken = take(stream, left);
    if (taken == 0) return;
    left -= taken;
  }
}

void OutputCapture::loop() {
  while (true) {
    std::vector<pollfd> ready;
    for (Stream& stream : streams_)
      if (stream.pipe >= 0) ready.push_back({stream.pipe, POLLIN, 0});
    const bool last = stop_ || ready.empty();
    if (!last) poll(ready.data(), nfds_t(ready.size()), kPollMs);
    for (Stream& stream : streams_) {
      if (last) {
        take_rest(stream);
        continue;
      }
      for (int reads = 0; reads < kReadsInTurn && stream.pipe >= 0 && take(stream, kChunk) > 0;) ++reads;
    }
    if (last) return;
  }
}

}  // namespace r2bench
