// SPDX-License-Identifier: Apache-2.0
// The process that owns a shared fabric and its fault board for as long as any command is a member. Nobody
// talks to it but through its control socket, and it leaves nothing behind: two memfds and an abstract socket
// end with it.
#pragma once

#include <string>

#include "harness/exec/fabric_shape.h"

namespace r2bench {

/// Becomes the holder of the fabric `name`; to be called in a freshly forked child. `starter_fd` is a
/// connected unix socket: its other end is the first member. When the name is taken it answers {"busy": true}
/// there, when the fabric cannot be made {"error": text}, and ends. Else it serves, until the last member is
/// gone, BoardService's requests (what a member adds is healed when it leaves) and
///   join  {"node", "program"} -> {"shape", "environment", "library_folders", "lib_dir", "board", "mark"}
///         The connection is a member from now on, until it closes. {"busy": true}: the last one has just
///         left.
///   bye   -> {"last": bool}. It leaves in peace; after the last one the holder ends. A member that leaves
///         without (a killed command) takes everything that carries its mark with it.
///   what  -> {"what": text, "members": [text …]}
[[noreturn]] void become_holder(int starter_fd, const std::string& name, const FabricShape& shape,
                                const std::string& lib_dir);

}  // namespace r2bench
