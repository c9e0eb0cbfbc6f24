// SPDX-License-Identifier: Apache-2.0
// The live line of a running job. On a terminal one line that is written over, with a permanent line for each
// thing that happens; elsewhere (a file, a CI log) plain lines, one a second and one for each thing that
// happens.
#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>

#include "harness/run/runner.h"

namespace r2bench {

class ProgressPrinter {
 public:
  struct Style {
    bool live = false;  ///< a terminal that can write over a line
    bool colour = false;
    size_t columns = 100;
  };
  ProgressPrinter(std::ostream& out, Style style) : out_(out), style_(style) {}
  ProgressPrinter(const ProgressPrinter&) = delete;
  /// clear(): an error that ends the job early has a line of its own, too.
  ~ProgressPrinter() { clear(); }

  /// `now`: any steady clock; decides only how often is printed.
  void show(const Progress& progress, std::chrono::steady_clock::time_point now);
  /// Takes the live line away. Called before anything else is printed.
  void clear();

 private:
  void happened(const Progress& progress);
  std::string state(const Progress& progress) const;

  std::ostream& out_;
  Style style_;
  std::string mode_;
  size_t pair_ = 0;
  std::string phase_;
  std::string note_;
  std::chrono::steady_clock::time_point last_{};
  bool shown_ = false;
  bool line_is_open_ = false;
};

}  // namespace r2bench
