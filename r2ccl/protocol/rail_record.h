// SPDX-License-Identifier: Apache-2.0
// What a channel remembers of its rails (a local and a remote NIC) that failed: when each may be tried again,
// how often it failed since traffic flowed, so that a search goes to the others first, and what it showed,
// for the error when no path is left. Pure: times are what the caller says they are, in nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/wire.h"

namespace r2ccl {

class RailRecord {
 public:
  struct Failure {
    int local, remote;
    std::string what;
    uint64_t at;  ///< CLOCK_MONOTONIC
  };

  /// It counts as failed once more, and is left alone until `not_before`.
  void failed(int local, int remote, uint64_t not_before) {
    bar(local, remote, not_before);
    uint16_t& count = count_[size_t(local)][size_t(remote)];
    if (count < UINT16_MAX) ++count;
  }
  /// Traffic has left it: it has failed, unless that was `planned`.
  void left(int local, int remote, bool planned, uint64_t not_before) {
    if (!planned) failed(local, remote, not_before);
  }
  /// It is left alone until then.
  void bar(int local, int remote, uint64_t not_before) {
    not_before_[size_t(local)][size_t(remote)] = not_before;
  }
  bool barred(int local, int remote, uint64_t now) const {
    return now < not_before_[size_t(local)][size_t(remote)];
  }
  unsigned count(int local, int remote) const { return count_[size_t(local)][size_t(remote)]; }
  /// Failures of all rails that share a NIC with this one. Those of one NIC are often dead together.
  unsigned count_near(int local, int remote) const {
    unsigned sum = 0;
    for (size_t nic = 0; nic < wire::kMaxNics; ++nic)
      sum += count_[size_t(local)][nic] + unsigned(count_[nic][size_t(remote)]);
    return sum;
  }

  /// How many rails have not been seen to fail since traffic flowed. `is_up(l, r)`: nothing is known to be
  /// the matter with its NICs.
  template <class IsUp>
  unsigned untried(int locals, int remotes, IsUp&& is_up) const {
    unsigned sum = 0;
    for (int l = 0; l < locals; ++l)
      for (int r = 0; r < remotes; ++r) sum += count(l, r) == 0 && is_up(l, r);
    return sum;
  }

  /// What it showed; of each rail the last is kept.
  void note(Failure failure) {
    std::erase_if(notes_,
                  [&](const Failure& f) { return f.local == failure.local && f.remote == failure.remote; });
    notes_.push_back(std::move(failure));
  }
  const std::vector<Failure>& notes() const { return notes_; }  ///< the oldest first

  /// Traffic flows, or can: no rail counts as failed. Bars stay.
  void forget_counts() { count_ = {}; }
  /// All but the newest, which is why the caller is there.
  void forget_older_notes() {
    if (notes_.size() > 1) notes_.erase(notes_.begin(), notes_.end() - 1);
  }

 private:
  template <typename T>
  using PerRail = std::array<std::array<T, wire::kMaxNics>, wire::kMaxNics>;
  PerRail<uint64_t> not_before_{};
  PerRail<uint16_t> count_{};
  std::vector<Failure> notes_;
};

}  // namespace r2ccl
