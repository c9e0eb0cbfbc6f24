// SPDX-License-Identifier: Apache-2.0
// How the sender opens a path: its half, the receiver's, the connection, a real transfer from each end. One
// at a time; each has a number of its own, which is never used again. And when one that failed is tried
// again. Pure; times are in nanoseconds, `alive` and `now` as in tick.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "r2ccl/protocol/choice.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

/// What a path is opened for.
enum class Purpose : uint8_t {
  kFirst,     ///< the channel has none yet
  kStandby,   ///< to take over at once
  kRescue,    ///< none is left
  kFailback,  ///< the home rail may work again
  kLane,      ///< to carry a share of the traffic (balance)
  kSpread,    ///< over a NIC that has less to carry
};

/// What can be seen of the path that is being opened.
struct OpeningSight {
  bool exists = false;       ///< this end's half is made
  bool makes = false;        ///< … or is being made
  bool worker_busy = false;  ///< a driver call on it has not returned
  bool driver_late = false;  ///< … nor will it soon
  ProbeSight probe = ProbeSight::kNone;
};

enum class OpeningAct : uint8_t {
  kWait,
  kDropped,     ///< it failed: it was given up
  kDriverLate,  ///< … the driver does not answer
  kConnect,     ///< see what came of connecting, and go on
  kProved,      ///< this end's transfer came back: the receiver is to try its own
  kUnproved,    ///< it failed: the transfer did not come back
};

class Opening {
 public:
  bool under_way() const { return stage_ != Stage::kNone; }
  bool is(uint32_t path) const { return under_way() && path_ == path; }
  bool is_for(Purpose purpose) const { return under_way() && purpose_ == purpose; }
  uint32_t path() const { return under_way() ? path_ : 0; }
  Purpose purpose() const { return purpose_; }
  int local() const { return local_; }
  int remote() const { return remote_; }
  /// For its half, or for its transfer.
  bool waits_for_peer() const { return stage_ == Stage::kPeerHalf || stage_ == Stage::kPeerProof; }
  /// … and has for longer than `span`.
  bool peer_owes(uint64_t alive, uint64_t span) const { return waits_for_peer() && alive - since_ > span; }

  // --- what happens
  /// The number of the new path.
  uint32_t begin(Purpose purpose, int local, int remote, uint64_t alive) {
    path_ = next_++;
    purpose_ = purpose;
    local_ = local;
    remote_ = remote;
    enter(Stage::kMaking, alive);
    return path_;
  }
  void half_made(uint64_t alive) { enter(Stage::kPeerHalf, alive); }
  /// The receiver has made its half of `path`, or cannot. False: nobody waits for that.
  bool peer_answers(uint32_t path) const { return is(path) && stage_ == Stage::kPeerHalf; }
  /// The receiver's transfer has come back. False: nobody waits for that.
  bool peer_proves(uint32_t path) const { return is(path) && stage_ == Stage::kPeerProof; }
  /// This end's transfer is under way, or about to be.
  bool proves() const { return stage_ == Stage::kProving; }
  void connecting(uint64_t alive) { enter(Stage::kConnecting, alive); }
  void connected(uint64_t alive) { enter(Stage::kProving, alive); }
  /// Without resilience a path that is connected is open: nothing is proved.
  static constexpr bool is_proved(bool resilient) { return resilient; }
  /// `since`: when this end's transfer was begun.
  void proved(uint64_t since) { enter(Stage::kPeerProof, since); }
  /// It is open, or has failed.
  void end() { stage_ = Stage::kNone; }

  // --- what is due
  OpeningAct look(const OpeningSight& seen) const {
    if (!seen.exists) {
      if (!seen.makes) return OpeningAct::kDropped;
      return seen.driver_late ? OpeningAct::kDriverLate : OpeningAct::kWait;
    }
    switch (stage_) {
      case Stage::kConnecting:
        if (!seen.worker_busy) return OpeningAct::kConnect;
        return seen.driver_late ? OpeningAct::kDriverLate : OpeningAct::kWait;
      case Stage::kProving:
        if (seen.probe == ProbeSight::kAnswered) return OpeningAct::kProved;
        return seen.probe == ProbeSight::kFailed ? OpeningAct::kUnproved : OpeningAct::kWait;
      default:
        return OpeningAct::kWait;
    }
  }

 private:
  enum class Stage : uint8_t { kNone, kMaking, kPeerHalf, kConnecting, kProving, kPeerProof };
  void enter(Stage stage, uint64_t alive) {
    stage_ = stage;
    since_ = alive;
  }

  uint32_t next_ = 1;
  uint32_t path_ = 0;
  Purpose purpose_ = Purpose::kFirst;
  int local_ = 0, remote_ = 0;
  Stage stage_ = Stage::kNone;
  uint64_t since_ = 0;  // alive; when it began to wait for what it waits for
};

/// How many of a sender's paths count as standing by (R2CC_STANDBYS). `opens`: one is being opened for that.
/// Without an active path none does: one of them is about to carry.
constexpr int count_of_standbys(bool active, int stand_by, bool opens) {
  return active ? stand_by + opens : 0;
}

/// The receiver's half of a path, which it makes and proves as it is told to.
enum class ProofAct : uint8_t {
  kWait,
  kOpen,  ///< its transfer came back: the path stands by, and the sender may use it
  kDrop,  ///< … or did not
};
enum class OpenAct : uint8_t { kIgnore, kNoSuchNic, kRefuse, kMake };
struct OpenSight {
  bool known = false;    ///< that path is there, or being made
  bool nics = true;      ///< there are such NICs at both ends
  bool usable = true;    ///< this end's is
  size_t under_way = 0;  ///< halves that are being made
};
class PeerOpening {
 public:
  static constexpr size_t kMostHalves = 8;  ///< being made at once
  /// What the sender asks for.
  static constexpr OpenAct on_open(const OpenSight& seen) {
    if (seen.known) return OpenAct::kIgnore;
    if (!seen.nics) return OpenAct::kNoSuchNic;
    return seen.usable && seen.under_way < kMostHalves ? OpenAct::kMake : OpenAct::kRefuse;
  }
  /// Without resilience nothing is proved.
  static constexpr PathState of_new(bool resilient) {
    return resilient ? PathState::kProving : PathState::kStandby;
  }
  static constexpr bool proves(PathState state) { return state == PathState::kProving; }
  static constexpr ProofAct look(ProbeSight probe) {
    if (probe == ProbeSight::kAnswered) return ProofAct::kOpen;
    return probe == ProbeSight::kFailed ? ProofAct::kDrop : ProofAct::kWait;
  }
};

/// When another path is opened after one failed. All times are `now`.
class OpeningRetries {
 public:
  static constexpr uint64_t kRailNs = 50'000'000;      ///< a rail that failed while another was sought
  static constexpr uint64_t kStandbyNs = 500'000'000;  ///< doubled with each failure, up to 32 times

  // --- a path that stands by
  /// What a sender that opens no path opens next, if anything. `setting_up`: the channel has none yet.
  template <class Host>
  std::optional<Purpose> due(bool setting_up, const Host& host, uint64_t now) const {
    if (setting_up) return Purpose::kFirst;
    return standby_due(host, now) ? std::optional(Purpose::kStandby) : std::nullopt;
  }
  /// Asked twice in each turn, mostly in vain; so what takes longer is asked last. A Host answers:
  ///   phase(), resilient()
  ///   room()        the process may have one more path that stands by (R2CC_STANDBYS)
  ///   has_lanes()   paths carry beside the active one: they take over, too
  ///   stands_by()   a path could take over at once
  template <class Host>
  bool standby_due(const Host& host, uint64_t now) const {
    return now >= next_standby_ && host.phase() == Phase::kRunning && host.resilient() && host.room() &&
           !host.has_lanes() && !host.stands_by();
  }
  /// One may be wanted, or possible, that was not before.
  void standby_hint(uint64_t now) { next_standby_ = std::min(next_standby_, now); }
  void standby_wanted(uint64_t now) { next_standby_ = now; }
  /// There is no rail for it.
  void no_standby(uint64_t now) { next_standby_ = now + kStandbyNs; }
  void standby_failed(uint64_t now) {
    next_standby_ = now + (standby_failures_ == 0 ? 0 : kStandbyNs << std::min(standby_failures_, 5u));
    ++standby_failures_;
  }
  void standby_opened() { standby_failures_ = 0; }

  // --- lanes, by rail
  /// When it may be tried again.
  uint64_t lane_failed(int local, int remote, uint64_t now) {
    uint8_t& failures = lane_failures_[size_t(local)][size_t(remote)];
    const uint64_t not_before = now + (kRailNs << std::min<int>(failures, 7));
    if (failures < 255) ++failures;
    return not_before;
  }
  void lane_opened(int local, int remote) { lane_failures_[size_t(local)][size_t(remote)] = 0; }

 private:
  uint64_t next_standby_ = 0;
  uint32_t standby_failures_ = 0;                                                    // running
  std::array<std::array<uint8_t, wire::kMaxNics>, wire::kMaxNics> lane_failures_{};  // running
};

}  // namespace r2ccl
