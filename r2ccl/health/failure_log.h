// SPDX-License-Identifier: Apache-2.0
// What a user reads of a failure: one line for a NIC, however many channels had to leave it, when the last of
// them goes on (what failed, where, how it was noticed, how long it took, what now). The channels' own
// lines, for who looks closer, are at NCCL_DEBUG=INFO. Pure: times are what the caller says they are, in
// nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace r2ccl {

class FailureLog {
 public:
  /// A channel has to leave NIC `nic`: `rail` ("NIC a of x to NIC b of y") has failed, noticed by `by`.
  void left(const void* channel, int nic, const std::string& rail, const std::string& by,
            const std::string& why, uint64_t now);
  /// So many of its segments are being sent again. Here and below: a channel that has left nothing is none
  /// of ours.
  void replayed(const void* channel, uint64_t segments);
  /// It goes on over `rail`.
  void went_on(const void* channel, const std::string& rail, uint64_t now);
  /// It has failed or is being closed.
  void gave_up(const void* channel);

  bool open() const { return !open_.empty(); }
  bool open(int nic) const { return open_.contains(nic); }
  /// The lines that are due. A failure is told when no channel of it is on its way and none has joined for
  /// kSettled, and once before, when one is on its way for longer than kLong. `now` = kAll: all that are
  /// open.
  std::vector<std::string> due(uint64_t now);

  static constexpr uint64_t kSettled = 20'000'000;
  static constexpr uint64_t kLong = 250'000'000;
  static constexpr uint64_t kAll = ~uint64_t{0};

 private:
  struct Failure {
    std::string rail, by, why;  // of the first channel
    uint64_t began, last;       // the first left; the last left or went on
    uint64_t longest = 0;       // from leaving to going on
    uint64_t segments = 0;
    int gave_up = 0, went_on = 0;
    bool told = false;  // that it takes long
    std::map<std::string, int> over;
    std::map<const void*, uint64_t> on_their_way;  // since when
  };
  static std::string first_words(const Failure& failure);
  static std::string in_the_end(const Failure& failure);

  std::map<int, Failure> open_;  // by local NIC
};

}  // namespace r2ccl
