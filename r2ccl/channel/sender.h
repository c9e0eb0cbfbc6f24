// SPDX-License-Identifier: Apache-2.0
// The sending end: waits for CTS entries in its ring, writes messages, and keeps each buffer until
// the receiver has confirmed it, so that it can be written again over another path; of small messages a copy.
#pragma once

#include "r2ccl/balance/splitter.h"
#include "r2ccl/channel/sender_paths.h"
#include "r2ccl/protocol/copy_ring.h"
#include "r2ccl/protocol/sending.h"

namespace r2ccl {

class Sender final : public SenderPaths {
 public:
  /// Connects to where `handle` says; should that fail at first, it is tried again by step().
  static Result<std::shared_ptr<Sender>> start(ProcessContext& context, int nic, const wire::Handle& handle);

  Result<Request*> post(void* data, size_t bytes, Registration* registration, ProgressThread&) override;
  Result<TestOutcome> test(Request& request, ProgressThread&) override;

 private:
  Sender(ProcessContext& context, int nic, control::Stream stream, const wire::Handle& handle);
  void handle_greeting(wire::Type type, const control::Message& message, const Tick& tick) override;
  void on_data_sent(Path& path, uint32_t detail, Owned) override;
  void carries_on(bool moved, Owned) override;
  uint32_t standing_still(Owned) override;
  uint32_t longest_work(uint32_t path, Owned) const override;
  void spread(std::span<const balance::LaneShare> shares, Owned) override;
  const Path* path_of_tiny() const override;
  const Path* lane_for_tiny(int nic) const override;
  bool rests(const Path& path, Owned) const override;
  bool lacking(Owned) const override;
  wire::Close closing_message() const override { return {}; }
  void peer_closed(const wire::Close& close, Owned owned) override {
    ownership_.check(owned);
    sending_.peer_closed(close.received);
  }
  bool waits_for_nic_alone(Owned owned) const override {
    ownership_.check(owned);
    return sending_.waits_for_nic_alone();
  }
  void nothing_is_sent(Owned owned) override {
    ownership_.check(owned);
    sending_.nothing_is_sent();
  }
  /// What the protocol asks of the sender (sending.h), and of the messages sent (sent.h).
  class Host;
  struct Messages;
  struct MessagesToSend;
  [[gnu::noinline]] void begin_to_meter(Path& path);
  bool write(Path& path, const Request& request, uint32_t segment, Owned);
  bool divide(Request& request, Path& active, const Registration* registration, Owned);
  bool lacks_a_key(const Request& request) const;
  void keep_copy(Request& request, uint32_t at);
  Path* replay_on(const Request& request, Owned) const;
  void count_work(Path& path, uint32_t bytes, Owned);
  void read_confirmation(Owned);
  void waited(bool patient, Owned) override;
  void on_ack_query(uint64_t received, Owned) override;
  void on_received(const wire::Received& received, const Tick& tick) override;
  bool peer_fenced(const wire::Fenced& fenced, const Tick& tick) override;
  bool has_to_settle(Owned) override;
  bool misses(Owned owned) const override {
    ownership_.check(owned);
    return sending_.misses();
  }
  bool awaited() const override { return sending_.awaited(); }
  void look_if_awaited() override;
  bool misses_a_path(bool wanted) override;
  [[gnu::always_inline]] inline void drain_all(bool active_too, Owned owned);
  bool waits_for_ack(const Request& request) const { return context_.strict_ack() && !request.copied; }
  /// Can it still be sent?
  bool holds(const Request& request, uint64_t message) const {
    return request.message == message && (in_use(request) || request.copied);
  }

  static constexpr uint32_t kEmptyPostsPerLook = 64;
  SendingEndOf<wire::kRingLines> sending_;
  uint64_t lines_read_ = 0;  // the ACKs of entries before this one have been read
  uint32_t empty_posts_ = 0;
  CopyRing<wire::kCopyRingBytes, wire::kRingLines> copies_;
  std::vector<Path*> spread_over_;  // the paths of the splitter's lanes; empty: all goes over the active path
  balance::Splitter splitter_;
  balance::Spread spread_;  // … the lanes
  wire::CtsLine line_{};  // the one that post() has read: on the stack it would cost aligning that
};

}  // namespace r2ccl
