// SPDX-License-Identifier: Apache-2.0
// A run's event log in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing read: a
// process per rank with a track per channel and per NIC, and one per mode for its faults and its throughput.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/report/stored_run.h"

namespace r2bench {

/// What the trace says:
/// * a channel's track: one slice per migration, from the fault that explains it (else from its fence) until
///   the channel carries traffic again, with slices detect, fence and migrate inside; everything else that
///   happened to the channel as instants
/// * a NIC's track: slices while its port is down or it is taken for gray; paths and probes as instants
/// * the faults' process: a slice per strike until its heal, what the injector saw, the runner's notes, and a
///   counter of delivered Gbit/s
/// * arrows from a fault to each migration that it explains
/// A fault explains a migration when it is the last one in force before the fence that was not planned, and
/// its target is the NIC that the channel leaves, at either end. Times are microseconds from the first event.
/// Modes follow each other as they ran. Throws InputError when the run has no event log.
nlohmann::ordered_json to_trace(const StoredRun& run);

}  // namespace r2bench
