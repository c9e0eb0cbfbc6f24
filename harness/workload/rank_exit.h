// SPDX-License-Identifier: Apache-2.0
// How a rank process tells its runner why it ended, whatever its engine.
#pragma once

namespace r2bench {

/// Exit codes of a rank. 0: every iteration done and everything closed.
enum RankExit : int {
  kRankOk = 0,
  kRankPluginError = 10,  ///< the plugin reported an error while operations ran
  kRankSetupError = 11,   ///< it cannot be loaded, or set-up failed
  kRankAborted = 12,      ///< the runner told it to end
  kRankOrphaned = 13,     ///< the runner is gone
};

}  // namespace r2bench
