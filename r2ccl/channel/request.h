// SPDX-License-Identifier: Apache-2.0
// What NCCL's progress thread holds of a channel.
#pragma once

#include <array>
#include <cstdint>

#include "r2ccl/channel/test_outcome.h"
#include "r2ccl/protocol/tick.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

class Channel;
class ProgressThread;

/// What the progress thread may do with the channel.
enum class Status : uint8_t {
  kConnecting,  ///< nothing yet
  kReady,       ///< data flows over the active path
  kMigrating,   ///< nothing may be posted; requests stay open
  kFailed,      ///< error() says why
  kClosed,
};

/// One message, from isend or irecv to the test that says done. What one that travels over one path needs
/// comes first.
class alignas(64) Request {
 public:
  Channel* channel = nullptr;
  ProgressThread* thread = nullptr;  ///< which has posted it, until it has ended
  uint64_t message = 0;
  // Sender: what is sent, and where to. Receiver: where it goes.
  uint8_t* data = nullptr;
  uint64_t remote_address = 0;
  uint32_t bytes = 0;
  uint32_t segments = 1;
  bool receive = false;
  /// Receiver: the memory is a GPU's, and its NICs are flushed; local_keys has the keys for that.
  bool flushed = false;
  /// Sender: `data` is in the channel's own memory, and stays there when the request is long given back.
  bool copied = false;
  /// Sender: as in wire::Immediate.
  bool ack_soon = false;
  /// Sender: which part travels on which path, as segment 0, 1 …
  struct Part {
    uint32_t path = 0;
    uint32_t offset = 0;
    uint32_t bytes = 0;
  };
  std::array<Part, wire::kMaxNics> parts{};
  // Copied: NCCL may take a registration away while a migration still knows the message.
  std::array<uint32_t, wire::kMaxNics> local_keys{};
  std::array<uint32_t, wire::kMaxNics> remote_keys{};
};

}  // namespace r2ccl
