// SPDX-License-Identifier: Apache-2.0
// One transport over several NICs of the node: the messages of an end take turns on a channel of each NIC, each
// NIC as often as its share says (rails.h), in an order that both sides know, so the n-th message sent is still
// the n-th received. NCCL makes one CollNet
// group per GPU and has it use one NIC, however many the node has; a group takes its part of all of them.
#pragma once

#include <memory>
#include <vector>

#include "r2ccl/collective/host/channel_transport.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {

class StripedTransport final : public Transport {
 public:
  StripedTransport(std::unique_ptr<ChannelTransport> first, uint32_t rank) : rank_(rank) {
    stripes_.push_back(std::move(first));
  }

  /// Adds stripes, whose channels follow `plan` (nullptr: nobody need know). Both sides of all ends do so while nothing is under way: turns begin again with the first one.
  void widen(std::vector<std::unique_ptr<ChannelTransport>> stripes, GroupPlan* plan);
  size_t stripes() const { return stripes_.size(); }

  // As of ChannelTransport.
  uint32_t end(uint32_t peer, bool sends, uint32_t ordinal);
  Result<bool> progress();
  bool connected() const;
  Channel* any_channel() const { return stripes_.front()->any_channel(); }

  Result<void*> isend(uint32_t end, const void* data, size_t bytes, Registration* registration) override;
  Result<void*> irecv(uint32_t end, void* data, size_t bytes, Registration* registration) override;
  RailTurns::Message next(uint32_t end, size_t chunk, size_t posted, size_t most) override;
  void route(uint32_t end, const RailShares* rails) override {
    ends_[end].turns.set(rails ? *rails : even_shares(stripes_.size()));
  }
  Result<TestOutcome> test(void* message) override { return stripes_.front()->test(message); }
  Result<StagingMemory> staging(size_t bytes) override { return stripes_.front()->staging(bytes); }

 private:
  struct End {
    uint32_t peer, ordinal;
    bool sends;
    RailTurns turns{};
    size_t rail = 0;  // of the next message
  };
  /// Each end begins with another NIC, the same one on both sides.
  RailTurns turns_of(const End& end) const {
    return RailTurns(stripes_.size(), (end.sends ? rank_ : end.peer) + end.ordinal);
  }
  template <typename Post>
  Result<void*> post(uint32_t end, Post&& post);

  const uint32_t rank_;
  std::vector<std::unique_ptr<ChannelTransport>> stripes_;
  std::vector<End> ends_;  // all stripes number them alike
};

}  // namespace r2ccl::collective
