// SPDX-License-Identifier: Apache-2.0
// Steps and bounds in words, so that a counterexample can be read.
#include <string>

#include "r2ccl/tests/model/world.h"

namespace r2ccl::model {
namespace {

std::string text(const Control& m) {
  const std::string of = "path " + std::to_string(m.path), epoch = "epoch " + std::to_string(m.epoch);
  switch (m.say) {
    case Say::kMigrate:
      return "'I leave " + of + "' (" + epoch + ")";
    case Say::kFenced: {
      std::string has;
      for (const uint8_t segments : m.segments) has += ' ' + std::to_string(segments);
      return "'" + of + (m.cannot ? " cannot be fenced here" : " is fenced") +
             "; everything before message " + std::to_string(m.number) + " is here, and segments" + has +
             " of those behind' (" + epoch + ")";
    }
    case Say::kUse:
      return "'I use " + of + "' (" + epoch + ")";
    case Say::kDrop:
      return "'I give " + of + " up'";
    case Say::kOpen:
      return "'open " + of + "'";
    case Say::kOpened:
      return "'" + of + " is open'";
    case Say::kAckQuery:
      return "'what have you received?'";
    case Say::kReceived:
      return "'I have received everything before message " + std::to_string(m.number) + "'";
    case Say::kFail:
      return "'I have failed'";
    case Say::kLane:
      return "'I use " + of + ", too'";
    case Say::kRest:
      return "'" + of + " rests'";
    case Say::kAsk:
      return "'I have received everything before message " + std::to_string(m.number) + ", and wait: ask me'";
    case Say::kNic:
      return "'my NIC of " + of + " is lost'";
    case Say::kClose:
      return "'I am closed, and have received everything before message " + std::to_string(m.number) + "'";
    case Say::kNothing:
      break;
  }
  return "nothing";
}

// Which segment goes over which path, where that is a choice.
std::string spread(const Step& s, int first, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    if (s.on[size_t(i)] != 0)
      out += (out.empty() ? "" : ", ") + std::to_string(first + i) + " over path " +
             std::to_string(s.on[size_t(i)]);
  return out;
}

}  // namespace

std::string Model::words(const World& world) const {
  const Step& s = world.last;
  const std::string who = s.end == kSender ? "sender" : "receiver", path = "path " + std::to_string(s.path),
                    number = std::to_string(s.number);
  switch (s.event) {
    case Event::kNone:
      return "start";
    case Event::kPost:
      if (bounds_.lanes == 0) return "sender: writes message " + number + " over " + path;
      return "sender: writes message " + number + ": segments " + spread(s, 0, bounds_.segments) +
             (s.refused ? "; FAULT: the broken path takes nothing any more" : "");
    case Event::kReceive:
      return "receiver: irecv of message " + number + ", its line goes out over " + path;
    case Event::kPoll:
      return who + ": polls " + path;
    case Event::kConfirm:
      return "receiver: 'received up to " + number + "' goes out over " + path;
    case Event::kDeliver:
      return "NIC: the next segment on " + path + " arrives";
    case Event::kDeliverMute:
      return "FAULT: the next segment on " + path + " arrives, but its immediate does not";
    case Event::kDeliverStale:
      return "NIC: a late packet of an earlier life of " + path + " arrives";
    case Event::kAcknowledge:
      return "NIC: the sender's NIC reports a segment on " + path;
    case Event::kAcknowledgeMute:
      return "FAULT: the sender's NIC loses the completion of a segment on " + path;
    case Event::kLand:
      return "NIC: a line or a word arrives at the sender over " + path;
    case Event::kVanish:
      return "FAULT: a line or a word vanishes on " + path;
    case Event::kBreak:
      return "FAULT: " + path + " breaks: nothing is acknowledged any more";
    case Event::kFreeze:
      return "FAULT: the " + who + "'s NIC freezes on " + path + ": it reports nothing any more";
    case Event::kNotice:
      return who + ": notices that " + path + " is broken, and leaves it";
    case Event::kNoReason:
      return "FAULT: " + who + ": leaves " + path + " without a reason";
    case Event::kPlan:
      return "sender: leaves " + path + " for path " + number + ", as planned";
    case Event::kFence:
      return who + ": fences " + path +
             (world.failed[s.end]                                            ? ", which nobody can: fails"
              : world.end(s.end).own_fence() == MigrationEnd::Fence::kCannot ? ", and cannot"
                                                                             : "");
    case Event::kChoose:
      if (s.path == 0)
        return "sender: no probe is answered; it gives up what is broken, and opens another path if it can";
      if (bounds_.lanes == 0) return "sender: uses a path that stands by, and replays what is missing";
      if (const std::string again = spread(s, 0, bounds_.messages * bounds_.segments); !again.empty())
        return "sender: uses " + path + ", and replays segments (of all) " + again;
      return "sender: uses " + path + "; there is nothing to replay";
    case Event::kNoPath:
      return "sender: there is no path: fails";
    case Event::kOpen:
      return "sender: opens a path";
    case Event::kGiveUp:
      return who + ": gives " + path + " up, which stood by";
    case Event::kGiveUpForNothing:
      return "FAULT: " + who + ": gives " + path + " up, which stood by and works";
    case Event::kRetire:
      return who + ": the queue pair of " + path + " is destroyed";
    case Event::kHear:
      return who + ": hears " + text(s.control) + (s.number != 0 ? " (FAULT: it will come once more)" : "");
    case Event::kHearAgain:
      return who + ": hears once more " + text(s.control);
    case Event::kAckQuery:
      return "sender: has waited for long, and asks";
    case Event::kRequestRetransmit:
      return "receiver: has waited for long, and repeats its lines and its word over " + path;
    case Event::kStuckQueuePair:
      return "sender: no work on " + path + " is reported as complete: leaves it";
    case Event::kMarkFailed:
      return who + ": hears from its NIC that " + path + " is broken, and will leave it next";
    case Event::kMarkFailedForNothing:
      return "FAULT: " + who + ": will leave " + path + " next without a reason";
    case Event::kLeaveFailed:
      return who + ": leaves " + path + ", as it meant to";
    case Event::kStartLane:
      return "sender: lets " + path + " carry, too";
    case Event::kRemove:
      return "FAULT: the device of the " + who + "'s half of " + path +
             " is being removed: it refuses commands, and goes on for now";
    case Event::kStopped:
      return "kernel: the " + who + "'s half of " + path + ", whose device was removed, is stopped";
    case Event::kNeither:
      return "sender: the kernel does not stop the receiver's device in time: fails";
    case Event::kRestLane:
      return "sender: lets " + path + " rest";
    case Event::kClose:
      return who + ": its program closes it";
    case Event::kSettleAsk:
      return "sender: is to close, and asks";
    case Event::kSettled:
      return "sender: is to close, and has asked for long enough: closes";
    case Event::kLeaveForNic:
      return "sender: only its NIC's report is missing: leaves all paths";
    case Event::kNothingSent:
      return "sender: its queue pairs are destroyed: nothing is sent any more";
    case Event::kLacks:
      return who + ": the other end is closed, and something is lacking: fails";
  }
  return "?";
}

std::string describe(const Bounds& b) {
  std::string out = std::to_string(b.messages) + " messages of " + std::to_string(b.segments) + " segment" +
                    (b.segments > 1 ? "s" : "") + (b.copies ? " from copies, " : ", ") +
                    std::to_string(b.paths) + " paths" + (b.standby ? ", one standing by" : "") +
                    (b.lanes > 0 ? ", lanes: " + std::to_string(b.lanes) : "");
  const auto add = [&](int count, const char* what) {
    if (count > 0) out += ", " + std::to_string(count) + " " + what;
  };
  add(b.rests, "rests");
  add(b.breaks, "breaks");
  add(b.early, "hasty");
  add(b.planned, "planned");
  add(b.lost_immediates, "lost immediates");
  add(b.lost_completions, "lost completions");
  add(b.lost_writes, "lost writes");
  add(b.duplicates, "duplicates");
  add(b.gone, "devices removed");
  if (b.closes) out += ", both ends closed";
  add(b.frozen, b.destroy_fences ? "frozen NICs (destroyed)" : "frozen NICs");
  return out;
}

const char* name(Rule rule) {
  static constexpr const char* kNames[] = {"none",
                                           "receiver_fence",
                                           "sender_fence",
                                           "receiver_sentinel",
                                           "sender_sentinel",
                                           "given_up_fence",
                                           "new_queue_pairs",
                                           "strict_ack",
                                           "nic_report",
                                           "receiver_is_right",
                                           "migrate_epoch",
                                           "fenced_epoch",
                                           "use_epoch",
                                           "order",
                                           "repeat_cts",
                                           "repeat_ack",
                                           "silent_loss",
                                           "stuck_queue_pair",
                                           "watchdog",
                                           "live_segments",
                                           "nic_report_on_lanes",
                                           "sender_first",
                                           "fenced_path",
                                           "rest_reported",
                                           "rest_confirmed",
                                           "segments_of_the_path",
                                           "lane_given_up",
                                           "drop_receivers_path",
                                           "rest_once",
                                           "copy_kept",
                                           "request_ack_query",
                                           "lacking_counts",
                                           "watch_after_request",
                                           "one_fence",
                                           "refused_not_fenced",
                                           "kernel_fence",
                                           "settle",
                                           "last_ack"};
  return kNames[size_t(rule)];
}

}  // namespace r2ccl::model
