// SPDX-License-Identifier: Apache-2.0
// Frames between two processes of a job on different machines, over TCP: JSON (as CBOR, so that binary data
// needs no encoding), each frame authenticated by the job's secret. Nothing is encrypted. Set-up, grants,
// outcomes and trace events; never on the data path of a job.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace r2bench {

inline constexpr size_t kLeastSecret = 16;  ///< characters

/// 32 random bytes as text.
std::string random_secret();

/// Owns a connected TCP socket. One thread may send while another receives. Both ends prove that they know
/// the secret with their first frame: its tag depends on the secret and on a random number of each end, and
/// on the frame's direction and position, so that nothing can be forged, replayed or sent back.
class SecureLink {
 public:
  enum class End { kRunner, kAgent };

  SecureLink() = default;
  /// Takes over `fd`. Exchanges random numbers with the peer, for at most `wait`; closed() when that failed.
  SecureLink(int fd, const std::string& secret, End end, std::chrono::milliseconds wait);
  SecureLink(SecureLink&& other) noexcept;
  SecureLink& operator=(SecureLink&& other) noexcept;
  ~SecureLink();

  int fd() const { return fd_; }
  bool closed() const { return fd_ < 0 || closed_; }
  /// Why it is closed, in words; empty while it is open.
  const std::string& why() const { return why_; }

  /// Waits while the peer does not read; false: the peer is gone.
  bool send(const nlohmann::json& message);
  /// The next message; nullopt when none came within `wait`, or when closed(). A frame that is too long, that
  /// the peer did not make with the secret, or that is no message closes the link.
  std::optional<nlohmann::json> receive(std::chrono::milliseconds wait);

 private:
  using Key = std::array<unsigned char, 32>;
  void give_up(const std::string& why);
  bool read_some(std::chrono::milliseconds wait);
  bool write_all(const std::string& bytes);

  int fd_ = -1;
  std::atomic<bool> closed_{false};  ///< set by whoever receives
  std::string why_;
  std::string buffer_;
  Key send_key_{}, receive_key_{};
  uint64_t sent_ = 0, received_ = 0;  ///< frames
};

}  // namespace r2bench
