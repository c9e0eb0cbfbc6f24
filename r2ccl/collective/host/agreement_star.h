// SPDX-License-Identifier: Apache-2.0
// Control connections between rank 0 of a group and all other ranks. A connection that breaks is made again
// by the other rank; what was under way on it is lost, and both sides learn of the new one. Each has keys of
// its own, from the token in rank 0's listen handle and a nonce. Used by one thread, except wake().
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/control/link.h"
#include "r2ccl/control/socket.h"

namespace r2ccl::collective {

inline constexpr uint32_t kStarVersion = 0x70'6c'61'05;

/// Where rank 0 is reached, as it travels in the listen handle.
struct StarAddress {
  uint32_t version = 0;
  uint32_t reserved = 0;
  control::Endpoint endpoint;
  control::Token token{};
};

class Star {
 public:
  struct Event {
    int rank = 0;  ///< who it is about
    bool connected = false;
    std::vector<std::byte> bytes;  ///< a message, unless `connected`
  };

  /// `listener`: rank 0's socket. The others connect in the background.
  static Result<Star> make(control::Descriptor listener, const StarAddress& hub, int rank, int ranks);

  Star(Star&&) noexcept;
  ~Star();

  /// Sleeps until something arrives, wake() is called or it is `due` (now_ns(); ~0: never).
  void wait(uint64_t due);
  /// Any thread.
  void wake() const;
  /// Reads, writes, accepts and connects what can be without blocking. When to call it again at the latest.
  uint64_t tend(uint64_t now);
  bool next(Event& event);
  /// Lost without a word where there is no connection.
  void send(int rank, std::span<const std::byte> bytes);
  /// Ends a connection, which will be made again.
  void drop(int rank);
  /// Says that this rank leaves, as far as that goes at once.
  void leave();

  /// Rank 0: is everybody connected?
  bool complete() const;
  /// Others: since when there has been no connection to rank 0.
  std::optional<uint64_t> lost_since() const { return lost_since_; }
  /// Rank 0 has left.
  bool ended() const { return ended_; }

 private:
  struct Peer;
  struct Hello;
  Star();
  uint64_t let_in(uint64_t now);
  void greet(uint64_t now);
  uint64_t reach_hub(uint64_t now);
  void lost(uint64_t now);
  void hear(std::unique_ptr<Peer>& peer, uint64_t now);

  int rank_ = 0, ranks_ = 0;
  StarAddress hub_;
  control::Descriptor wake_;
  std::deque<Event> events_;
  std::vector<std::unique_ptr<Peer>> peers_;  // rank 0: by rank; others: [0]
  // rank 0
  control::Descriptor listener_;
  std::vector<std::unique_ptr<Peer>> arrivals_;
  uint64_t no_room_until_ = 0;  // not to be told of more of them
  // others
  control::Descriptor connecting_;
  uint64_t connecting_since_ = 0, try_at_ = 0, backoff_ = 0;
  std::optional<uint64_t> lost_since_;
  bool ended_ = false;
};

}  // namespace r2ccl::collective
