// SPDX-License-Identifier: Apache-2.0
// What happened, in sentences, for somebody who has never seen such a run.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"

namespace r2bench {

enum class Tone { kPlain, kGood, kBad };

struct StoryLine {
  std::string mode;
  std::string when;  ///< "at 2.31 s", "+ 12.3 ms", or empty
  std::string text;
  Tone tone = Tone::kPlain;
};

/// In the order of the modes, within each in order of time. Of many faults only the first is told.
std::vector<StoryLine> tell(const Scenario& scenario, const RunResult& result);

/// "2 nodes × 1 rank × 4 NICs of 1 Gbit/s (vhca) · allreduce of 16 MiB float32 × 200".
std::string headline(const Scenario& scenario);
/// As a user would type it.
std::string command_in_words(const ExecSettings& exec);

enum class Tense { kPast, kPresent };
/// What a kind of fault means, e.g. "lost its link". The kind itself when it is not known.
std::string meaning_of_kind(const std::string& kind, Tense tense = Tense::kPast);

}  // namespace r2bench
