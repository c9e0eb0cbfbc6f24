// SPDX-License-Identifier: Apache-2.0
// Which schedules to predict where nodes have lost different NICs: other orders, other leaves, other
// fractions of a mix, so that NICs are busy whose rails a neighbour lacks. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {

/// Among more nodes it takes too long to predict them for each size of an operation, and rings have others to
/// put between two.
inline constexpr size_t kMostNodesOfShapes = 64;

/// For predict(): candidates with `algorithm`, `leaves`, `parts`, `order` and `rails`, of each algorithm at
/// least one, the natural one first. Empty if the job's NICs are not known, rails do not matter
/// (rails_differ()), or there are more than kMostNodesOfShapes nodes.
std::vector<Candidate> shapes_by_rails(const Job& job);

}  // namespace r2ccl::collective
