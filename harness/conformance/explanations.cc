// SPDX-License-Identifier: Apache-2.0
// Why a fabric differs, for each deviation that is known. One that is not acceptable stays in the table as
// such.
#include "harness/conformance/table.h"

namespace r2bench::conformance {
namespace {

constexpr const char* kOneLocalError =
    "soft RoCE looks a key up when it copies, and tells a key that does not fit as LOC_QP_OP_ERR: another "
    "word for a local mistake in the request; it ends the queue pair in the same way, and no program may "
    "repeat it";
constexpr const char* kOneReceiveError =
    "soft RoCE takes a receive that cannot hold the message for a malformed one: LOC_QP_OP_ERR at the "
    "receiver, REM_OP_ERR at the sender; the same end in another word, and only a faulty program gets "
    "there";
constexpr const char* kLinkOfSoftRoce =
    "soft RoCE hands packets to the kernel's network stack, which refuses them at once on an interface "
    "without a link, and takes that for a local error. A NIC keeps on trying until its retries are used "
    "up, and that is what the injector gives; the real fault beyond the cable, peer_port_down, gives it "
    "too. A program must take either for the end of the queue pair";

}  // namespace

const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> all = {
      {"vhca", "transfer.send_with_invalidate", "outcome", true,
       "there are no memory windows and no keys that a peer may take away; the device does not announce the "
       "operation"},
      {"vhca", "limits.memory_regions", "memory that is not mapped", true,
       "memory is not pinned, so a registration looks at no page; what uses the region fails with "
       "LOC_PROT_ERR or REM_ACCESS_ERR"},
      {"vhca injected", "faults.port_down", "completions", true, kLinkOfSoftRoce},
      {"rxe injected", "faults.port_down", "completions", true, kLinkOfSoftRoce},
      {"rxe", "states.flush_by_modify", "a receive posted in ERR", true,
       "the provider's receive queue is memory shared with the kernel and rings no bell; the next move to "
       "ERR flushes it"},
      {"rxe", "errors.bad_rkey", "event at the responder", true,
       "soft RoCE raises no event for a request that it refuses; the requester's completion tells it, and "
       "the responder's queue pair is in ERR all the same"},
      {"rxe", "errors.bad_lkey", "status", true, kOneLocalError},
      {"rxe", "limits.foreign_protection_domain", "a key of another protection domain", true, kOneLocalError},
      {"rxe", "errors.too_long_for_the_receive", "status", true, kOneReceiveError},
      {"rxe", "errors.too_long_for_the_receive", "receiver's status", true, kOneReceiveError},
      {"rxe", "errors.receive_with_bad_lkey", "receiver's status", true, kOneReceiveError},
      {"rxe", "events.communication_established", "a message in RTR", true,
       "soft RoCE does not know the event; a program that moves to RTS when it comes needs another sign "
       "there"},
      {"rxe", "others.shared_receive_queue", "event of a queue pair in ERR", true,
       "soft RoCE does not know the event; whoever takes a queue pair off a shared queue has to wait for "
       "its completions, or destroy it"},
  };
  return all;
}

}  // namespace r2bench::conformance
