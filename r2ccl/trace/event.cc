// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/trace/event.h"

#include <array>
#include <utility>

namespace r2ccl::trace {
namespace {

constexpr std::array<std::pair<EventType, std::string_view>, 29> kNames{{
    {EventType::kIteration, "iteration"},
    {EventType::kIterationDone, "iteration_done"},
    {EventType::kMessageReceived, "message_received"},
    {EventType::kSegmentDelivered, "segment_delivered"},
    {EventType::kChannelUp, "channel_up"},
    {EventType::kFenceStarted, "fence_started"},
    {EventType::kFenceDone, "fence_done"},
    {EventType::kMigrationStarted, "migration_started"},
    {EventType::kReplayed, "replayed"},
    {EventType::kMigrationDone, "migration_done"},
    {EventType::kNicDown, "nic_down"},
    {EventType::kNicUp, "nic_up"},
    {EventType::kFailback, "failback"},
    {EventType::kDuplicateDropped, "duplicate_dropped"},
    {EventType::kPeerSlow, "peer_slow"},
    {EventType::kControlRestored, "control_restored"},
    {EventType::kLaneUp, "lane_up"},
    {EventType::kLaneRests, "lane_rests"},
    {EventType::kNicGray, "nic_gray"},
    {EventType::kNicWell, "nic_well"},
    {EventType::kChannelFailed, "channel_failed"},
    {EventType::kPathOpened, "path_opened"},
    {EventType::kProbeFailed, "probe_failed"},
    {EventType::kPathOpening, "path_opening"},
    {EventType::kChannelClosing, "channel_closing"},
    {EventType::kPlanAgreed, "plan_agreed"},
    {EventType::kPathAccepted, "path_accepted"},
    {EventType::kAlgorithmChosen, "algorithm_chosen"},
    {EventType::kPlansEnded, "plans_ended"},
}};

}  // namespace

std::string_view name(EventType type) {
  for (const auto& [value, text] : kNames)
    if (value == type) return text;
  return "none";
}

std::string_view name(DetectedBy by) {
  // clang-format off
  switch (by) {
    case DetectedBy::kNone: return "none";
    case DetectedBy::kCompletion: return "completion";
    case DetectedBy::kEvent: return "event";
    case DetectedBy::kWatchdog: return "watchdog";
    case DetectedBy::kPeer: return "peer";
  }
  // clang-format on
  return "none";
}

std::string_view name(PlannedAlgorithm algorithm) {
  // clang-format off
  switch (algorithm) {
    case PlannedAlgorithm::kNccl: return "nccl";
    case PlannedAlgorithm::kRing: return "ring";
    case PlannedAlgorithm::kUnequalRing: return "unequal_ring";
    case PlannedAlgorithm::kDoubleTree: return "double_tree";
    case PlannedAlgorithm::kR2cclAllReduce: return "r2ccl_allreduce";
    case PlannedAlgorithm::kFourStage: return "four_stage";
    case PlannedAlgorithm::kMix: return "mix";
    case PlannedAlgorithm::kDirect: return "direct";
  }
  // clang-format on
  return "none";
}

EventType event_from_name(std::string_view wanted) {
  for (const auto& [value, text] : kNames)
    if (text == wanted) return value;
  return EventType::kNone;
}

}  // namespace r2ccl::trace
