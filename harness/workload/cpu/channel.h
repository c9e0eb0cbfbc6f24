// SPDX-License-Identifier: Apache-2.0
// One NCCL channel of a rank: a connection to a rank some places on in the ring, one from the rank as many
// places back, their slots, and the steps of the operation that is open. Advanced by the proxy's progress
// thread only; never blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/workload/cpu/memory.h"
#include "harness/workload/cpu/message_check.h"
#include "harness/workload/cpu/net_plugin.h"
#include "harness/workload/cpu/operation.h"
#include "harness/workload/cpu/pattern.h"
#include "harness/workload/cpu/plugin_log.h"
#include "harness/workload/cpu/polled.h"
#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/cpu/steps.h"

namespace r2bench {

/// What receivers saw that no element tells.
struct StreamFaults {
  uint64_t duplicated = 0;   ///< messages that came again (0 where nothing is verified)
  uint64_t lost = 0;         ///< messages that were skipped (likewise)
  uint64_t size_errors = 0;  ///< receives of another size than was sent
  uint64_t recognised = 0;   ///< messages that were recognised (likewise)

  StreamFaults& operator+=(const StreamFaults& more) {
    duplicated += more.duplicated;
    lost += more.lost;
    size_errors += more.size_errors;
    recognised += more.recognised;
    return *this;
  }
};

/// An error that the plugin returned: what was called, on which NIC, towards whom. Made in the thread that made
/// the call, so that the plugin's warning in that call is known: other threads of it may have warned since.
class ChannelError : public std::runtime_error {
 public:
  explicit ChannelError(const std::string& text) : std::runtime_error(text), plugin_words_(warning_just_now()) {}
  const std::string& plugin_words() const { return plugin_words_; }  ///< may be empty

 private:
  std::string plugin_words_;
};

/// The user's buffers of an operation.
struct UserBuffers {
  char* input = nullptr;
  char* output = nullptr;
};

class Channel final : public Polled {
 public:
  Channel(NetPlugin& plugin, const RankConfig& config, int index, int shift, int device,
          const std::string& device_name);

  // Set-up and tear-down; on the service thread. Each throws ChannelError.
  void listen(void* handle);
  /// One round of connect and accept. true: both are there.
  bool advance_connections(void* peer_handle);
  /// Registers the slots, and the user's buffers when the job sends straight from them.
  void register_memory(const UserBuffers& user, size_t bytes);
  void close() noexcept;

  // One operation; on the progress thread.
  /// Of operation `number`, warm-ups included.
  void start(const std::vector<Lane>& lanes, const UserBuffers& user, uint64_t number);
  bool progress() override;
  bool finished() const override;

  int device() const { return device_; }
  StreamFaults stream_faults() const { return {check_.duplicated(), check_.lost(), size_errors_, check_.recognised()}; }
  uint64_t messages_received() const { return received_; }

 private:
  static constexpr int kMaxSlots = 8;
  struct Slot {
    void* request = nullptr;
    size_t bytes = 0;
    char* data = nullptr;
  };
  struct LaneState {
    const Lane* steps = nullptr;
    size_t next = 0;
  };

  [[noreturn]] void fail(const char* call, NetPlugin::Status status, bool sending) const;
  bool post_receives();
  bool test_receives();
  bool run_steps();
  bool post_sends();
  bool test_sends();
  size_t element() const { return element_size(config_.dtype); }
  bool direct() const { return config_.registered && sends_from_user_buffers(config_.op); }
  /// Straight from where it came: an inner rank of a broadcast.
  bool sends_what_it_received() const { return config_.op == Operation::kBroadcast && config_.rank() != 0; }
  char* slot_memory(const Memory& buffer, uint64_t message) const {
    return buffer.data() + message % slots_ * slot_bytes_;
  }

  NetPlugin& plugin_;
  const RankConfig& config_;
  int index_;
  int shift_;
  int device_;
  std::string device_name_;
  size_t slot_bytes_;
  size_t slots_;
  void *listener_ = nullptr, *send_comm_ = nullptr, *recv_comm_ = nullptr;
  Memory send_buffer_, recv_buffer_;
  void *send_registration_ = nullptr, *recv_registration_ = nullptr;
  void *input_registration_ = nullptr, *output_registration_ = nullptr;

  // The open operation. Messages are numbered since the connection was made.
  std::vector<LaneState> lanes_;
  std::vector<Step> receive_steps_;  ///< of this operation, in order: expected sizes
  size_t send_steps_ = 0;
  UserBuffers user_;
  uint64_t operation_first_receive_ = 0, operation_first_send_ = 0;
  uint64_t posted_ = 0, received_ = 0, consumed_ = 0;  ///< of receives
  uint64_t filled_ = 0, sent_ = 0, completed_ = 0;     ///< of sends
  Slot receives_[kMaxSlots], sends_[kMaxSlots];
  uint64_t size_errors_ = 0;
  const bool records_messages_;
  MessageCheck check_;
};

}  // namespace r2bench
