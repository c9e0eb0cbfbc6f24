// What has become of a device that was removed, or that has had an internal error, as the program that has it
// open sees it. Plain data; its owner is the Context, and everything here is guarded by the Context's mutex.
// It outlives the fault: a device that was removed does not come back to those who had it open.
#pragma once

#include <cstdint>

namespace faultinject {

struct DeviceRemoval {
  enum class Stage : uint32_t {
    kPresent,
    kAnnounced,  // DEVICE_FATAL was delivered, and everything goes on
    kFailing,    // no command is carried out; the queue pairs live on, and what they receive lands
    kDead,       // the queue pairs are dead
    kEnded,      // and the async descriptor has come to its end
  };
  Stage stage = Stage::kPresent;
  uint32_t fault_id = 0;
  bool internal_error = false;    // modify_qp to ERR or RESET, and destroys, succeed and do nothing
  bool late_completions = false;  // shown until the queue pairs are dead
  bool events = true;
  uint32_t end = 0;  // DescriptorEnd
  uint64_t fails_ns = 0, dies_ns = 0, ends_ns = 0;
  uint32_t refused = 0;  // records of commands

  bool is_failing() const { return stage >= Stage::kFailing; }
  bool is_dead() const { return stage >= Stage::kDead; }
  // No completion of now is shown; those of before are.
  bool hides_completions() const { return is_dead() || (is_failing() && !late_completions); }
  uint64_t next_ns() const {
    switch (stage) {
      case Stage::kAnnounced:
        return fails_ns;
      case Stage::kFailing:
        return dies_ns;
      case Stage::kDead:
        return internal_error ? UINT64_MAX : ends_ns;
      default:
        return UINT64_MAX;
    }
  }
};

// An object whose destruction was refused, or succeeded without being carried out. It is destroyed for real
// when the program closes the device, in this order of kinds.
struct Undestroyed {
  enum class Kind : uint32_t { kQp, kSrq, kCq, kMr, kPd };
  Kind kind;
  void* object;
};

}  // namespace faultinject
