// SPDX-License-Identifier: Apache-2.0
// Which control messages an end still takes in, by what it knows and what it has come to. Pure; written once,
// for Channel and for the exploration in tests/model.
#pragma once

#include <cstdint>

#include "r2ccl/protocol/wire.h"

namespace r2ccl {

/// What a control message is about.
enum class Word : uint8_t {
  kFailure,   ///< the peer has failed, or refuses the connection
  kGreeting,  ///< what two ends tell each other of themselves first
  kClose,     ///< the peer is closed
  kAnswer,    ///< what the receiver has, as it was asked
  kOther,     ///< paths, messages, NICs
};

constexpr Word word_of(wire::Type type) {
  switch (type) {
    case wire::Type::kRefuse:
    case wire::Type::kFail:
      return Word::kFailure;
    case wire::Type::kHello:
    case wire::Type::kWelcome:
      return Word::kGreeting;
    case wire::Type::kClose:
      return Word::kClose;
    case wire::Type::kReceived:
      return Word::kAnswer;
    default:
      return Word::kOther;
  }
}

/// What an end does with it.
enum class Hearing : uint8_t {
  kFail,        ///< it fails, too, for the reason that it is told
  kGreet,       ///< it takes it as part of the greeting, and nothing else before
  kPeerClosed,  ///< it takes in what the peer says last
  kNoteClosed,  ///< it notes that the peer is closed: the peer's messages concern it no more
  kTakeIn,      ///< it takes it in
  kIgnore,      ///< it ignores it
};

struct HearingSight {
  bool greeted = true;  ///< both ends know each other
  bool closed = false;  ///< this end has said that it is closed
  bool failed = false;  ///< this end has
};

constexpr Hearing hearing(Word word, const HearingSight& seen) {
  const bool over = seen.closed || seen.failed;
  if (word == Word::kFailure) return Hearing::kFail;
  if (!seen.greeted) return Hearing::kGreet;
  if (word == Word::kClose) return over ? Hearing::kNoteClosed : Hearing::kPeerClosed;
  return over ? Hearing::kIgnore : Hearing::kTakeIn;
}

/// Whatever this end has come to: the peer's process answers.
constexpr bool answers(Word word, const HearingSight& seen) { return word == Word::kAnswer && seen.greeted; }

}  // namespace r2ccl
