// SPDX-License-Identifier: Apache-2.0
// The board of a test that is injected itself: of one node with one NIC, on which its fake devices are.
#pragma once

#include <cstdlib>

#include "faultinject/control/board_host.h"
#include "faultinject/preload/process.h"

namespace faultinject::testing {

/// One board and one process for the whole program, as in any injected process.
inline BoardHost& the_board() {
  static BoardHost board = [] {
    BoardHost made = BoardHost::create({{"node0", 1}}, 1);
    setenv("FAULTINJECT_BOARD", made.path().c_str(), 1);
    setenv("FAULTINJECT_NODE", "node0", 1);
    read_environment();
    return made;
  }();
  return board;
}

}  // namespace faultinject::testing
