// SPDX-License-Identifier: Apache-2.0
// Schedules in other programs' formats.
#pragma once

#include <cstdint>
#include <string>

#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

/// An MSCCL-style algorithm file: a thread block for each lane, a step for each operation of each segment, a
/// dependency for each wait (a `nop` step carries the first of two). Buffers are one, in place; offsets are
/// chunk numbers. A comment says which part of the data each range of chunks is, not how large each chunk of
/// it is. MSCCL's chunks are all alike: an interpreter that takes these for equal computes the right result
/// at another speed.
std::string to_xml(const Schedule& schedule);

/// One rank's Chakra execution trace (mlcommons/chakra, et_def.proto): length-delimited protobuf,
/// GlobalMetadata and then Nodes. A send or receive is a COMM_SEND or COMM_RECV node with comm_size,
/// comm_src, comm_dst and comm_tag (the connection); an addition is a COMP node after its receive. A lane's
/// order is in ctrl_deps, waits are data_deps. Credits have no counterpart there.
std::string to_chakra(const Schedule& schedule, uint32_t rank, uint64_t bytes);

}  // namespace r2ccl::collective
