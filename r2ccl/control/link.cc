// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/control/link.h"

#include <cstring>
#include <utility>

namespace r2ccl::control {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

// Counter 0 of the keys that rekey() sets is never used by a message: the first one of each end was said
// before. So it is free for the two frames with which a connection begins anew.

Link::Link(Stream stream, const Token& token, bool connector)
    : stream_(std::move(stream)),
      token_(token),
      connector_(connector),
      out_key_(direction_key(token, Token{}, connector)),
      in_key_(direction_key(token, Token{}, !connector)),
      encoder_(out_key_),
      decoder_(in_key_) {}

void Link::rekey(const Token& nonce) {
  out_key_ = direction_key(token_, nonce, connector_);
  in_key_ = direction_key(token_, nonce, !connector_);
  encoder_.rekey(out_key_);
  decoder_.rekey(in_key_);
  resumable_ = true;
}

void Link::say(uint16_t type, std::span<const std::byte> payload) {
  if (!resumable_ && !open() && !unseen_.empty()) return;
  std::vector<std::byte> frame;
  frame.reserve(kHeaderBytes + payload.size());
  unseen_.emplace_back();  // from here on memory is not needed: a frame that is counted is kept
  encoder_.append(type, payload, frame);
  unseen_.back() = std::move(frame);
  if (!up()) return;
  stream_.outgoing.insert(stream_.outgoing.end(), unseen_.back().begin(), unseen_.back().end());
  stream_.flush();
}

Result<bool> Link::next(Message& out) {
  if (asking_ && !hear_answer()) {
    if (asking_) return false;
    return Error{ErrorCode::kAuthentication, "a resumed control connection did not begin as it must"};
  }
  if (!connector_ && heard_ == 0) return hear_first(out);
  for (;;) {
    auto got = decoder_.next(stream_.incoming, out);
    if (!got || !*got) return got;
    ++heard_;
    answered_ = resumable_;
    uint64_t seen;
    const bool is_ours = out.type == kSeen && out.payload.size() == sizeof seen;
    if (is_ours) {
      std::memcpy(&seen, out.payload.data(), sizeof seen);
      forget_seen(seen);
    }
    if (heard_ - told_ >= kTellEvery) {
      told_ = heard_;
      say(kSeen, bytes_of(heard_));
    }
    if (!is_ours) return true;
  }
}

// Numbered by its connection; from then on frames are counted.
Result<bool> Link::hear_first(Message& out) {
  const uint64_t attempt = Decoder::peek_counter(stream_.incoming);
  auto got = Decoder(in_key_, attempt).next(stream_.incoming, out);
  if (!got || !*got) return got;
  attempt_ = attempt;
  heard_ = 1;
  decoder_ = Decoder(in_key_, heard_);
  return true;
}

void Link::forget_seen(uint64_t count) {
  for (; first_unseen_ < count && !unseen_.empty(); ++first_unseen_) unseen_.pop_front();
}

void Link::repeat_unseen() {
  for (const auto& frame : unseen_)
    stream_.outgoing.insert(stream_.outgoing.end(), frame.begin(), frame.end());
  stream_.flush();
}

void Link::begin_again(Stream stream) {
  if (!connector_ || resumable_ || unseen_.empty()) return;
  stream_ = std::move(stream);
  ++generation_;
  const auto& first = unseen_.front();
  Encoder(out_key_, ++attempt_)
      .append(Decoder::peek_type(first), std::span(first).subspan(kHeaderBytes), stream_.outgoing);
  stream_.flush();
}

void Link::ask(Stream stream, uint64_t process, uint32_t channel) {
  stream_ = std::move(stream);
  ++generation_;
  asking_ = true;
  const Resume resume{process, channel, 0, ++attempt_, heard_};
  Encoder(out_key_).append(kResume, bytes_of(resume), stream_.outgoing);
  stream_.flush();
}

// True: messages follow. False: not yet (still asking), or never.
bool Link::hear_answer() {
  Message message;
  auto got = Decoder(in_key_).next(stream_.incoming, message);
  if (got && !*got) return false;
  asking_ = false;
  if (!got || message.type != kResumed) return false;
  const auto answer = message.as<Resumed>();
  if (!answer || answer.value().attempt != attempt_) return false;
  forget_seen(answer.value().seen);
  repeat_unseen();
  return true;
}

std::optional<Link::Resume> Link::asked(std::span<const std::byte> incoming) {
  if (incoming.size() < kResumeBytes || Decoder::peek_type(incoming) != kResume) return std::nullopt;
  Resume resume;
  std::memcpy(&resume, incoming.data() + kHeaderBytes, sizeof resume);
  return resume;
}

std::optional<Link::First> Link::first(std::span<const std::byte> incoming, const Token& token) {
  std::vector<std::byte> copy(incoming.begin(), incoming.end());
  First first{Decoder::peek_counter(incoming), {}};
  auto got = Decoder(direction_key(token, Token{}, true), first.attempt).next(copy, first.message);
  if (!got || !*got) return std::nullopt;
  return first;
}

bool Link::accept(Stream stream) {
  if (!resumable_ || connector_) return false;
  if (!(asked(stream.incoming) ? take_resume(stream) : take_first_again(stream))) return false;
  stream_ = std::move(stream);
  ++generation_;
  repeat_unseen();
  return true;
}

bool Link::take_resume(Stream& stream) {
  Message message;
  auto got = Decoder(in_key_).next(stream.incoming, message);
  if (!got || !*got || message.type != kResume) return false;
  const auto resume = message.as<Resume>();
  if (!resume || resume.value().attempt <= attempt_) return false;
  attempt_ = resume.value().attempt;
  answered_ = true;
  forget_seen(resume.value().seen);
  Encoder(out_key_).append(kResumed, bytes_of(Resumed{attempt_, heard_}), stream.outgoing);
  return true;
}

// What is unseen then begins with the answer.
bool Link::take_first_again(Stream& stream) {
  const auto again = first(stream.incoming, token_);
  if (answered_ || !again || again->attempt <= attempt_) return false;
  attempt_ = again->attempt;
  stream.incoming.erase(stream.incoming.begin(),
                        stream.incoming.begin() + long(kHeaderBytes + again->message.payload.size()));
  return true;
}

}  // namespace r2ccl::control
