// SPDX-License-Identifier: Apache-2.0
// What explores the opening of paths: the sender's Opening and the receiver's PeerOpening, both ends of the
// control connection between them, and drivers, NICs and probes that do what they like. It carries out what
// the two decide as channel/openings.cc and channel/receiver_paths.cc do.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/opening.h"
#include "r2ccl/tests/model/object.h"

namespace r2ccl::model {

/// A decision that is made wrongly, to show that a property fails then.
enum class WrongOpening : uint8_t {
  kNone,
  kAnswerInAnyStage,
  kAnswerOfAnother,
  kProvedOfAnother,
  kEndsAgain,
  kGoesOn,
  kNumberAgain,
  kNoWordOfPurpose,
  kWaitsForDriver,
  kWaitsForTransfer,
  kWaitsForDropped,
  kFailedCounts,
  kDoesNotWaitForCall,
  kPeerOwesFromTheStart,
  kTwoHalves,
  kPeerFailedCounts,
  kPeerWaitsForTransfer,
};

class TestedOpening : public Opening {
 public:
  static inline WrongOpening wrong = WrongOpening::kNone;

  bool is(uint32_t path) const {
    if (wrong == WrongOpening::kProvedOfAnother) return under_way();
    if (wrong == WrongOpening::kEndsAgain) return path == last_;
    return Opening::is(path);
  }
  bool peer_answers(uint32_t path) const {
    if (wrong == WrongOpening::kAnswerInAnyStage) return is(path);
    if (wrong == WrongOpening::kAnswerOfAnother) return Opening::peer_answers(Opening::path());
    return Opening::peer_answers(path);
  }
  bool peer_proves(uint32_t path) const {
    if (wrong == WrongOpening::kProvedOfAnother) return under_way();
    if (wrong == WrongOpening::kEndsAgain) return path == last_;
    return Opening::peer_proves(path);
  }
  uint32_t begin(Purpose purpose, int local, int remote, uint64_t alive) {
    if (wrong == WrongOpening::kNumberAgain) static_cast<Opening&>(*this) = Opening();
    return last_ = Opening::begin(purpose, local, remote, alive);
  }
  void end() {
    if (wrong != WrongOpening::kGoesOn) Opening::end();
  }
  Purpose purpose() const {
    return wrong == WrongOpening::kNoWordOfPurpose && !under_way() ? Purpose::kFirst : Opening::purpose();
  }
  void proved(uint64_t since) {
    Opening::proved(wrong == WrongOpening::kPeerOwesFromTheStart ? since - 1 : since);
  }
  OpeningAct look(OpeningSight seen) const {
    if (wrong == WrongOpening::kFailedCounts && seen.probe == ProbeSight::kFailed)
      seen.probe = ProbeSight::kAnswered;
    if (wrong == WrongOpening::kDoesNotWaitForCall) seen.worker_busy = false;
    const OpeningAct act = Opening::look(seen);
    const bool ignored = (wrong == WrongOpening::kWaitsForDriver && act == OpeningAct::kDriverLate) ||
                         (wrong == WrongOpening::kWaitsForTransfer && act == OpeningAct::kUnproved) ||
                         (wrong == WrongOpening::kWaitsForDropped && act == OpeningAct::kDropped);
    return ignored ? OpeningAct::kWait : act;
  }

 private:
  uint32_t last_ = 0;
};

struct TestedPeerOpening : PeerOpening {
  static OpenAct on_open(OpenSight seen) {
    if (TestedOpening::wrong == WrongOpening::kTwoHalves) seen.known = false;
    return PeerOpening::on_open(seen);
  }
  static ProofAct look(ProbeSight probe) {
    if (TestedOpening::wrong == WrongOpening::kPeerFailedCounts && probe == ProbeSight::kFailed)
      probe = ProbeSight::kAnswered;
    const ProofAct act = PeerOpening::look(probe);
    return TestedOpening::wrong == WrongOpening::kPeerWaitsForTransfer && act == ProofAct::kDrop
               ? ProofAct::kWait
               : act;
  }
};

/// How far the exploration goes; faults: at most so many of each in one run.
struct OpeningBounds {
  int openings = 2;  ///< one after the other, whether the one before failed or not
  int ticks = 0;     ///< time that passes
  int breaks = 0;    ///< a path over which no transfer comes back any more, or one transfer that does not
  int lates = 0;     ///< a driver call, at either end, that does not return, or after its bound
  int errors = 0;    ///< a driver call, at either end, that fails
  int losses = 0;    ///< a NIC that is lost, at either end, or a path that is dropped for another reason
  int repeats = 0;   ///< a control message that comes once more, at any later time
};

inline constexpr size_t kMostOpenings = 3;
inline constexpr int kMostWords = 10;

struct OpeningWorld {
  enum class Say : uint8_t { kNothing, kOpen, kOpened, kCannot, kProve, kProved, kDrop };
  struct Word {
    Say say = Say::kNothing;
    uint8_t path = 0;
  };
  struct Line {
    uint8_t count = 0;
    std::array<Word, kMostWords> item{};
  };
  /// The call that its worker is at.
  enum class Call : uint8_t { kNone, kMake, kConnect };
  struct Half {
    Call call = Call::kNone;
    bool late = false;
    bool unwanted = false;  ///< what is being made
    bool exists = false;
    bool error = false;      ///< it could not be connected
    bool connected = false;  ///< … or it was
    PathState state = PathState::kOpening;
    ProbeSight probe = ProbeSight::kNone;
    bool proved = false;  ///< a transfer of this end has come back
    uint8_t since = 0;    ///< alive; when this end's transfer was begun
  };
  struct Path {
    Half half[2];  ///< [0] the sender's, [1] the receiver's
    bool broken = false;
    uint8_t ends = 0;  ///< how often it was said to be open, or to have failed
  };
  enum class Event : uint8_t {
    kStart,
    kBegin,
    kMade,
    kNotMade,
    kConnected,
    kNotConnected,
    kLate,
    kLook,
    kAnswered,
    kFailed,
    kBreak,
    kLost,
    kHear,
    kHearAgain,
    kTick,
  };

  TestedOpening opening;
  std::array<Path, kMostOpenings> path;  ///< of number i + 1
  uint8_t begun = 0;
  uint8_t alive = 1;
  uint8_t asked_at = 0;  ///< the receiver's answer is due since then; 0: none is
  Line to[2];
  Word again;
  uint8_t again_to = 0;
  uint8_t breaks = 0, lates = 0, errors = 0, losses = 0, repeats = 0;

  const char* violation = nullptr;
  Event event = Event::kStart;
  uint8_t end = 0, number = 0;
  Word word;
};

class OpeningModel {
 public:
  using State = OpeningWorld;
  static constexpr size_t kMaxBytes = 512;
  explicit OpeningModel(const OpeningBounds& bounds) : bounds_(bounds) {}
  State initial() const { return {}; }
  size_t expand(const State& state, std::vector<State>& next) const;
  size_t bytes(const State& state, uint8_t* out) const;
  const char* at_end(const State& state) const;
  std::string words(const State& state) const;

 private:
  class Run;
  OpeningBounds bounds_;
};

}  // namespace r2ccl::model
