// SPDX-License-Identifier: Apache-2.0
// The sending end: waits for clear-to-send lines in its ring, writes messages, and keeps each buffer until
// the receiver has confirmed it, so that it can be written again over another path; of small messages a copy.
#pragma once

#include "r2ccl/balance/splitter.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/sending.h"

namespace r2ccl {

class Sender final : public Channel {
 public:
  /// Connects to where `handle` says; should that fail at first, it is tried again by step().
  static Result<std::shared_ptr<Sender>> start(Core& core, int nic, const wire::Handle& handle);

  Result<Request*> post(void* data, size_t bytes, Registration* registration) override;
  Result<TestOutcome> test(Request& request) override;

 private:
  Sender(Core& core, int nic, control::Stream stream, const wire::Handle& handle);
  void handle_greeting(wire::Type type, const control::Message& message, const Tick& tick) override;
  void on_data_sent(Path& path, uint32_t detail, HasTurn) override;
  void carries_on(bool moved, HasTurn) override;
  Path* standing_still(HasTurn) const override;
  void spread(std::span<const balance::LaneShare> shares, HasTurn) override;
  bool rests(const Path& path, HasTurn) const override;
  bool lacking(HasTurn) const override;
  wire::Close closing_words() const override { return {}; }
  void peer_closed(const wire::Close& close, HasTurn) override { sending_.ledger.confirmed(close.received); }
  bool waits_for_nic_alone(HasTurn) const override {
    return sending_.ledger.confirmed() == sending_.ledger.next();
  }
  void nothing_is_sent(HasTurn) override { sending_.ledger.released(sending_.ledger.confirmed()); }
  /// What the protocol asks of the sender (sending.h), and of the messages sent (sent.h).
  class Host;
  struct Messages;
  struct MessagesToSend;
  bool write(Path& path, const Request& request, uint32_t segment, HasTurn);
  bool divide(Request& request, Path& active, const Registration* registration, HasTurn);
  Path* replay_on(const Request& request, HasTurn) const;
  void count_work(Path& path, uint32_t bytes, HasTurn);
  void read_confirmation(HasTurn);
  void waited(bool patient, HasTurn) override;
  void hear_remind(uint64_t received, HasTurn) override;
  void hear_received(const wire::Received& received, const Tick& tick) override;
  bool hear_fenced(const wire::Fenced& fenced, const Tick& tick) override;
  bool unconfirmed(HasTurn) override;
  bool misses(HasTurn) const override { return sending_.misses(); }
  bool awaited() const override { return sending_.awaited(); }
  void look_if_awaited() override;
  bool misses_a_path(bool wanted) override;
  [[gnu::always_inline]] inline void drain_all(HasTurn turn);
  bool waits_for_word(const Request& request) const { return core_.strict_ack() && !request.copied; }
  /// Can it still be sent?
  bool holds(const Request& request, uint64_t message) const {
    return request.message == message && (request.in_use || request.copied);
  }

  static constexpr uint32_t kEmptyPostsPerLook = 64;
  SendingEndOf<wire::kRingLines> sending_;
  uint64_t lines_read_ = 0;  // what lines before this one say of messages received has been taken in
  balance::Splitter splitter_;
  static constexpr double kSameShare = 0.01;
  std::vector<balance::LaneShare> parts_;  // of the splitter's lanes
  std::vector<Path*> spread_over_;  // the splitter's lanes: a path each; empty: all goes over the active path
  uint32_t empty_posts_ = 0;
  wire::CtsLine line_{};  // the one that post() has read: on the stack it would cost aligning that
};

}  // namespace r2ccl
