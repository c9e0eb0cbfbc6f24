// SPDX-License-Identifier: Apache-2.0
// The executor's transport on channels of the core: an end is one direction of one channel to one peer. Channels
// are made when an end is first asked for, in the background of progress(); until then nothing can be sent on it.
// Both sides ask for the same ends, since they run the same schedules; a channel's first message says whose it
// is, so that channels of one listener may arrive in any order.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "r2ccl/collective/host/transport.h"

namespace r2ccl::collective {

using Handle = std::array<std::byte, kHandleBytes>;

class ChannelTransport final : public Transport {
 public:
  /// `listener` is the group's, open as long as this; `handles` those of all ranks.
  ChannelTransport(Net& net, int device, Listener* listener, std::vector<Handle> handles, uint32_t rank,
                   std::chrono::milliseconds connect_bound);
  /// Closes all channels, and gives the memory back: nothing of it is under way any more then.
  ~ChannelTransport() override;
  ChannelTransport(const ChannelTransport&) = delete;
  ChannelTransport& operator=(const ChannelTransport&) = delete;

  /// From now on what is sent is one NIC's part of this plan for several, which outlives it.
  void follow(GroupPlan& plan);
  /// The number of the `ordinal`-th end to or from `peer`.
  uint32_t end(uint32_t peer, bool sends, uint32_t ordinal);
  /// Connects what is not connected yet. An error, and final, when a peer cannot be reached within R2CC_CONNECT_MS.
  /// One that is there and has not come to the operation that needs the channel is waited for.
  Result<bool> progress();
  bool connected() const { return open_ == 0; }
  /// For registrations; nullptr before the first one is connected.
  Channel* any_channel() const { return any_; }

  Result<void*> isend(uint32_t end, const void* data, size_t bytes, Registration* registration) override;
  Result<void*> irecv(uint32_t end, void* data, size_t bytes, Registration* registration) override;
  Result<TestOutcome> test(void* message) override;
  Result<StagingMemory> staging(size_t bytes) override;

 private:
  /// The first message of each channel.
  struct Greeting {
    uint64_t magic;
    uint32_t rank, ordinal;
  };
  struct End {
    uint32_t peer = 0, ordinal = 0;
    bool sends = false, ready = false;
    Handle handle{};  // a sender's: net_.connect() keeps its progress there
    Channel* channel = nullptr;
    Greeting* greeting = nullptr;
    Registration* registration = nullptr;  // the greeting's
    Request* request = nullptr;
    std::chrono::steady_clock::time_point since;
  };
  /// A channel that was accepted and has not said whose it is.
  struct Guest {
    Channel* channel = nullptr;
    Greeting* greeting = nullptr;
    Registration* registration = nullptr;
    Request* request = nullptr;
  };

  Result<Greeting*> greeting_memory(Channel* channel);
  Result<bool> connect(End& end);
  Result<bool> accept();
  Result<bool> greet(Guest& guest);
  bool claim(End& end);
  Result<void> look_after(uint32_t peer);
  Error unreachable(const End& end) const;

  Net& net_;
  const int device_;
  Listener* const listener_;
  const std::vector<Handle> handles_;
  const uint32_t rank_;
  const std::chrono::milliseconds connect_bound_;
  std::vector<std::unique_ptr<End>> ends_;
  std::map<uint32_t, std::unique_ptr<End>> watches_;  // by peer: channels that only tell whether it is there
  std::map<std::tuple<uint32_t, bool, uint32_t>, uint32_t> numbers_;
  GroupPlan* plan_ = nullptr;
  size_t open_ = 0;  // ends that are not ready
  std::vector<Guest> guests_;
  std::map<std::pair<uint32_t, uint32_t>, Channel*> arrived_;  // by rank and ordinal, of ends not asked for
  Channel* any_ = nullptr;
  std::vector<StagingMemory> memory_;
  std::vector<std::pair<void*, size_t>> mapped_;
  StagingMemory greetings_;
  size_t greetings_used_ = 0;
};

}  // namespace r2ccl::collective
