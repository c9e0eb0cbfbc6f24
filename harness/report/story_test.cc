// SPDX-License-Identifier: Apache-2.0
// What is told of jobs with several faults, and of a fault that took nothing.
#include "harness/report/story.h"
#include "harness/judge/testing/several_faults_fixture.h"

namespace r2bench {
namespace {

using faultinject::Effect;

template <typename Faults>
class StoryOf : public Faults {
 protected:
  std::vector<StoryLine> told(const ModeResult& evaluated) const {
    RunResult whole;
    whole.modes = {evaluated};
    return tell(this->scenario, whole);
  }
};

using StoryOfFaults = StoryOf<SeveralFaults>;
using StoryOfLostAndSlow = StoryOf<LostAndSlow>;

TEST_F(StoryOfLostAndSlow, tells_of_one_detection_and_of_a_rate_that_returned) {
  fence(1460, 0, 0, 1, "watchdog");
  for (const char* kind : {"throttle", "delay"}) {
    scenario.faults[1].kind = &faultinject::fault_kind(kind);
    std::string before_slow, behind_slow;
    bool slow = false;
    for (const StoryLine& line : told(result())) {
      slow = slow || line.text.starts_with("node0/nic0 ");
      (slow ? behind_slow : before_slow) += line.when + " " + line.text + "\n";
    }
    EXPECT_NE(before_slow.find("+ 105 ms detected by the watchdog"), std::string::npos) << before_slow;
    ASSERT_NE(behind_slow, "") << kind;
    for (const char* wrong : {"detected", "delivered over another NIC", "never returned"})
      EXPECT_EQ(behind_slow.find(wrong), std::string::npos) << behind_slow;
  }
}

// A throttle of node0/nic0 that changes nothing, and 98.5 ms later a NIC of node 2 that is lost.
TEST_F(StoryOfFaults, a_fence_answers_no_fault_of_another_nic) {
  scenario.faults = {fault("throttle", "node0/nic0", kGbit), fault("port_down", "node2/nic1")};
  go_on(1000, 1600);
  strike(1305, 0);
  strike(1403.5, 1);
  fence(1404, 2, 1, 1, "event");
  go_on(1600, 3600, {1, 5}, 20);  // what the lost NIC received, and what it sent
  const ModeResult evaluated = result();
  EXPECT_FALSE(evaluated.faults[0].detect_ms);
  EXPECT_EQ(evaluated.faults[0].detected_by, "");
  EXPECT_DOUBLE_EQ(evaluated.faults[1].detect_ms.value_or(0), 0.5);
  EXPECT_EQ(evaluated.faults[1].detected_by, "event");
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 1);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit_before, 1);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.5);
  std::vector<std::string> story;
  for (const StoryLine& line : told(evaluated)) story.push_back(line.text);
  const auto first_with = [&](const std::string& text, size_t from) {
    while (from < story.size() && story[from].find(text) == std::string::npos) ++from;
    return from;
  };
  const std::string went_on = "continued at the rate that the remaining NICs can carry";
  const size_t lost = first_with("node2/nic1 lost its link", 0), said = first_with(went_on, 0);
  ASSERT_LT(said, story.size()) << "of the NIC that was lost";
  EXPECT_LT(lost, said);
  EXPECT_EQ(first_with(went_on, said + 1), story.size()) << "and of no other";
}

/// A strike just before an operation whose data come 25 ms late, so that the first good interval begins 40 ms
/// after t0: uneven, as operations are.
class ChangesNothing : public StoryOfFaults {
 protected:
  static constexpr double kStruck = 1595;
  void uneven(uint64_t rate, const char* target = "node0/nic0") {
    scenario.faults = {fault("throttle", target, rate)};
    go_on(1000, 1600);
    operation(1600, 1725);
    for (uint32_t s = 0; s < 6; ++s) deliver(s, 1625, 1725, 10, uint16_t(s % 2));
    strike(kStruck);
  }
  bool tells_of_recovery(const ModeResult& evaluated) const {
    const std::vector<StoryLine> lines = told(evaluated);
    return std::any_of(lines.begin(), lines.end(), [](const StoryLine& line) {
      return line.text == "continued at the rate that the remaining NICs can carry";
    });
  }
};

TEST_F(ChangesNothing, a_throttle_above_the_ports_rate_is_no_sample_and_nothing_recovers_from_it) {
  uneven(2 * kGbit);
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults.at(0);
  EXPECT_EQ(sample.why_not_sampled, "it took nothing from its NIC");
  EXPECT_EQ(evaluated.faults_dropped, (std::map<std::string, size_t>{{"it took nothing from its NIC", 1}}));
  EXPECT_FALSE(sample.recover_ms);
  EXPECT_FALSE(sample.recovered_ns);
  EXPECT_EQ(evaluated.recover_ms.n, 0u) << "it would lower the median of others";
  EXPECT_EQ(evaluated.throughput.rounds, 0u) << "what was retained says nothing of it";
  EXPECT_FALSE(tells_of_recovery(evaluated));
}

TEST_F(ChangesNothing, a_throttle_of_a_nic_that_carries_nothing_is_not_recovered_from) {
  scenario.fabric.nics_per_node = 3;
  scenario.workload.channels = 2;
  uneven(kGbit / 2, "node0/nic2");
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults.at(0).why_not_sampled, "no channel used the target");
  EXPECT_FALSE(evaluated.faults.at(0).recover_ms);
  EXPECT_FALSE(evaluated.faults.at(0).recovered_ns);
  EXPECT_FALSE(tells_of_recovery(evaluated));
}

TEST_F(ChangesNothing, the_higher_of_two_throttles_of_a_nic_took_nothing) {
  uneven(kGbit / 2);
  scenario.faults.push_back(fault("throttle", "node0/nic0", kGbit * 3 / 4));
  job.firings[0].t0_ns = at(1105);
  strike(kStruck, 1);
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  EXPECT_TRUE(evaluated.faults.at(0).sampled) << evaluated.faults.at(0).why_not_sampled;
  EXPECT_EQ(evaluated.faults.at(1).why_not_sampled, "it took nothing from its NIC");
  EXPECT_EQ(evaluated.throughput.rounds, 1u) << "of the other";
}

// A send that waits for the throttle first and for the port then may be slow at any rate of the throttle.
TEST_F(ChangesNothing, a_throttle_above_the_ports_rate_that_slows_the_job_nevertheless_is_a_sample) {
  uneven(2 * kGbit);
  go_on(1725, 6025, {}, 14);
  EXPECT_TRUE(result().faults.at(0).sampled)
      << "after a first good interval: " << result().faults[0].why_not_sampled;
  EXPECT_EQ(result().throughput.rounds, 1u);
  job.record.operations.clear();
  job.record.deliveries.clear();
  go_on(1000, 1600);
  go_on(1600, 6080, {}, 14);
  EXPECT_TRUE(result().faults.at(0).sampled) << result().faults[0].why_not_sampled;
  EXPECT_EQ(result().faults_unrecovered, 1u);
}

TEST_F(ChangesNothing, where_ports_have_no_rate_of_their_own_a_throttle_may_take_something) {
  uneven(2 * kGbit);
  scenario.fabric.nic_rate_bits_per_s = 0;
  go_on(1725, 6025);
  EXPECT_TRUE(result().faults.at(0).sampled) << result().faults.at(0).why_not_sampled;
}

// The link is lost before the first operation, whose stream is silent for 60 or for 460 ms of it.
TEST_F(StoryOfFaults, a_fault_without_a_rate_before_it_is_not_told_as_one_that_never_returned) {
  scenario.faults = {fault("port_down", "node2/nic1")};
  for (uint32_t s = 0; s < 6; ++s) deliver(s, 900, 980, 10, uint16_t(s % 2));
  strike(990);
  fence(995, 2, 1, 1, "event");
  const JobRecord warm = job;
  for (const double silent_ms : {60., 460.}) {
    job = warm;
    operation(1000, 1600);
    for (uint32_t s = 0; s < 6; ++s) {
      const bool away = s == 1 || s == 5;  // what the lost NIC sent, and what it received
      deliver(s, away ? 990 + silent_ms : 1000, 1600, 10, uint16_t(away ? 0 : s % 2));
    }
    go_on(1600, 3600, {1, 5}, 20);
    std::string story;
    for (const StoryLine& line : told(result())) story += line.text + "\n";
    EXPECT_EQ(story.find("never returned"), std::string::npos) << story;
    EXPECT_EQ(story.find("no sample of its recovery: it struck before an operation had ended, so that no "
                         "rate before it is "
                         "known") != std::string::npos,
              silent_ms < 100)
        << story;
    EXPECT_EQ(story.find("a channel stalled for 460 ms; the rate before is not known") != std::string::npos,
              silent_ms > 100)
        << story;
  }
}

TEST_F(StoryOfFaults, each_outage_of_a_flapping_port_is_a_strike_with_a_heal_of_its_own) {
  scenario.faults = {fault("port_flap", "node2/nic1")};
  go_on(1000, 6000);
  strike(1505).board_id = 7;
  job.firings[0].healed_ns = at(5000);
  for (uint64_t outage : {1, 2, 3}) {
    const double t0 = 505 + 1000 * double(outage);
    witness(7, t0, Effect::kLinkDown, outage);
    witness(7, t0 + 0.2, Effect::kLinkDown, outage);  // another process
    witness(7, t0 + 150 + 50 * double(outage), Effect::kLinkUp, outage);
  }
  fence(3506, 2, 1, 1, "event");
  const ModeResult evaluated = result();
  ASSERT_EQ(evaluated.faults.size(), 3u);
  EXPECT_EQ(evaluated.faults_witnessed, 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(evaluated.faults[i].strike, i);
    EXPECT_EQ(evaluated.faults[i].t0_ns, at(1505 + 1000 * double(i)));
    EXPECT_EQ(evaluated.faults[i].healed_ns, at(1705 + 1050 * double(i)));
  }
  EXPECT_FALSE(evaluated.faults[0].detect_ms) << "it was over when the NIC was left";
  EXPECT_DOUBLE_EQ(evaluated.faults[2].detect_ms.value_or(0), 1);
  std::vector<std::pair<uint64_t, double>> limits;
  for (const LimitPoint& point : evaluated.timeline.limits) limits.emplace_back(point.time_ns, point.limit);
  EXPECT_EQ(
      limits,
      (std::vector<std::pair<uint64_t, double>>{
          {at(1505), 0.5}, {at(1705), 1}, {at(2505), 0.5}, {at(2755), 1}, {at(3505), 0.5}, {at(3805), 1}}));
  std::vector<std::string> healed;
  for (const StoryLine& line : told(evaluated))
    if (line.text == "node2/nic1 was healed") healed.push_back(line.when);
  EXPECT_EQ(healed, (std::vector<std::string>{"+ 200 ms", "+ 250 ms", "+ 300 ms"}));
}

/// The last sentence of a job that ended well.
class StoryOfTheEnd : public ::testing::Test {
 protected:
  StoryOfTheEnd() { mode.outcome = Outcome::kOk; }
  StoryLine end() const {
    RunResult whole;
    whole.modes = {mode};
    return tell(scenario, whole).back();
  }
  static bool has(const StoryLine& line, const std::string& text) {
    return line.text.find(text) != std::string::npos;
  }
  Scenario scenario;
  ModeResult mode;
};

TEST_F(StoryOfTheEnd, what_r2bench_did_not_compare_is_not_said_of_a_command) {
  EXPECT_TRUE(has(end(), "; the data was not compared")) << end().text;
  scenario.workload.engine = Engine::kExec;
  EXPECT_TRUE(has(end(),
                  "; every command ended with exit status 0; r2bench compared no data, and does not "
                  "know whether the command did"))
      << end().text;
  EXPECT_EQ(end().tone, Tone::kPlain);
  scenario.workload.exec.nccl_tests = true;
  EXPECT_TRUE(has(end(), "; the table of nccl-tests has no compared element")) << end().text;
  mode.correctness.checked_elements = 256;
  EXPECT_TRUE(has(end(), "; every element right")) << end().text;
}

TEST_F(StoryOfTheEnd, what_arrived_twice_is_told_also_where_no_element_was_compared) {
  mode.correctness.duplicated = 3;
  EXPECT_TRUE(has(end(), "3 arrived twice")) << end().text;
  EXPECT_EQ(end().tone, Tone::kBad);
}

}  // namespace
}  // namespace r2bench
