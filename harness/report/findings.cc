// SPDX-License-Identifier: Apache-2.0
#include "harness/report/findings.h"

#include <algorithm>
#include <cmath>

namespace r2bench {

using Json = nlohmann::json;

std::optional<double> number(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}

std::optional<double> number_at(const Json& json, const std::string& place) {
  const Json::json_pointer pointer(place);
  return json.contains(pointer) ? number(json.at(pointer)) : std::nullopt;
}

bool agree(double a, double b, double scale) {
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b;
  return std::fabs(a - b) <= 2e-5 * std::max({1.0, std::fabs(a), std::fabs(b), std::fabs(scale)});
}

void Findings::say(const std::string& what) { found_.push_back(about_ + ": " + what); }

void Findings::same(const std::string& what, const Json& said, const Json& follows, const std::string& from) {
  if (said != follows) say(what + " is " + said.dump() + ", but " + follows.dump() + " follows from " + from);
}

void Findings::close(const std::string& what, std::optional<double> said, double follows,
                     const std::string& from, double scale) {
  if (said && !agree(*said, follows, scale))
    say(what + " is " + Json(*said).dump() + ", but " + Json(follows).dump() + " follows from " + from);
}

void Findings::between(const std::string& what, std::optional<double> said, double least, double most,
                       const std::string& from) {
  if (!said || agree(*said, least) || agree(*said, most) || (*said > least && *said < most)) return;
  say(what + " is " + Json(*said).dump() + ", but " + from + " leave " + Json(least).dump() + " … " +
      Json(most).dump());
}

}  // namespace r2bench
