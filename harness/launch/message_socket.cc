// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "harness/base/json_text.h"

namespace r2bench {
namespace {
constexpr size_t kMaxFrame = 4u << 20;
constexpr int kSendBoundMs = 10'000;
}  // namespace

MessageSocket::MessageSocket(MessageSocket&& other) noexcept { *this = std::move(other); }

MessageSocket& MessageSocket::operator=(MessageSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(closed_, other.closed_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

MessageSocket::~MessageSocket() { close(); }

void MessageSocket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  closed_ = true;
}

bool MessageSocket::send(const nlohmann::json& message) {
  if (fd_ < 0) return false;
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const uint32_t length = uint32_t(text.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
  frame += text;
  size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += size_t(n);
    } else if (n < 0 && errno == EAGAIN) {
      pollfd wait{fd_, POLLOUT, 0};
      if (poll(&wait, 1, kSendBoundMs) == 0) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::optional<nlohmann::json> MessageSocket::receive(std::chrono::milliseconds wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (true) {
    uint32_t length = 0;
    if (buffer_.size() >= sizeof(length)) {
      std::memcpy(&length, buffer_.data(), sizeof(length));
      if (length > kMaxFrame) {
        close();
        return std::nullopt;
      }
      if (buffer_.size() >= sizeof(length) + length) {
        auto message = json_from(std::string_view(buffer_).substr(sizeof(length), length), false);
        buffer_.erase(0, sizeof(length) + length);
        if (message.is_discarded()) {
          close();
          return std::nullopt;
        }
        return message;
      }
    }
    if (fd_ < 0) return std::nullopt;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_, POLLIN, 0};
    const int polled = poll(&ready, 1, int(std::max<long>(0, long(left.count()))));
    if (polled == 0) return std::nullopt;
    if (polled < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    char chunk[16384];
    const ssize_t n = recv(fd_, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(chunk, size_t(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      close();
      return std::nullopt;
    }
  }
}

}  // namespace r2bench
