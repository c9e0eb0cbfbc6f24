// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/secure_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace r2bench {
namespace {

using std::chrono::milliseconds;

constexpr char kMagic[] = "R2BHOST1";  // and the version
constexpr size_t kMagicBytes = 8, kNonceBytes = 32, kTagBytes = 16;
constexpr size_t kMostBytes = 64u << 20;
// A machine that is gone is noticed within this time, also when nothing is sent.
constexpr int kGoneAfterS = 10;

void watch_for_silence(int fd) {
  const int yes = 1, idle_s = 2, every_s = 2, probes = (kGoneAfterS - idle_s) / every_s;
  const unsigned unanswered_ms = kGoneAfterS * 1000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void start_sodium() {
  if (sodium_init() < 0) throw std::runtime_error("libsodium cannot be initialised");
}

/// The key of one direction.
std::array<unsigned char, 32> direction_key(const std::string& secret, const char* direction,
                                            const std::string& agent_nonce, const std::string& runner_nonce) {
  std::array<unsigned char, 32> of_secret{}, key{};
  crypto_generichash(of_secret.data(), of_secret.size(),
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), nullptr, 0);
  const std::string text = std::string("r2bench host link ") + direction + agent_nonce + runner_nonce;
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     of_secret.data(), of_secret.size());
  return key;
}

std::string tag_of(const std::array<unsigned char, 32>& key, uint64_t number, const char* payload,
                   size_t bytes) {
  crypto_generichash_state state;
  unsigned char tag[kTagBytes];
  crypto_generichash_init(&state, key.data(), key.size(), kTagBytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&number), sizeof(number));
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(payload), bytes);
  crypto_generichash_final(&state, tag, kTagBytes);
  return {reinterpret_cast<char*>(tag), kTagBytes};
}

}  // namespace

std::string random_secret() {
  start_sodium();
  unsigned char bytes[32];
  char text[2 * sizeof(bytes) + 1];
  randombytes_buf(bytes, sizeof(bytes));
  sodium_bin2hex(text, sizeof(text), bytes, sizeof(bytes));
  return text;
}

SecureLink::SecureLink(int fd, const std::string& secret, End end, milliseconds wait) : fd_(fd) {
  start_sodium();
  if (secret.size() < kLeastSecret) {
    give_up("the job's secret is shorter than " + std::to_string(kLeastSecret) + " characters");
    return;
  }
  watch_for_silence(fd_);
  std::string own(kNonceBytes, '\0');
  randombytes_buf(own.data(), own.size());
  if (!write_all(std::string(kMagic, kMagicBytes) + own)) return;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (!closed() && buffer_.size() < kMagicBytes + kNonceBytes) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      give_up("the peer did not introduce itself in time");
    else if (read_some(left) &&
             std::memcmp(buffer_.data(), kMagic, std::min(kMagicBytes, buffer_.size())) != 0)
      give_up("the peer is no r2bench of this version");
  }
  if (closed()) return;
  const std::string theirs = buffer_.substr(kMagicBytes, kNonceBytes);
  buffer_.erase(0, kMagicBytes + kNonceBytes);
  const bool runner = end == End::kRunner;
  const std::string &agent_nonce = runner ? theirs : own, &runner_nonce = runner ? own : theirs;
  const Key to_runner = direction_key(secret, "to the runner", agent_nonce, runner_nonce);
  const Key to_agent = direction_key(secret, "to the agent", agent_nonce, runner_nonce);
  send_key_ = runner ? to_agent : to_runner;
  receive_key_ = runner ? to_runner : to_agent;
}

SecureLink::SecureLink(SecureLink&& other) noexcept { *this = std::move(other); }

SecureLink& SecureLink::operator=(SecureLink&& other) noexcept {
  std::swap(fd_, other.fd_);
  closed_ = other.closed_.exchange(closed_);
  std::swap(why_, other.why_);
  std::swap(buffer_, other.buffer_);
  std::swap(send_key_, other.send_key_);
  std::swap(receive_key_, other.receive_key_);
  std::swap(sent_, other.sent_);
  std::swap(received_, other.received_);
  return *this;
}

SecureLink::~SecureLink() {
  if (fd_ >= 0) ::close(fd_);
}

/// The descriptor stays until the end: another thread may be about to use it.
void SecureLink::give_up(const std::string& why) {
  if (closed_) return;
  why_ = why;
  closed_ = true;
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

bool SecureLink::write_all(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += size_t(n);
    } else if (n == 0 || errno != EINTR) {
      return false;  // whoever receives learns why
    }
  }
  return true;
}

bool SecureLink::send(const nlohmann::json& message) {
  if (closed()) return false;
  std::string payload;
  nlohmann::json::to_cbor(message, payload);
  const uint32_t length = uint32_t(payload.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
  frame += tag_of(send_key_, sent_++, payload.data(), payload.size());
  frame += payload;
  return write_all(frame);
}

/// One read. true: something has come.
bool SecureLink::read_some(milliseconds wait) {
  pollfd ready{fd_, POLLIN, 0};
  const int polled = poll(&ready, 1, int(std::max<long>(0, long(wait.count()))));
  if (polled <= 0) return false;
  char chunk[65536];
  const ssize_t n = recv(fd_, chunk, sizeof(chunk), MSG_DONTWAIT);
  if (n > 0) {
    buffer_.append(chunk, size_t(n));
    return true;
  }
  if (n == 0)
    give_up("the peer closed the connection");
  else if (errno != EAGAIN && errno != EINTR)
    give_up(std::string("the connection broke: ") + strerror(errno));
  return false;
}

std::optional<nlohmann::json> SecureLink::receive(milliseconds wait) {
  constexpr size_t kHead = sizeof(uint32_t) + kTagBytes;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (!closed()) {
    if (buffer_.size() >= kHead) {
      uint32_t length = 0;
      std::memcpy(&length, buffer_.data(), sizeof(length));
      if (length > kMostBytes || (received_ == 0 && length > 65536)) {
        give_up("the peer sent a frame that is too long");
        break;
      }
      if (buffer_.size() >= kHead + length) {
        const char* payload = buffer_.data() + kHead;
        const std::string tag = tag_of(receive_key_, received_, payload, length);
        if (sodium_memcmp(tag.data(), buffer_.data() + sizeof(length), kTagBytes) != 0) {
          give_up("the peer does not know the job's secret");
          break;
        }
        ++received_;
        auto message = nlohmann::json::from_cbor(payload, payload + length, true, false);
        buffer_.erase(0, kHead + length);
        if (!message.is_object()) {
          give_up("the peer sent a frame that is no message");
          break;
        }
        return message;
      }
    }
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (!read_some(left) && left.count() <= 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace r2bench
