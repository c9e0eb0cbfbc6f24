// SPDX-License-Identifier: Apache-2.0
// What the channels to one peer process know together of the rails to it. Pure.
#pragma once

#include <cstdint>

#include "r2ccl/health/probe_times.h"
#include "r2ccl/health/whole_packets.h"

namespace r2ccl::health {

struct PeerRails {
  PeerRails(uint64_t least_probe, uint64_t longest_probe) : probe_times(least_probe, longest_probe) {}
  ProbeTimes probe_times;
  /// In the direction of the data of a channel's end that `sends`, or receives.
  WholePackets& whole_packets(bool sends) { return sends ? sent_ : received_; }

 private:
  WholePackets sent_, received_;
};

}  // namespace r2ccl::health
