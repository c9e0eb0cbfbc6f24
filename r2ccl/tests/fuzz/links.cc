// SPDX-License-Identifier: Apache-2.0
// Fuzz target: both ends of a conversation from the first message on, and between them somebody without a key
// who cuts connections at any byte, and offers the acceptor what connectors have asked before, whole, changed
// or in part. An acceptor goes on over a connection only if it begins with what the connector has really
// said, later than all that was accepted before; each end hears what the other has said, once and in order;
// and in the end an honest connection always brings the rest.
#include <sodium.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "cmake/fuzz/input.h"
#include "r2ccl/control/link.h"

namespace {

using namespace r2ccl;
using control::Link;
using control::Stream;

using Bytes = std::vector<std::byte>;

constexpr uint16_t kHello = 1, kWelcome = 2, kWord = 3;

control::Token token_of(uint8_t filling) {
  control::Token token;
  token.fill(filling);
  return token;
}

std::pair<Stream, Stream> connection() {
  int ends[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {Stream(control::Descriptor(ends[0])), Stream(control::Descriptor(ends[1]))};
}

std::span<const std::byte> bytes_of(const uint32_t& word) { return std::as_bytes(std::span(&word, 1)); }

/// One end, and the far end of its connection, which the stranger holds.
struct End {
  std::optional<Link> link;
  Stream far;
  uint32_t said = 0, heard = 0;

  void say() {
    if (!link->resumable()) return;
    link->say(kWord, bytes_of(said++));
  }
  /// False: the connection is of no use any more.
  bool hear(bool acceptor) {
    if (!link->open()) return true;
    const bool open = link->fill();
    control::Message message;
    for (;;) {
      auto got = link->next(message);
      if (!got) return false;
      if (!*got) return open;
      if (!link->resumable()) {
        FUZZ_CHECK(message.type == (acceptor ? kHello : kWelcome) && message.payload.empty());
        if (acceptor) link->say(kWelcome, {});
        link->rekey(token_of(7));
        continue;
      }
      FUZZ_CHECK(message.type == kWord);
      FUZZ_CHECK(message.as<uint32_t>().value() == heard);
      ++heard;
    }
  }
};

class Conversation {
 public:
  Conversation() {
    auto [own, far] = connection();
    connector_.link.emplace(std::move(own), kToken, true);
    connector_.far = std::move(far);
    connector_.link->say(kHello, {});
    ask();
    auto [acceptors, other] = connection();
    acceptors.incoming = asked_.front();
    acceptor_.link.emplace(std::move(acceptors), kToken, false);
    acceptor_.far = std::move(other);
    acceptor_.hear(true);
  }

  /// The connector begins a connection.
  void connect() {
    connector_.link->close();
    auto [own, far] = connection();
    connector_.far = std::move(far);
    if (connector_.link->resumable())
      connector_.link->ask(std::move(own), 1, 2);
    else
      connector_.link->begin_again(std::move(own));
    ask();
  }

  /// The acceptor is offered what was asked once; with `change`, other than it was.
  void offer(size_t which, uint8_t change, size_t where) {
    const Bytes& asked = asked_[which % asked_.size()];
    auto [acceptors, far] = connection();
    acceptors.incoming = asked;
    bool genuine = true;
    if (change % 4 == 1 && change >= 4) {
      acceptors.incoming[where % asked.size()] ^= std::byte(change & 0xfc);
      genuine = false;
    } else if (change % 4 == 2) {
      acceptors.incoming.resize(where % asked.size());
      genuine = false;
    } else if (change % 4 == 3) {
      acceptors.incoming.resize(asked.size() + where % 100);  // and something follows
    }
    const bool wanted = genuine && which % asked_.size() > accepted_;
    const uint32_t before = acceptor_.link->generation();
    const bool taken = acceptor_.link->accept(std::move(acceptors));
    FUZZ_CHECK(taken == wanted);
    FUZZ_CHECK(acceptor_.link->generation() == before + taken);
    if (!taken) return;
    accepted_ = which % asked_.size();
    acceptor_.far = std::move(far);
  }

  /// `count` bytes of what one end has said reach the other, if they share a connection.
  void pass(bool to_acceptor, size_t count) {
    End &from = to_acceptor ? connector_ : acceptor_, &to = to_acceptor ? acceptor_ : connector_;
    if (!from.far.open()) return;
    from.far.fill();
    count = std::min(count, from.far.incoming.size());
    if (accepted_ + 1 == asked_.size() && to.far.open()) {
      to.far.outgoing.insert(to.far.outgoing.end(), from.far.incoming.begin(),
                             from.far.incoming.begin() + std::ptrdiff_t(count));
      to.far.flush();
    }
    from.far.incoming.erase(from.far.incoming.begin(), from.far.incoming.begin() + std::ptrdiff_t(count));
  }
  /// Both ends take what has come. Who finds a connection to be of no use closes it.
  void hear() {
    if (!acceptor_.hear(true)) acceptor_.link->close();
    if (!connector_.hear(false)) connector_.link->close();
  }
  void say(bool acceptor) { (acceptor ? acceptor_ : connector_).say(); }
  void cut(bool acceptor) { (acceptor ? acceptor_ : connector_).far.close(); }

  /// The stranger lets them be.
  void everything_arrives() {
    for (int round = 0; round < 2; ++round) {  // the first one may only bring the answer to the hello
      connect();
      offer(asked_.size() - 1, 0, 0);
      for (int i = 0; i < 3; ++i) {
        pass(true, SIZE_MAX);
        hear();
        pass(false, SIZE_MAX);
        hear();
      }
    }
    FUZZ_CHECK(connector_.link->up() && acceptor_.link->up());
    FUZZ_CHECK(connector_.heard == acceptor_.said && acceptor_.heard == connector_.said);
  }

 private:
  /// What a connection of the connector began with.
  void ask() {
    connector_.far.fill();
    asked_.push_back(std::exchange(connector_.far.incoming, {}));
  }

  static inline const control::Token kToken = token_of(0x42);
  End connector_, acceptor_;
  std::vector<Bytes> asked_;
  size_t accepted_ = 0;  // in asked_
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const int ready = sodium_init();
  FUZZ_CHECK(ready >= 0);
  fuzz::Input input(data, bytes);
  Conversation conversation;
  for (int steps = 0; !input.empty() && steps < 100; ++steps) {
    const uint8_t choice = input.byte();
    const bool acceptor = choice & 0x80;
    switch (choice % 8) {
      case 0:
        conversation.connect();
        break;
      case 1:
      case 2: {
        const size_t which = input.byte();
        const uint8_t change = input.byte();
        conversation.offer(which, change, input.number(2));
        break;
      }
      case 3:
        conversation.pass(acceptor, input.byte());
        break;
      case 4:
        conversation.pass(acceptor, SIZE_MAX);
        break;
      case 5:
        conversation.hear();
        break;
      case 6:
        conversation.say(acceptor);
        break;
      default:
        conversation.cut(acceptor);
    }
  }
  conversation.everything_arrives();
  return 0;
}
