// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/result.h"

namespace r2ccl {

std::string_view name(ErrorCode code) {
  // clang-format off
  switch (code) {
    case ErrorCode::kOk: return "ok";
    case ErrorCode::kInvalidConfig: return "invalid configuration";
    case ErrorCode::kNoDevice: return "no usable NIC";
    case ErrorCode::kVerbs: return "verbs call failed";
    case ErrorCode::kMemoryLock: return "memory cannot be registered";
    case ErrorCode::kOutOfResources: return "device out of resources";
    case ErrorCode::kSystem: return "system call failed";
    case ErrorCode::kBadHandle: return "bad connect handle";
    case ErrorCode::kVersionMismatch: return "wire version mismatch";
    case ErrorCode::kModeMismatch: return "mode mismatch";
    case ErrorCode::kAuthentication: return "authentication failed";
    case ErrorCode::kNicFailed: return "NIC failed";
    case ErrorCode::kAllPathsDown: return "all paths down";
    case ErrorCode::kPeerGone: return "peer process gone";
    case ErrorCode::kUnfenceable: return "NIC cannot be fenced";
    case ErrorCode::kDeviceGone: return "device gone";
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kAfterFork: return "called after fork";
  }
  // clang-format on
  return "unknown";
}

std::string_view advice(ErrorCode code) {
  // clang-format off
  switch (code) {
    case ErrorCode::kOk: return "";
    case ErrorCode::kInvalidConfig: return "Correct the named variable; the accepted values are in the message, and `r2bench doctor` prints all settings.";
    case ErrorCode::kNoDevice: return "Check `ibv_devinfo`: at least one port must be PORT_ACTIVE; NCCL_IB_HCA may hide it.";
    case ErrorCode::kVerbs: return "Look at the device's kernel log (dmesg); the call and errno are in the message.";
    case ErrorCode::kMemoryLock: return "Raise the locked-memory limit (`ulimit -l unlimited`, or LimitMEMLOCK=infinity for the service).";
    case ErrorCode::kOutOfResources: return "Use fewer channels (NCCL_MAX_NCHANNELS) or a device with more QPs; `ibv_devinfo -v` prints the limits.";
    case ErrorCode::kSystem: return "The errno in the message names the cause.";
    case ErrorCode::kBadHandle: return "Load the same plugin on every rank (NCCL_NET_PLUGIN, NCCL_NET).";
    case ErrorCode::kVersionMismatch: return "Install the same version of the plugin on every node.";
    case ErrorCode::kModeMismatch: return "Set the same R2CC_MODE on every rank.";
    case ErrorCode::kAuthentication: return "Something other than a rank of this job talks to its control port; check the network.";
    case ErrorCode::kNicFailed: return "Set R2CC_MODE=1 to keep the job running on the other NICs.";
    case ErrorCode::kAllPathsDown: return "Repair one of the named NICs; R2CC_FAIL_BOUND_MS says how long to wait for it.";
    case ErrorCode::kPeerGone: return "Look at the other rank's log: its process ended first.";
    case ErrorCode::kUnfenceable: return "Reset the named NIC: its driver does not answer, or cannot stop it.";
    case ErrorCode::kDeviceGone: return "Look at the kernel log (dmesg): the device was removed, or did not recover from a reset; restart the job to use it again.";
    case ErrorCode::kInvalidArgument: return "This is a bug in the caller.";
    case ErrorCode::kAfterFork: return "Use the plugin only in the process that initialised it.";
  }
  // clang-format on
  return "";
}

}  // namespace r2ccl
