// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/message_check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "harness/workload/cpu/operation.h"
#include "harness/workload/cpu/pattern.h"

namespace r2bench {
namespace {

/// What rank 1 of 3 receives on its first channel, message after message, as the content says.
class Stream {
 public:
  explicit Stream(Operation op, DataType type = DataType::kFloat32) {
    config_.group = {3, 1, 0, 1};
    config_.op = op;
    config_.dtype = type;
    config_.bytes = 3 * 5000 * element_size(type);
    config_.buffer_bytes = 16384;
    config_.p2p_chunk_bytes = 2048;
    config_.seed = 77;
    const ChannelPlan plan = plan_channels(config_, 1).front();
    shift_ = plan.shift;
    for (const Lane& lane : plan.lanes)
      for (const Step& step : lane)
        if (step.receives) steps_.push_back(step);
  }
  size_t per_operation() const { return steps_.size(); }
  std::vector<char> message(uint64_t number) const {
    const Step& step = steps_[number % steps_.size()];
    std::vector<uint32_t> ranks;
    const size_t first = content_of(config_, shift_, step, ranks);
    std::vector<char> data(step.count * element_size(config_.dtype));
    fill_sums(config_.dtype, data.data(), first, step.count, ranks,
              data_operation(config_.seed, number / steps_.size()));
    return data;
  }
  /// (duplicated, lost) after these messages.
  std::pair<uint64_t, uint64_t> check(const std::vector<uint64_t>& numbers) const {
    MessageCheck check(config_, shift_);
    check.begin_operation(steps_, 0);
    for (uint64_t number : numbers) {
      std::vector<char> data = message(number);
      check.on_message(data.data(), data.size());
    }
    return {check.duplicated(), check.lost()};
  }
  /// All messages before `end`, but with `what` done to them.
  static std::vector<uint64_t> sequence(uint64_t end) {
    std::vector<uint64_t> numbers;
    for (uint64_t n = 0; n < end; ++n) numbers.push_back(n);
    return numbers;
  }
  RankConfig config_;
  int shift_ = 1;
  std::vector<Step> steps_;
};

using Counts = std::pair<uint64_t, uint64_t>;

class MessageCheckTest : public testing::TestWithParam<Operation> {
 protected:
  Stream stream_{GetParam()};
  uint64_t end_ = 3 * stream_.per_operation();
};

TEST_P(MessageCheckTest, nothing_is_the_matter_with_a_stream_in_order) {
  EXPECT_EQ(stream_.check(Stream::sequence(end_)), Counts(0, 0));
}

TEST_P(MessageCheckTest, a_message_that_came_twice_is_duplicated_wherever_it_stands) {
  for (uint64_t twice = 0; twice < end_; ++twice) {
    auto numbers = Stream::sequence(end_);
    numbers.insert(numbers.begin() + long(twice), twice);
    EXPECT_EQ(stream_.check(numbers), Counts(1, 0)) << "message " << twice;
  }
}

TEST_P(MessageCheckTest, a_message_that_never_came_is_lost_once_a_later_one_came) {
  for (uint64_t lost = 0; lost + 1 < end_; ++lost) {
    auto numbers = Stream::sequence(end_);
    numbers.erase(numbers.begin() + long(lost));
    EXPECT_EQ(stream_.check(numbers), Counts(0, 1)) << "message " << lost;
  }
}

TEST_P(MessageCheckTest, an_old_message_in_the_place_of_another_is_both) {
  auto numbers = Stream::sequence(end_);
  numbers[9] = 5;
  EXPECT_EQ(stream_.check(numbers), Counts(1, 1));
}

TEST_P(MessageCheckTest, messages_that_changed_places_are_neither) {
  auto numbers = Stream::sequence(end_);
  std::swap(numbers[3], numbers[4]);
  EXPECT_EQ(stream_.check(numbers), Counts(0, 0));
}

TEST_P(MessageCheckTest, what_cannot_be_recognised_passes_for_the_next_one) {
  MessageCheck check(stream_.config_, stream_.shift_);
  check.begin_operation(stream_.steps_, 0);
  for (uint64_t number : Stream::sequence(end_)) {
    std::vector<char> data = stream_.message(number);
    if (number % 3 == 1 && !data.empty()) data[0] ^= 1;
    check.on_message(data.data(), data.size());
  }
  EXPECT_EQ(Counts(check.duplicated(), check.lost()), Counts(0, 0));
}

TEST_P(MessageCheckTest, a_loss_counts_for_good_however_long_ago) {
  auto numbers = Stream::sequence(200);
  numbers.erase(numbers.begin() + 2);
  EXPECT_EQ(stream_.check(numbers), Counts(0, 1));
}

INSTANTIATE_TEST_SUITE_P(Operations, MessageCheckTest,
                         testing::Values(Operation::kAllReduce, Operation::kAllGather,
                                         Operation::kReduceScatter, Operation::kBroadcast,
                                         Operation::kSendRecv, Operation::kAllToAll),
                         [](const auto& param) { return std::string(name(param.param)); });

}  // namespace
}  // namespace r2bench
