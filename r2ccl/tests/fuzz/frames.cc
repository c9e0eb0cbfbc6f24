// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a control connection in the hands of somebody who can cut, change, repeat, reorder and invent
// bytes, but has no key. Whatever he does, what comes out is the beginning of what was said, once and in
// order; and a message that is refused changes nothing: the same end still takes the genuine one.
#include <sodium.h>

#include <cstring>
#include <vector>

#include "cmake/fuzz/input.h"
#include "r2ccl/control/frame.h"

namespace {

using namespace r2ccl;

using Bytes = std::vector<std::byte>;

control::Token token_of(uint8_t filling) {
  control::Token token;
  token.fill(filling);
  return token;
}

Bytes copied(std::span<const uint8_t> from) {
  Bytes out(from.size());
  if (!from.empty()) std::memcpy(out.data(), from.data(), from.size());
  return out;
}

struct Said {
  uint16_t type;
  Bytes payload;
  Bytes frame;
};

class Connection {
 public:
  void say(uint16_t type, Bytes payload) {
    Said said{type, std::move(payload), {}};
    speaker_.append(said.type, said.payload, said.frame);
    under_way_.insert(under_way_.end(), said.frame.begin(), said.frame.end());
    said_.push_back(std::move(said));
  }

  /// `count` bytes of what is under way arrive.
  void deliver(size_t count) {
    count = std::min(count, under_way_.size());
    arrived_.insert(arrived_.end(), under_way_.begin(), under_way_.begin() + std::ptrdiff_t(count));
    under_way_.erase(under_way_.begin(), under_way_.begin() + std::ptrdiff_t(count));
    take();
  }

  // --- what the stranger does; each may also leave things as they were ---
  void flip(size_t where, uint8_t mask) {
    if (under_way_.empty()) return;
    under_way_[where % under_way_.size()] ^= std::byte(mask);
  }
  void cut(size_t from, size_t count) {
    if (under_way_.empty()) return;
    from %= under_way_.size();
    count = std::min(count, under_way_.size() - from);
    under_way_.erase(under_way_.begin() + std::ptrdiff_t(from),
                     under_way_.begin() + std::ptrdiff_t(from + count));
  }
  void invent(size_t where, const Bytes& bytes) {
    under_way_.insert(under_way_.begin() + std::ptrdiff_t(where % (under_way_.size() + 1)), bytes.begin(),
                      bytes.end());
  }
  void repeat(size_t which) {
    if (!said_.empty()) invent(under_way_.size(), said_[which % said_.size()].frame);
  }
  void say_with_another_key(uint8_t key, uint16_t type, const Bytes& payload) {
    control::Encoder stranger(control::direction_key(token_of(key), control::Token{}, key % 2 != 0));
    Bytes frame;
    stranger.append(type, payload, frame);
    invent(under_way_.size(), frame);
  }
  /// What this very end would have said: he sends it back to it.
  void reflect(uint16_t type, const Bytes& payload) {
    control::Encoder own(control::direction_key(kToken, control::Token{}, false));
    Bytes frame;
    for (size_t i = 0; i <= heard_; ++i) {
      frame.clear();
      own.append(type, payload, frame);
    }
    invent(under_way_.size(), frame);
  }
  void swap_last_two() {
    if (said_.size() < 2) return;
    const Bytes &a = said_[said_.size() - 2].frame, &b = said_.back().frame;
    if (under_way_.size() < a.size() + b.size()) return;
    under_way_.resize(under_way_.size() - a.size() - b.size());
    invent(under_way_.size(), b);
    invent(under_way_.size(), a);
  }

  /// After everything: in a fresh stream the rest of what was said is taken, as if nothing else had come.
  void nothing_has_changed() {
    Bytes stream;
    for (size_t i = heard_; i < said_.size(); ++i)
      stream.insert(stream.end(), said_[i].frame.begin(), said_[i].frame.end());
    control::Message message;
    for (size_t i = heard_; i < said_.size(); ++i) {
      Result<bool> next = listener_.next(stream, message);
      FUZZ_CHECK(next.ok() && *next);
      FUZZ_CHECK(message.type == said_[i].type && message.payload == said_[i].payload);
    }
    Result<bool> next = listener_.next(stream, message);
    FUZZ_CHECK(next.ok() && !*next && stream.empty());
  }

 private:
  void take() {
    for (;;) {
      const Bytes before = arrived_;
      const uint16_t type = listener_.peek_type(arrived_);
      control::Message message{0xfeed, copied({})};
      Result<bool> next = listener_.next(arrived_, message);
      if (!next) {
        FUZZ_CHECK(next.error().code == ErrorCode::kAuthentication);
        FUZZ_CHECK(arrived_ == before && message.type == 0xfeed && message.payload.empty());
        // The stream is useless, and stays so however often it is looked at.
        Result<bool> again = listener_.next(arrived_, message);
        FUZZ_CHECK(!again.ok());
        arrived_.clear();
        return;
      }
      if (!*next) {
        FUZZ_CHECK(arrived_ == before && message.type == 0xfeed);
        FUZZ_CHECK(arrived_.size() <
                   sizeof(uint64_t) * 4 + control::kMaxPayload);  // bounded, or it would have been taken
        return;
      }
      FUZZ_CHECK(heard_ < said_.size());
      FUZZ_CHECK(message.type == type && message.type == said_[heard_].type);
      FUZZ_CHECK(message.payload == said_[heard_].payload);
      FUZZ_CHECK(arrived_.size() + said_[heard_].frame.size() == before.size());
      ++heard_;
    }
  }

  static inline const control::Token kToken = token_of(0x42);
  control::Encoder speaker_{control::direction_key(kToken, control::Token{}, true)};
  control::Decoder listener_{control::direction_key(kToken, control::Token{}, true)};
  std::vector<Said> said_;
  size_t heard_ = 0;
  Bytes under_way_, arrived_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const int ready = sodium_init();
  FUZZ_CHECK(ready >= 0);
  fuzz::Input input(data, bytes);
  Connection connection;
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    switch (input.byte() % 10) {
      case 0:
      case 1: {
        const uint16_t type = uint16_t(input.number(2));
        connection.say(type, copied(input.bytes(input.byte())));
        break;
      }
      case 2:
        connection.deliver(input.byte());
        break;
      case 3:
        connection.deliver(SIZE_MAX);
        break;
      case 4: {
        const size_t where = input.number(2);
        connection.flip(where, input.byte());
        break;
      }
      case 5: {
        const size_t from = input.number(2);
        connection.cut(from, input.byte());
        break;
      }
      case 6: {
        const size_t where = input.number(2);
        connection.invent(where, copied(input.bytes(input.byte())));
        break;
      }
      case 7:
        connection.repeat(input.byte());
        break;
      case 8: {
        const uint8_t key = input.byte();
        const uint16_t type = uint16_t(input.number(2));
        const Bytes payload = copied(input.bytes(input.byte()));
        if (key == 0xff)
          connection.say(type, Bytes(control::kMaxPayload));  // the longest that there is
        else if (key % 4 == 0)
          connection.reflect(type, payload);
        else if (key != 0x42)
          connection.say_with_another_key(key, type, payload);
        break;
      }
      default:
        connection.swap_last_two();
    }
  }
  connection.deliver(SIZE_MAX);
  connection.nothing_has_changed();
  return 0;
}
