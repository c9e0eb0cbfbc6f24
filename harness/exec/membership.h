// SPDX-License-Identifier: Apache-2.0
// A command's place in a shared fabric: joins the one of that name, or starts its holder when there is none.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "harness/exec/fabric_shape.h"
#include "harness/launch/injection.h"
#include "harness/launch/message_socket.h"

namespace r2bench {

struct Membership {
  MessageSocket holder;  ///< a member for as long as this is open; close-on-exec
  pid_t started = -1;    ///< the holder, when this command started it: there was no such fabric before
  FabricShape shape;
  std::map<std::string, std::string> environment;  ///< of the fabric, for programs on that node
  Injection injection;                             ///< all but the rank
  std::string mark;                                ///< for kMarkVariable of every program of this command
};

/// `program` is for messages. `lib_dir` is this build's lib folder, used when the fabric has to be made. Must
/// be called while the process has one thread: it may fork. Throws ControlError in one sentence for the user
/// (wrong name, node or shape; a fabric of another shape is there), std::invalid_argument likewise,
/// std::system_error.
Membership join_fabric(const std::string& name, const std::string& node, const std::string& program,
                       const WantedShape& wanted, const std::string& lib_dir);

/// Leaves in peace: what the command's program left running in the background is not touched. The last one
/// out waits for the holder's end when it had started it.
void leave(Membership& membership);

}  // namespace r2bench
