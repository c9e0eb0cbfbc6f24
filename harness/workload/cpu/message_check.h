// SPDX-License-Identifier: Apache-2.0
// Which messages of a stream came, by what they carry: each message is recognised by its first elements, so that one
// that came twice or never is counted as that, in any operation, and not only as wrong elements. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/cpu/steps.h"

namespace r2bench {

/// Counts over one connection. Messages are numbered since it was made; they carry the data of their operation. A message that cannot be recognised (empty, wrong from its first element
/// on) passes for the next one: the comparison of the elements tells of it.
class MessageCheck {
 public:
  /// `shift`: messages come from the rank so many places back.
  MessageCheck(const RankConfig& config, int shift);

  /// Operation `number` of the job begins, with these steps that receive, in order; the same in each operation
  /// that comes this way. In between there may be others that went another way (CollNet).
  void begin_operation(std::vector<Step> receives, uint64_t number) {
    steps_ = std::move(receives);
    numbers_[begun_++ % numbers_.size()] = number;
  }
  /// The next message that came. Makes the beginning of one that belongs elsewhere in the stream unrecognisable: a
  /// ring passes it on, and only the rank that got it in the wrong place may count it.
  void on_message(void* data, size_t bytes);

  /// Messages that were recognised.
  uint64_t recognised() const { return recognised_; }
  /// Messages whose content had come before.
  uint64_t duplicated() const { return duplicated_; }
  /// Messages that have not come although a later one did.
  uint64_t lost() const;

 private:
  bool carries(uint64_t message, const void* data, size_t bytes);
  /// Which message it is; the next one where it is none that is known.
  uint64_t recognise(const void* data, size_t bytes);
  void note(uint64_t message);

  const RankConfig& config_;
  int shift_;
  /// Number of the `index`-th operation that came this way.
  uint64_t number_of(uint64_t index) const;
  std::vector<Step> steps_;
  std::array<uint64_t, 64> numbers_{};  ///< of the latest that have begun: more than kReach messages are in
  uint64_t begun_ = 0;
  uint64_t received_ = 0;
  uint64_t next_ = 0;          ///< behind the latest message that has come
  uint64_t seen_ = ~uint64_t{0};  ///< bit i: message next_ - 1 - i has come
  uint64_t recognised_ = 0;
  uint64_t duplicated_ = 0;
  uint64_t lost_ = 0;  ///< further back than seen_ tells
  std::vector<uint32_t> ranks_;
};

}  // namespace r2bench
