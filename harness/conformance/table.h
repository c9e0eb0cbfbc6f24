// SPDX-License-Identifier: Apache-2.0
// The table of deviations: what differs from what the specification leads a program to expect, on which
// fabric, why, and whether that is acceptable. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench::conformance {

/// Why a fabric differs. `what` is "*" for all observations of a case.
struct Explanation {
  const char* fabric;
  const char* name;  ///< of a case, or "faults.NAME"
  const char* what;
  bool acceptable;
  const char* why;
};
const std::vector<Explanation>& explanations();

struct Deviation {
  std::string fabric, name, what, wanted, got;
  bool explained = false, acceptable = false;
  std::string why;
};

struct Table {
  nlohmann::json provenance;
  std::vector<nlohmann::json> fabrics;  ///< each as run_suite() gave it
  std::vector<Deviation> deviations;
  size_t observations = 0, cases = 0;

  /// Deviations without an explanation, or with one that says that they are wrong.
  size_t unexplained() const;
};

/// Compares each observation with what is wanted, and each injected fault with the real one on rxe (with the
/// injected one of the other fabric where there is no real one).
Table make_table(std::vector<nlohmann::json> fabrics, nlohmann::json provenance,
                 const std::vector<Explanation>& known = explanations());

std::string markdown(const Table& table);
nlohmann::json json(const Table& table);

}  // namespace r2bench::conformance
