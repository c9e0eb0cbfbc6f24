// SPDX-License-Identifier: Apache-2.0
// The last resort where the kernel lets no process touch another's memory: the data crosses in shared memory,
// and the target's engine moves it to its place. Then the target must run to be written to; everything else
// stays as it is.
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/memory/memory_move.h"

namespace vhca {

// Moves up to kStagingBytes between `local` and `remote`, which lies in the process `other`. One at a time
// per process (the caller sees to it). kGone also when the other engine does not answer within a second, or
// finds that `hold` (nullptr: none is needed) has been revoked.
MoveStatus move_staged(Fabric& fabric, ProcessId self, ProcessId other, MoveDirection direction,
                       const iovec* local, std::size_t local_count, const iovec* remote,
                       std::size_t remote_count, const Hold* hold);

// Carries out what others ask of this process. Any thread of it may call this at any time.
void serve_staged(Fabric& fabric, ProcessId self);

}  // namespace vhca
