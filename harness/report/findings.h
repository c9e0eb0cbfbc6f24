// SPDX-License-Identifier: Apache-2.0
// For the files that look for contradictions in a result.json: numbers of it, compared, and the sentences
// about those that differ.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace r2bench {

/// nullopt: null, or no number.
std::optional<double> number(const nlohmann::json& json);
/// `place`: a JSON pointer. nullopt also if there is no such place.
std::optional<double> number_at(const nlohmann::json& json, const std::string& place);

/// Results that were shortened have six digits: `scale` is the largest number that went into either.
bool agree(double a, double b, double scale = 0);

/// Sentences about one part of a result.
class Findings {
 public:
  /// `about`: what each sentence begins with. `found` has to outlive this.
  Findings(std::string about, std::vector<std::string>& found) : about_(std::move(about)), found_(found) {}

  void say(const std::string& what);
  /// Says it if the two differ. As JSON: counts, words, and maps of counts.
  void same(const std::string& what, const nlohmann::json& said, const nlohmann::json& follows,
            const std::string& from);
  /// The same of measured numbers. What is not said is not compared.
  void close(const std::string& what, std::optional<double> said, double follows, const std::string& from,
             double scale = 0);
  /// Says it if the number is not between the two.
  void between(const std::string& what, std::optional<double> said, double least, double most,
               const std::string& from);

 private:
  std::string about_;
  std::vector<std::string>& found_;
};

}  // namespace r2bench
