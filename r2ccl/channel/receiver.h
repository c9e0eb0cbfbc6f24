// SPDX-License-Identifier: Apache-2.0
// The receiving end: says where each message may be written, adds up what arrives, confirms it, and holds the
// ledger that decides what must be sent again.
#pragma once

#include "r2ccl/balance/arrivals.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/receiving.h"
#include "r2ccl/protocol/unflushed.h"

namespace r2ccl {

class Receiver final : public Channel {
 public:
  /// Answers a connection whose first bytes are already in `stream`.
  Receiver(ProcessContext& context, int nic, control::Stream stream, const control::Token& token);

  Result<Request*> post(void* data, size_t bytes, Registration* registration, ProgressThread&) override;
  Result<TestOutcome> test(Request& request, ProgressThread&) override;
  bool acknowledge() override;

 private:
  void handle_greeting(wire::Type type, const control::Message& message, const Tick& tick) override;
  void on_arrival(Path& path, const ibv_wc& completion, Owned) override;
  void after_drain(Path& path, Owned) override;
  void on_ack_query(uint64_t received, Owned) override;
  bool peer_fenced(const wire::Fenced& fenced, const Tick& tick) override;
  void look_at_flush(Path& path, Owned) override;
  void fill_ledger(wire::Fenced& fenced, Owned) override;
  void carries_on(bool moved, Owned) override;
  uint32_t standing_still(Owned) override;
  void waited(bool patient, Owned) override;
  bool lacking(Owned owned) const override {
    ownership_.check(owned);
    return receiving_.waits();
  }
  wire::Close closing_message() const override { return {receiving_.last_ack(AllRules())}; }
  void peer_closed(const wire::Close&, Owned) override {}
  // --- paths (receiver_paths.cc)
  void step_paths(const Tick& tick) override;
  void half_made(PathHalf& half, const Tick& tick) override;
  void on_open(const wire::Open& open) override;
  void on_prove(uint32_t id, const Tick& tick) override;
  void refuse_path(uint32_t id, const std::string& why);
  void step_proofs(const Tick& tick);

  void look_for(uint64_t message, Owned);
  void whole(uint64_t message);
  void give_back_receives(Path& path, uint32_t enough, Owned);
  void write_cts(Path& path, uint64_t message, Owned);
  void confirm(Path& path, bool signaled, Owned);
  /// What the protocol asks of the receiver: receiving.h.
  class Host;
  using End = ReceivingEndOf<wire::kRingLines>;
  End receiving_;
  Unflushed unflushed_;
  Signals signals_;  // of CTS entries and ACKs on the active path
  balance::Arrivals arrivals_;
  bool tests_ = false;  // a test looks for completions, and decides about the ACK itself
};

}  // namespace r2ccl
