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
  int descriptor = -1;  ///< of `out`; -1: it is in memory

  /// Whether a line for `out` would have to wait: its terminal is stopped (Ctrl-S), or nobody reads the pipe.
  bool would_wait() const;
  /// Flushes `out`. Whether something of it is lost, as on a full disk; not what a reader did not want, who
  /// has closed the pipe, nor what an interrupt has kept from a terminal.
  bool has_lost_output() const;
  /// std::cout and std::cerr, and what they are connected to.
  static Console standard();
};

/// Opens /dev/null in place of each of stdin, stdout and stderr that is closed: else the next file of the run
/// would have its number, and what is printed would be written into that file.
void own_standard_streams();

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
