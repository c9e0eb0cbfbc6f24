// The best that a mode can keep of a job's bandwidth when NICs are dead or slow. Pure.
#pragma once

#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// `capacity[node][nic]`: 1 healthy, 0 dead, between: throttled. `channels[nic]`: how many channels have
/// their home on NIC k of every node. Returns the fraction of the healthy rate that is left, 0 … 1.
///
/// All channels carry the same bytes and an operation ends with its slowest channel, so the rate is
/// 1 / max over NICs of (channels / capacity). Baseline: a dead NIC ends the job (0). Migrate: the channels
/// of a dead NIC move together to one healthy NIC of the node, chosen as well as it can be; a slow NIC keeps
/// its own. Balance and AllReduce: everything is shared, so the sum of the capacities counts.
double bandwidth_limit(ModeKind mode, const std::vector<std::vector<double>>& capacity,
                       const std::vector<int>& channels);

/// Channels per NIC when channel c lives on NIC c mod nics, as NCCL spreads them.
std::vector<int> channels_per_nic(int channels, int nics);

}  // namespace r2bench
