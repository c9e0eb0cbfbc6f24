// SPDX-License-Identifier: Apache-2.0
// Why a fabric differs, for each deviation that is known. One that is not acceptable stays in the table as
// such.
#include "harness/conformance/table.h"

namespace r2bench::conformance {
namespace {

constexpr const char* kOneLocalError =
    "soft RoCE checks a key only when it copies, and reports a wrong key as LOC_QP_OP_ERR, which also means "
    "a "
    "local error in the request. The queue pair ends in the same way, and no program may repeat the request";
constexpr const char* kOneReceiveError =
    "soft RoCE treats a receive that is too small for the message as malformed: LOC_QP_OP_ERR at the "
    "receiver, "
    "REM_OP_ERR at the sender. Both queue pairs end in the same way, and only a faulty program causes it";
constexpr const char* kLinkOfSoftRoce =
    "soft RoCE passes packets to the kernel's network stack, which refuses them at once on an interface "
    "without a link; soft RoCE reports that as a local error. A NIC retries until its retries are "
    "exhausted. The injector does the same, and so does a real fault at the other end (peer_port_down). A "
    "program must treat both as the end of the queue pair";

}  // namespace

const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> all = {
      {"vhca", "transfer.send_with_invalidate", "outcome", true,
       "there are no memory windows and no keys that a peer can invalidate; the device does not report the "
       "operation as supported"},
      {"vhca", "limits.memory_regions", "memory that is not mapped", true,
       "memory is not pinned, so a registration does not check the pages; work requests that use the region "
       "fail with LOC_PROT_ERR or REM_ACCESS_ERR"},
      {"vhca injected", "faults.port_down", "completions", true, kLinkOfSoftRoce},
      {"rxe injected", "faults.port_down", "completions", true, kLinkOfSoftRoce},
      {"rxe", "states.flush_by_modify", "a receive posted in ERR", true,
       "the provider writes a receive to memory that it shares with the kernel, without notifying the "
       "kernel; "
       "the next move to ERR flushes it"},
      {"rxe", "errors.bad_rkey", "event at the responder", true,
       "soft RoCE raises no event for a request that it refuses; the requester gets an error completion, and "
       "the responder's queue pair is in ERR as expected"},
      {"rxe", "errors.bad_lkey", "status", true, kOneLocalError},
      {"rxe", "limits.foreign_protection_domain", "a key of another protection domain", true, kOneLocalError},
      {"rxe", "errors.too_long_for_the_receive", "status", true, kOneReceiveError},
      {"rxe", "errors.too_long_for_the_receive", "receiver's status", true, kOneReceiveError},
      {"rxe", "errors.receive_with_bad_lkey", "receiver's status", true, kOneReceiveError},
      {"rxe", "events.communication_established", "a message in RTR", true,
       "soft RoCE does not have this event; a program that waits for it before it moves to RTS needs another "
       "signal"},
      {"rxe", "others.shared_receive_queue", "event of a queue pair in ERR", true,
       "soft RoCE does not have this event; a program that removes a queue pair from a shared receive queue "
       "must wait for its completions, or destroy it"},
  };
  return all;
}

}  // namespace r2bench::conformance
