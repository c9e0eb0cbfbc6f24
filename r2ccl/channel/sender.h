// The sending end: waits for clear-to-send lines in its ring, writes messages, and keeps each buffer until
// the receiver has confirmed it, so that it can be written again over another path; of small messages a copy.
#pragma once

#include "r2ccl/balance/splitter.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/ledger.h"

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
  void on_data_sent(Path& path, uint32_t detail) override;
  void resume(const wire::Fenced& ledger, bool moved) override;
  Path* standing_still() const override;
  void spread(std::span<const balance::LaneShare> shares) override;
  bool rests(const Path& path) const override;
  bool lacking() const override;
  wire::Close closing_words() const override { return {}; }
  void peer_closed(const wire::Close& close) override { ledger_.confirmed(close.received); }
  bool waits_for_nic_alone() const override { return ledger_.confirmed() == ledger_.next(); }
  void nothing_is_sent() override { ledger_.released(ledger_.confirmed()); }
  /// What the protocol asks of the messages sent: sent.h.
  struct Messages;
  struct MessagesToSend;
  bool write(Path& path, const Request& request, uint32_t segment);
  bool divide(Request& request, Path& active, const Registration* registration);
  Path* replay_on(const Request& request) const;
  void count_work(Path& path, uint32_t bytes);
  void read_confirmation();
  void poke(Path& path, bool patient) override;
  void reminded(uint64_t received) override;
  bool unconfirmed() override;
  void learn(const wire::Fenced& fenced) override;
  bool misses() const override { return reminder_.lacked(); }
  void drain_all();
  bool waits_for_word(const Request& request) const { return core_.strict_ack() && !request.copied; }
  /// Can it still be sent?
  bool holds(const Request& request, uint64_t message) const {
    return request.message == message && (request.in_use || request.copied);
  }
  Path* told_received(uint64_t up_to, uint16_t segments) override;

  static constexpr uint32_t kEmptyPostsPerLook = 64;
  SendLedger ledger_;
  uint64_t lines_read_ = 0;  // what lines before this one say of messages received has been taken in
  Reminder reminder_;
  balance::Splitter splitter_;
  static constexpr double kSameShare = 0.01;
  std::vector<balance::LaneShare> parts_;  // of the splitter's lanes
  std::vector<Path*> spread_over_;  // the splitter's lanes: a path each; empty: all goes over the active path
  uint32_t empty_posts_ = 0;
};

}  // namespace r2ccl
