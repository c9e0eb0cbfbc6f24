// SPDX-License-Identifier: Apache-2.0
// Runs as one HTML page that needs nothing else: style, script and data are inside, and it loads nothing. Its
// sources are page/*; the build puts them into the program.
#pragma once

#include <string>
#include <vector>

#include "harness/report/stored_run.h"

namespace r2bench {

/// Several runs stand side by side, in the order given. No text of a run can end the script that holds it, or
/// become markup. Of each run the first `most_events` events are in the page, and it says how many there are.
std::string to_html(const std::vector<StoredRun>& runs, size_t most_events = 20'000);

}  // namespace r2bench
