// SPDX-License-Identifier: Apache-2.0
// Reads what the programs of nccl-tests print. Columns go by the table's own header, so that every version of
// it can be read: 'error' instead of '#wrong', without 'redop' or 'root', with percentiles behind each side.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

/// Out of place or in place. Times in µs, bandwidths in GB/s, as printed.
struct NcclTestsSide {
  double time_us = 0, algbw = 0, busbw = 0;
  std::optional<uint64_t>
      wrong;  ///< nullopt: N/A, or a version that prints an error's size instead of a count
};

struct NcclTestsLine {
  uint64_t size_bytes = 0, count = 0;
  std::string type, redop;  ///< redop: empty where the table has no such column
  int root = -1;
  NcclTestsSide out_of_place;
  std::optional<NcclTestsSide> in_place;
};

class NcclTestsTable {
 public:
  /// The next line of output. Returns the row if it is one.
  std::optional<NcclTestsLine> read(const std::string& line);

  /// The table's header has come: operations begin.
  bool begun() const { return !columns_.empty(); }
  /// Of its last lines: how many checks of whole buffers failed.
  std::optional<uint64_t> out_of_bounds() const { return out_of_bounds_; }
  std::optional<double> average_busbw() const { return average_busbw_; }

 private:
  std::vector<std::string> columns_;
  std::optional<uint64_t> out_of_bounds_;
  std::optional<double> average_busbw_;
};

}  // namespace r2bench
