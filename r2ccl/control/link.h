// SPDX-License-Identifier: Apache-2.0
// One end of an ordered, authenticated conversation over TCP connections that may break. What the other end
// has not seen is said again over the next connection, and nothing is taken twice: each message has a number,
// which is the counter of its frame. The end that connected first also connects again; it proves with the
// conversation's keys who it is, and an old proof is worth nothing.
//
// It begins with one message of the connecting end and the answer, which gives both ends the keys. Until the
// connecting end has the answer it can only say its first message again; that one alone is numbered by the
// connection that carries it, and the other end takes it as the same one, unless it is an old one or the
// connecting end is known to have the answer.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "r2ccl/control/frame.h"
#include "r2ccl/control/socket.h"

namespace r2ccl::control {

class Link {
 public:
  /// Message types of its own; the owner's are below them.
  enum : uint16_t { kSeen = 0xfff0, kResume = 0xfff1, kResumed = 0xfff2 };

  /// How the connecting end asks to go on.
  struct Resume {
    uint64_t process;  ///< whom it means: the acceptor's process
    uint32_t channel;  ///< … and channel, by the acceptor's number
    uint32_t reserved;
    uint64_t attempt;  ///< grows with each
    uint64_t seen;     ///< messages of the other end that it has taken
  };
  static constexpr size_t kResumeBytes = kHeaderBytes + sizeof(Resume);

  /// A connecting end's first message.
  struct First {
    uint64_t attempt;  ///< grows with each connection
    Message message;
  };

  Link(Stream stream, const Token& token, bool connector);

  /// Said now, or when there is a connection again. (Before rekey(): the first message only.)
  void say(uint16_t type, std::span<const std::byte> payload);
  /// The next message that has arrived. true: `out` is filled; false: there is none yet; kAuthentication: the
  /// connection is useless.
  Result<bool> next(Message& out);
  /// Both ends have agreed on a nonce: from here on the conversation can be resumed.
  void rekey(const Token& nonce);

  int fd() const { return stream_.fd(); }
  bool open() const { return stream_.open(); }
  /// Messages flow.
  bool up() const { return open() && !asking_; }
  bool asking() const { return open() && asking_; }
  bool resumable() const { return resumable_; }
  bool wants_to_write() const { return stream_.wants_to_write(); }
  /// The connection is broken because nothing got through for so long; what it was is known until the next.
  bool silent() const { return stream_.silent(); }
  /// Bytes that have arrived and make no message yet.
  size_t waiting() const { return stream_.incoming.size(); }
  /// Changes with each connection.
  uint32_t generation() const { return generation_; }
  /// False: the connection is broken.
  bool fill() { return stream_.fill(); }
  bool flush() { return stream_.flush(); }
  void close() { stream_.close(); }

  /// The connecting end, before rekey(): says its first message again over `stream`, which leads to the
  /// acceptor.
  void begin_again(Stream stream);
  /// The connecting end, after rekey(): `stream` leads to the acceptor; it is up() when the answer has come.
  void ask(Stream stream, uint64_t process, uint32_t channel);
  /// What is asked for by the first bytes of a connection; nothing of it is proved yet.
  static std::optional<Resume> asked(std::span<const std::byte> incoming);
  /// The first message that a connection begins with, said by somebody who has the token; nothing when it is
  /// not whole yet, or forged.
  static std::optional<First> first(std::span<const std::byte> incoming, const Token& token);
  /// The accepting end, after rekey(): goes on over `stream`, whose first bytes are a Resume, or the first
  /// message again (the owner knows that it is this connector's: others may have the token). False: it is
  /// forged, old, or not to be expected any more, and nothing has changed.
  bool accept(Stream stream);

 private:
  struct Resumed {
    uint64_t attempt;
    uint64_t seen;
  };
  static constexpr uint64_t kTellEvery = 16;
  Result<bool> hear_first(Message& out);
  bool take_first_again(Stream& stream);
  bool take_resume(Stream& stream);
  bool hear_answer();
  void forget_seen(uint64_t count);
  void repeat_unseen();

  Stream stream_;
  const Token token_;
  const bool connector_;
  Token out_key_, in_key_;
  Encoder encoder_;
  Decoder decoder_;
  std::deque<std::vector<std::byte>> unseen_;  // frames that the other end is not known to have
  uint64_t first_unseen_ = 0;
  uint64_t heard_ = 0;    // messages taken
  uint64_t told_ = 0;     // … as the other end was told last
  uint64_t attempt_ = 0;  // number of the connection
  uint32_t generation_ = 0;
  bool resumable_ = false;
  bool answered_ = false;  // acceptor: the connector has shown that it has the answer to its first message
  bool asking_ = false;
};

}  // namespace r2ccl::control
