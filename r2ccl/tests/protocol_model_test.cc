// SPDX-License-Identifier: Apache-2.0
// The migration protocol, explored exhaustively up to the bounds that each test names: in every order of
// events nothing is lost or delivered twice, nothing is written or read after its completion was reported,
// and every run ends with everything delivered. Without any one of its rules there is a run that shows why
// the rule is there. PROTOCOL.md explains; model/ holds the model.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "r2ccl/tests/model/explorer.h"
#include "r2ccl/tests/model/world.h"

namespace r2ccl::model {
namespace {

// More than any bound here needs; a model that grows beyond it must say so.
constexpr uint64_t kLimit = 20'000'000;

std::string text(const Outcome& outcome) {
  std::string out = outcome.violation.empty() ? "more states than the limit" : outcome.violation;
  for (size_t i = 0; i < outcome.trace.size(); ++i)
    out += "\n  " + std::to_string(i + 1) + ". " + outcome.trace[i];
  return out;
}

void expect_that_it_holds(const Bounds& bounds) {
  const Outcome outcome = explore(Model(bounds), kLimit);
  EXPECT_TRUE(outcome.complete && outcome.violation.empty()) << text(outcome);
  EXPECT_GT(outcome.ends, 0u);
  std::printf("holds: %s: %llu states, %llu steps, longest way %u, %.1f s\n", describe(bounds).c_str(),
              static_cast<unsigned long long>(outcome.states), static_cast<unsigned long long>(outcome.steps),
              outcome.longest, outcome.seconds);
}

class Protocol : public ::testing::TestWithParam<Bounds> {};
TEST_P(Protocol, every_run_ends_with_everything_delivered_once) { expect_that_it_holds(GetParam()); }

class DeepProtocol : public ::testing::TestWithParam<Bounds> {};
TEST_P(DeepProtocol, every_run_ends_with_everything_delivered_once) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "one thread and no pointers: what a sanitizer can find, it finds within the smaller bounds";
#endif
  expect_that_it_holds(GetParam());
}

struct Without {
  Rule rule;
  const char* why;  ///< part of the violation
  Bounds bounds;
};
class Rules : public ::testing::TestWithParam<Without> {};
TEST_P(Rules, without_it_there_is_a_counterexample) {
  const Without& p = GetParam();
  const Outcome outcome = explore(Model(p.bounds, p.rule), kLimit);
  EXPECT_NE(outcome.violation.find(p.why), std::string::npos) << text(outcome);
  EXPECT_FALSE(outcome.trace.empty());
  std::printf("without %s (%s), after %llu states: %s\n", name(p.rule), describe(p.bounds).c_str(),
              static_cast<unsigned long long>(outcome.states), text(outcome).c_str());
  expect_that_it_holds(p.bounds);  // so it is the rule that makes the difference
}

// Each migration uses a path up; with one path more than faults that cause one, a path always lives.
const Bounds kEach[] = {
    {.messages = 3, .paths = 3, .standby = true, .breaks = 2},
    {.messages = 3, .segments = 2, .paths = 3, .breaks = 2},
    {.messages = 2, .paths = 4, .breaks = 3},
    {.messages = 2, .paths = 3, .standby = true, .breaks = 1, .early = 1},
    {.messages = 2, .paths = 3, .standby = true, .breaks = 1, .planned = 1, .duplicates = 1},
    {.messages = 2, .paths = 3, .breaks = 2, .duplicates = 2},
    {.messages = 2, .paths = 3, .breaks = 1, .early = 1, .duplicates = 1},
    {.messages = 3, .paths = 4, .breaks = 1, .lost_completions = 1, .lost_immediates = 1, .lost_writes = 1},
    {.messages = 2, .segments = 2, .paths = 3, .breaks = 1, .lost_immediates = 1, .lost_writes = 2},
    {.messages = 2, .paths = 4, .breaks = 2, .frozen = 1},
    {.messages = 2, .paths = 3, .standby = true, .breaks = 1, .frozen = 1, .destroy_fences = true},
    {.messages = 2, .paths = 5, .breaks = 1, .lost_immediates = 1, .frozen = 2, .destroy_fences = true},
};
// Devices that go: at one end of a path, at both, or one after the other.
const Bounds kGone[] = {
    {.messages = 2, .paths = 3, .breaks = 1, .gone = 1},
    {.messages = 2, .paths = 3, .standby = true, .gone = 1},
    {.messages = 1, .paths = 3, .gone = 2},
    {.messages = 1, .paths = 3, .duplicates = 1, .gone = 2},
    {.messages = 1, .paths = 3, .early = 1, .gone = 1},
    {.messages = 2, .paths = 3, .lanes = 1, .gone = 1},
    {.messages = 1, .paths = 3, .lanes = 1, .gone = 2},
    {.messages = 2, .copies = true, .paths = 3, .gone = 1},
};
// Lanes beside the active path; they use up paths in the same way. A lost immediate costs as many paths as
// its message has segments: the sender does not know which of them has lost it.
const Bounds kLanes[] = {
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 2},
    {.messages = 1, .segments = 2, .paths = 3, .lanes = 1, .breaks = 2},
    {.messages = 1, .paths = 4, .lanes = 2, .breaks = 2},
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 1, .early = 1},
    {.messages = 2, .paths = 3, .standby = true, .lanes = 1, .breaks = 1, .planned = 1},
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 1, .duplicates = 1},
    {.messages = 2, .paths = 4, .lanes = 1, .rests = 1, .breaks = 1, .duplicates = 1},
    {.messages = 1, .paths = 4, .lanes = 1, .rests = 1, .breaks = 1, .early = 1},
    {.messages = 2,
     .paths = 5,
     .lanes = 1,
     .breaks = 1,
     .lost_completions = 1,
     .lost_immediates = 1,
     .lost_writes = 1},
    {.messages = 1, .segments = 2, .paths = 4, .lanes = 2, .breaks = 1, .lost_immediates = 1},
    {.messages = 1,
     .segments = 2,
     .paths = 5,
     .lanes = 1,
     .breaks = 1,
     .lost_completions = 1,
     .lost_immediates = 1},
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 1, .frozen = 1},
    {.messages = 2, .paths = 4, .lanes = 1, .breaks = 1, .frozen = 1, .destroy_fences = true},
};
// Small messages: their buffers are given back before the receiver has said that it has them. A lost
// immediate is noticed by nobody but the receiver.
const Bounds kCopies[] = {
    {.messages = 3, .copies = true, .paths = 3, .standby = true, .breaks = 2},
    {.messages = 2, .copies = true, .paths = 3, .standby = true, .breaks = 1, .early = 1},
    {.messages = 2, .copies = true, .paths = 3, .breaks = 1, .early = 1, .duplicates = 1},
    {.messages = 3,
     .copies = true,
     .paths = 4,
     .breaks = 1,
     .lost_completions = 1,
     .lost_immediates = 1,
     .lost_writes = 1},
    {.messages = 2, .copies = true, .paths = 4, .breaks = 1, .lost_immediates = 2, .duplicates = 1},
    {.messages = 2, .copies = true, .paths = 4, .breaks = 2, .frozen = 1},
    {.messages = 2,
     .copies = true,
     .paths = 5,
     .breaks = 1,
     .lost_immediates = 1,
     .frozen = 2,
     .destroy_fences = true},
    {.messages = 2, .copies = true, .paths = 3, .lanes = 1, .breaks = 2},
    {.messages = 2, .copies = true, .paths = 4, .lanes = 1, .rests = 1, .breaks = 1, .duplicates = 1},
    {.messages = 2, .copies = true, .paths = 4, .lanes = 1, .breaks = 1, .lost_immediates = 1},
};
// To the end, when both are closed.
const Bounds kClosing[] = {
    {.messages = 2, .paths = 2, .breaks = 1, .closes = true},
    {.messages = 2, .paths = 3, .breaks = 2, .closes = true},
    {.messages = 1, .paths = 3, .standby = true, .breaks = 1, .early = 1, .closes = true},
    {.messages = 2,
     .paths = 3,
     .lost_completions = 1,
     .lost_immediates = 1,
     .lost_writes = 1,
     .closes = true},
    {.messages = 2, .copies = true, .paths = 2, .breaks = 1, .closes = true},
    {.messages = 2, .copies = true, .paths = 3, .breaks = 1, .lost_immediates = 1, .closes = true},
    {.messages = 2, .copies = true, .paths = 3, .lost_completions = 1, .lost_immediates = 1, .closes = true},
    {.messages = 1, .copies = true, .paths = 3, .lanes = 1, .breaks = 1, .closes = true},
    {.messages = 1, .copies = true, .paths = 3, .closes = true, .gone = 1},
};
const Bounds kDeepCopies[] = {
    {.messages = 4, .copies = true, .paths = 4, .breaks = 2, .lost_immediates = 1},
    {.messages = 2, .copies = true, .paths = 4, .standby = true, .breaks = 2, .early = 1},
    {.messages = 2,
     .copies = true,
     .paths = 5,
     .lanes = 1,
     .breaks = 1,
     .lost_completions = 1,
     .lost_immediates = 1,
     .lost_writes = 1},
};
const Bounds kDeepLanes[] = {
    {.messages = 2, .paths = 4, .lanes = 2, .breaks = 2},
    {.messages = 1, .segments = 2, .paths = 4, .lanes = 2, .breaks = 2},
    {.messages = 1, .paths = 4, .lanes = 2, .breaks = 3},
    {.messages = 1, .segments = 3, .paths = 4, .lanes = 2, .breaks = 1},
    {.messages = 2, .segments = 2, .paths = 3, .lanes = 1, .breaks = 1},
    {.messages = 3, .paths = 3, .lanes = 1, .breaks = 2},
    {.messages = 2, .paths = 4, .lanes = 1, .breaks = 3},
    {.messages = 1, .segments = 2, .paths = 4, .lanes = 1, .breaks = 1, .early = 2},
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 1, .early = 1, .duplicates = 1},
    {.messages = 2, .paths = 4, .lanes = 1, .rests = 1, .breaks = 2},
    {.messages = 1, .paths = 5, .lanes = 1, .rests = 1, .breaks = 2, .early = 1},
    {.messages = 2, .segments = 2, .paths = 4, .lanes = 1, .breaks = 1, .lost_immediates = 1},
};
const Bounds kDeepClosing[] = {
    {.messages = 3, .paths = 4, .breaks = 2, .lost_immediates = 1, .lost_writes = 1, .closes = true},
    {.messages = 2, .copies = true, .paths = 3, .standby = true, .breaks = 1, .early = 1, .closes = true},
    {.messages = 2, .copies = true, .paths = 4, .breaks = 2, .lost_immediates = 1, .closes = true},
    {.messages = 2,
     .copies = true,
     .paths = 4,
     .lanes = 1,
     .breaks = 1,
     .lost_immediates = 1,
     .closes = true},
    {.messages = 2, .paths = 3, .lanes = 1, .breaks = 2, .closes = true},
    {.messages = 2, .paths = 4, .closes = true, .frozen = 2, .destroy_fences = true},
    {.messages = 2, .paths = 3, .closes = true, .gone = 2},
};
const Bounds kDeepGone[] = {
    {.messages = 2, .paths = 3, .standby = true, .gone = 2},
    {.messages = 2, .paths = 3, .duplicates = 1, .gone = 2},
    {.messages = 1, .paths = 4, .early = 1, .gone = 2},
    {.messages = 2, .copies = true, .paths = 3, .gone = 2},
};
const Bounds kDeep[] = {
    {.messages = 3, .paths = 4, .standby = true, .breaks = 3},
    {.messages = 2, .paths = 4, .standby = true, .breaks = 2, .early = 1},
    {.messages = 3, .segments = 2, .paths = 3, .standby = true, .breaks = 1, .planned = 1},
    {.messages = 4, .paths = 3, .breaks = 2, .duplicates = 1},
    {.messages = 2, .paths = 4, .breaks = 1, .early = 2, .duplicates = 1},
    {.messages = 3, .paths = 5, .breaks = 2, .lost_completions = 1, .lost_immediates = 1, .lost_writes = 2},
    {.messages = 2, .paths = 4, .standby = true, .breaks = 1, .frozen = 2, .destroy_fences = true},
};
const Bounds kOneBreak{.messages = 2, .paths = 2, .breaks = 1};
const Bounds kTwoBreaks{.messages = 2, .paths = 3, .breaks = 2, .duplicates = 1};
const Bounds kWithStandby{.messages = 2, .paths = 3, .standby = true, .breaks = 2};
const Bounds kFailback{.messages = 2, .paths = 2, .standby = true, .planned = 1};
const Bounds kMute{.messages = 2, .paths = 2, .lost_immediates = 1};
const Bounds kMuteCopies{.messages = 2, .copies = true, .paths = 2, .lost_immediates = 1};
const Bounds kOneGone{.messages = 2, .paths = 2, .gone = 1};
const Bounds kLaneBreak{.messages = 1, .paths = 2, .lanes = 1, .breaks = 1};
const Bounds kLaneBreaks{.messages = 1, .paths = 3, .lanes = 1, .breaks = 2};
const Bounds kLaneRests{.messages = 1, .paths = 3, .standby = true, .lanes = 1, .rests = 1, .breaks = 1};

const Without kRules[] = {
    {Rule::kReceiverFence, "written after its receive had been reported", kOneBreak},
    {Rule::kSenderFence, "given back while a NIC may still read it", kOneBreak},
    {Rule::kReceiverSentinel, "written after its receive had been reported", kOneBreak},
    {Rule::kSenderSentinel, "given back while a NIC may still read it", kOneBreak},
    {Rule::kGivenUpFence, "written after its receive had been reported", kWithStandby},
    {Rule::kNewQueuePairs, "written after its receive had been reported", kFailback},
    {Rule::kStrictAck, "nothing happens any more", kMute},
    {Rule::kNicReport, "given back while a NIC may still read it", kOneBreak},
    {Rule::kReceiverIsRight, "nothing happens any more", kOneBreak},
    {Rule::kMigrateEpoch,
     "nothing happens any more",
     {.messages = 2, .paths = 2, .breaks = 1, .duplicates = 1}},
    {Rule::kFencedEpoch, "written after its receive had been reported", kTwoBreaks},
    {Rule::kUseEpoch, "given back while a NIC may still read it", kTwoBreaks},
    {Rule::kOrder, "nothing happens any more", kOneBreak},
    {Rule::kRepeatCts, "nothing happens any more", kOneBreak},
    {Rule::kRepeatAck, "nothing happens any more", {.messages = 2, .paths = 1, .lost_writes = 1}},
    {Rule::kSilentLoss, "nothing happens any more", kMute},
    {Rule::kStuckQueuePair, "nothing happens any more", {.messages = 2, .paths = 2, .lost_completions = 1}},
    {Rule::kWatchdog, "nothing happens any more", kOneBreak},
    {Rule::kLiveSegments, "written after its receive had been reported", kLaneBreak},
    {Rule::kNicReportOnLanes, "given back while a NIC may still read it", kLaneBreak},
    {Rule::kSenderFirst, "nothing happens any more", kLaneBreaks},
    {Rule::kFencedPath, "written after its receive had been reported", kLaneBreaks},
    {Rule::kSegmentsOfPath, "nothing happens any more", kLaneBreak},
    {Rule::kLaneGivenUp,
     "a path that the receiver does not look at",
     {.messages = 1, .paths = 2, .lanes = 1, .early = 1}},
    {Rule::kRestReported, "given back while a NIC may still read it", kLaneRests},
    {Rule::kRestConfirmed, "written after its receive had been reported", kLaneRests},
    {Rule::kRestOnce,
     "a path that the receiver does not look at",
     {.messages = 1, .paths = 2, .lanes = 1, .rests = 1, .duplicates = 1}},
    {Rule::kCopyKept, "was given back, and cannot be sent again", kMuteCopies},
    {Rule::kWatchAfterRequest,
     "nothing happens any more",
     {.messages = 2, .copies = true, .paths = 4, .lost_immediates = 1, .frozen = 2, .destroy_fences = true}},
    {Rule::kLackingCounts,
     "nothing happens any more",
     {.messages = 1, .copies = true, .paths = 2, .breaks = 2, .lost_immediates = 1, .runs_out = true}},
    {Rule::kRequestAckQuery, "nothing happens any more", kMuteCopies},
    {Rule::kOneFence, "an error although a path lives", kOneGone},
    {Rule::kRefusedNotFenced,
     "written after its receive had been reported",
     {.messages = 2, .paths = 2, .gone = 2}},
    {Rule::kKernelFence, "written after its receive had been reported", kOneGone},
    {Rule::kDropReceiversPath,
     "half of a path is left behind",
     {.messages = 1, .paths = 3, .lanes = 1, .rests = 1, .breaks = 2}},
    {Rule::kSettle,
     "an error although a path lives",
     {.messages = 1, .copies = true, .paths = 2, .lost_immediates = 1, .closes = true}},
    {Rule::kLastAck, "an error although a path lives", {.messages = 1, .paths = 1, .closes = true}},
};

INSTANTIATE_TEST_SUITE_P(Model, Protocol, ::testing::ValuesIn(kEach));
INSTANTIATE_TEST_SUITE_P(Gone, Protocol, ::testing::ValuesIn(kGone));
INSTANTIATE_TEST_SUITE_P(Lanes, Protocol, ::testing::ValuesIn(kLanes));
INSTANTIATE_TEST_SUITE_P(Copies, Protocol, ::testing::ValuesIn(kCopies));
INSTANTIATE_TEST_SUITE_P(Closing, Protocol, ::testing::ValuesIn(kClosing));
INSTANTIATE_TEST_SUITE_P(Copies, DeepProtocol, ::testing::ValuesIn(kDeepCopies));
INSTANTIATE_TEST_SUITE_P(Closing, DeepProtocol, ::testing::ValuesIn(kDeepClosing));
INSTANTIATE_TEST_SUITE_P(Gone, DeepProtocol, ::testing::ValuesIn(kDeepGone));
INSTANTIATE_TEST_SUITE_P(Model, DeepProtocol, ::testing::ValuesIn(kDeep));
INSTANTIATE_TEST_SUITE_P(Lanes, DeepProtocol, ::testing::ValuesIn(kDeepLanes));
INSTANTIATE_TEST_SUITE_P(Model, Rules, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(name(info.param.rule)); });

}  // namespace
}  // namespace r2ccl::model
