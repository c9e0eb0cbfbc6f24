// SPDX-License-Identifier: Apache-2.0
// What has become of a device that was removed, or that has had an internal error, as the program that has it
// open sees it. Plain data; its owner is the Context, and everything here is guarded by the Context's mutex.
// It outlives the fault: a device that was removed does not come back to those who had it open.
#pragma once

#include <cstdint>

#include "faultinject/control/board.h"

namespace faultinject {

// What the async descriptor shows once the queue pairs are dead. Linux up to 5.6 closes its event queue
// (POLLERR, EIO); later ones queue a last DEVICE_FATAL and leave it open. kNone: the kernel does not tear the
// device down, so completion channels go on, too.
enum class DescriptorEnd : uint32_t { kPollErr, kFatal, kNone };

struct RemovalTimes {
  uint64_t notice_ns = 0;  // from DEVICE_FATAL to the first EIO
  uint64_t window_ns = 0;  // from the first EIO to the death of the queue pairs
  uint64_t settle_ns = 0;  // from their death to the descriptor's end
  DescriptorEnd end = DescriptorEnd::kPollErr;
  bool late_completions = false;  // shown until the queue pairs are dead
};

struct DeviceRemoval {
  enum class Stage : uint32_t {
    kPresent,
    kAnnounced,  // DEVICE_FATAL was delivered, and everything goes on
    kFailing,    // no command is carried out; the queue pairs live on, and what they receive lands
    kDead,       // the queue pairs are dead, and completion channels have ended
    kEnded,      // and the async descriptor has come to its end
  };
  Stage stage = Stage::kPresent;
  FaultRound by;
  bool internal_error = false;  // its driver lets modify_qp to ERR or RESET, and destroys, succeed
  bool events = true;
  RemovalTimes times;
  uint64_t fails_ns = 0, dies_ns = 0, ends_ns = 0;
  uint32_t refused = 0;  // records of commands

  bool is_failing() const { return stage >= Stage::kFailing; }
  bool is_dead() const { return stage >= Stage::kDead; }
  // By the kernel. Its driver answers for nothing any more then.
  bool is_torn_down() const { return is_dead() && times.end != DescriptorEnd::kNone; }
  bool driver_answers() const { return internal_error && !is_torn_down(); }
  // Completions that occur from now on are withheld; earlier ones are still shown.
  bool hides_completions() const { return is_dead() || (is_failing() && !times.late_completions); }
  uint64_t next_ns() const {
    switch (stage) {
      case Stage::kAnnounced:
        return fails_ns;
      case Stage::kFailing:
        return dies_ns;
      case Stage::kDead:
        return is_torn_down() ? ends_ns : UINT64_MAX;
      default:
        return UINT64_MAX;
    }
  }
};

// An object whose destruction was refused, or succeeded without being carried out. It is destroyed for real
// when the program closes the device, in this order of kinds.
struct Undestroyed {
  enum class Kind : uint32_t { kQp, kSrq, kCq, kChannel, kMr, kPd };
  Kind kind;
  void* object;
};

}  // namespace faultinject
