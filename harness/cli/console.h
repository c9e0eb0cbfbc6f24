// SPDX-License-Identifier: Apache-2.0
// What kind of thing the output goes to, and the signals that end a run early.
#pragma once

#include <atomic>
#include <cstddef>
#include <iosfwd>

namespace r2bench {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool live = false;    ///< a terminal on which a line can be written over
  bool colour = false;  ///< a terminal, and NO_COLOR is not set (https://no-color.org)
  size_t columns = 110;

  /// std::cout and std::cerr, and what they are connected to.
  static Console standard();
};

/// While one lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process; a second one of the
/// same kind ends it at once. SIGPIPE and SIGXFSZ become errors of write().
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  const std::atomic<bool>& cancel() const;
  int caught() const;  ///< the first signal, 0 when there was none
};

}  // namespace r2bench
