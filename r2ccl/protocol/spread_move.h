// SPDX-License-Identifier: Apache-2.0
// Mode 1: the move of a channel that is away from home to a NIC that has less to carry. Which NIC that is the
// caller finds (nic_load.h); here is when it looks, which path it has for it, and where it does not go. Pure;
// times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "r2ccl/protocol/choice.h"
#include "r2ccl/protocol/nic_load.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

/// Of a channel that carries.
struct SpreadSight {
  bool ready = false;       ///< nothing that carries is marked failed
  bool away = false;        ///< from its home NIC
  bool comes_home = false;  ///< a path over the home rail is on probation
  bool in_demand = false;   ///< it has had traffic of late
  bool opens = false;       ///< some path is being opened
};
enum class SpreadAct : uint8_t {
  kNone,
  kMove,  ///< go on with the move that is under way
  kLook,  ///< does another NIC have less to carry?
};
enum class MoveAct : uint8_t {
  kWait,
  kEnd,     ///< its path is in use already
  kProve,   ///< probe it
  kGiveUp,  ///< it does not work
  kGo,      ///< it works: move, if that NIC still has less to carry
};

enum class MoveEnd : uint8_t {
  kMove,     ///< traffic moves to its path
  kDrop,     ///< another NIC is no better any more, and another path stands by: this one is not needed
  kStandBy,  ///< it stands by
};

class SpreadMove {
 public:
  static constexpr uint64_t kLookEveryNs = 25'000'000;

  /// As SpreadTimer; a NIC that turned out not to work is left alone for `ceiling_ns`.
  SpreadMove(uint64_t settle_ns, uint64_t ceiling_ns, uint64_t seed)
      : timer_(settle_ns, ceiling_ns, seed), ceiling_(ceiling_ns) {}

  /// The path that it moves to when that has answered a probe; 0: none.
  uint32_t path() const { return path_; }
  bool has(uint32_t path) const { return path_ != 0 && path_ == path; }
  bool may_go_to(int nic, uint64_t now) const { return now >= not_before_[size_t(nic)]; }

  // --- what happens
  void rests(uint64_t now) { timer_.due(false, now); }
  void takes(uint32_t path) { path_ = path; }
  void dropped(uint32_t path) {
    if (has(path)) path_ = 0;
  }
  /// Traffic flows over another path, for whatever reason.
  void carries() { path_ = 0; }
  void failed(int nic, uint64_t now) {
    not_before_[size_t(nic)] = now + ceiling_;
    ended(now);
  }
  /// It has moved, or found that it need not.
  void ended(uint64_t now) {
    path_ = 0;
    timer_.moved(now);
  }

  // --- what is due
  SpreadAct look(const SpreadSight& seen, bool has_path, uint64_t now) {
    if (!seen.ready) return SpreadAct::kNone;
    if (has_path) return SpreadAct::kMove;
    if (!seen.away || seen.comes_home || !seen.in_demand) {
      rests(now);
      return SpreadAct::kNone;
    }
    if (seen.opens || now < next_look_) return SpreadAct::kNone;
    next_look_ = now + kLookEveryNs;
    return SpreadAct::kLook;
  }
  /// On kLook. A Host answers:
  ///   less_loaded(shared)  the NIC on which this channel would have clearly less beside it, if there is one.
  ///                        `shared`: by what the node's other processes say now
  ///   standby_over(nic)    the path that stands by over that NIC and its straight rail; 0: none
  /// and carries out:
  ///   moves_to(nic)        for the log
  ///   forget_probe(path)   what it has answered before says nothing of now
  ///   open(nic)            a path for the move, over the straight rail
  ///   share_load()         the node's others learn of it, so that nobody else chooses the same NIC
  template <class Host>
  void look_for_less(Host& host, uint64_t now) {
    if (!due(host.less_loaded(false).has_value(), now)) return;
    const std::optional<int> nic = host.less_loaded(true);
    if (!nic) return;  // the others have moved meanwhile
    host.moves_to(*nic);
    if (const uint32_t path = host.standby_over(*nic); path != 0) {
      takes(path);
      host.forget_probe(path);
    } else {
      host.open(*nic);
    }
    host.share_load();
  }
  /// What is to be done about its path, which stands by, or does not any more.
  static constexpr MoveAct look_at_path(bool stands_by, ProbeSight probe) {
    if (!stands_by) return MoveAct::kEnd;
    switch (probe) {
      case ProbeSight::kNone:
        return MoveAct::kProve;
      case ProbeSight::kAwaited:
        return MoveAct::kWait;
      case ProbeSight::kFailed:
        return MoveAct::kGiveUp;
      case ProbeSight::kAnswered:
        break;
    }
    return MoveAct::kGo;
  }
  /// Its path works. `better`: its NIC still has less to carry; `another`: another path stands by.
  static constexpr MoveEnd arrive(bool better, bool another) {
    return better ? MoveEnd::kMove : another ? MoveEnd::kDrop : MoveEnd::kStandBy;
  }
  /// `better`: another NIC carries fewer channels. True: move now.
  bool due(bool better, uint64_t now) { return timer_.due(better, now); }

 private:
  SpreadTimer timer_;
  const uint64_t ceiling_;
  uint64_t next_look_ = 0;
  uint32_t path_ = 0;
  std::array<uint64_t, wire::kMaxNics> not_before_{};
};

}  // namespace r2ccl
