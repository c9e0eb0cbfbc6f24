// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/witness_story.h"

#include <cstdio>
#include <map>
#include <ostream>

#include "harness/control/control_client.h"

namespace r2bench {

nlohmann::json collect_story(MessageSocket& owner, const std::string& fabric,
                             const std::vector<uint32_t>& ids) {
  nlohmann::json listed = ask(owner, {{"type", "list"}, {"ids", ids}});
  std::map<uint32_t, nlohmann::json> effects;
  for (size_t from = 0;;) {
    const nlohmann::json answer = ask(owner, {{"type", "witnesses"}, {"ids", ids}, {"from", from}});
    for (nlohmann::json witness : answer.at("witnesses")) {
      const auto id = witness.at("fault").get<uint32_t>();
      witness.erase("fault");
      effects[id].push_back(std::move(witness));
      ++from;
    }
    if (!answer.at("more").get<bool>()) break;
  }
  nlohmann::json faults = nlohmann::json::array();
  for (nlohmann::json fault : listed.at("faults")) {
    const auto id = fault.at("id").get<uint32_t>();
    fault["took_effect"] = fault.at("t0_ns").get<uint64_t>() != 0;
    fault["effects"] = effects.contains(id) ? effects[id] : nlohmann::json::array();
    faults.push_back(std::move(fault));
  }
  return {{"schema_version", 1},
          {"fabric", fabric},
          {"witnesses_lost", listed.at("witnesses_lost")},
          {"faults", std::move(faults)}};
}

std::string later_by(uint64_t from_ns, uint64_t time_ns) {
  const double ms = time_ns < from_ns ? 0 : double(time_ns - from_ns) / 1e6;
  char text[32];
  if (ms >= 1000)
    std::snprintf(text, sizeof text, "+%.3f s", ms / 1000);
  else
    std::snprintf(text, sizeof text, ms >= 100 ? "+%.0f ms" : "+%.3g ms", ms);
  return text;
}

void tell(const nlohmann::json& story, size_t limit, std::ostream& out) {
  for (const nlohmann::json& fault : story.at("faults")) {
    const auto time = [&](const char* key) { return fault.at(key).get<uint64_t>(); };
    const uint64_t armed = time("armed_ns");
    out << "fault " << fault.at("id") << ", " << fault.at("kind").get<std::string>() << " "
        << fault.at("target").get<std::string>() << ": armed, ";
    out << (time("triggered_ns") ? "triggered " + later_by(armed, time("triggered_ns"))
                                 : std::string("never triggered"));
    out << (time("t0_ns") ? ", took effect (t0) " + later_by(armed, time("t0_ns"))
                          : std::string(", never took effect"));
    // A fault that is withdrawn unfired has a time of healing, too, and nothing to heal.
    if (time("healed_ns") && time("triggered_ns")) out << ", healed " << later_by(armed, time("healed_ns"));
    out << "\n";
    size_t told = 0;
    for (const nlohmann::json& effect : fault.at("effects")) {
      if (told++ == limit) {
        out << "  … and " << fault.at("effects").size() - limit << " more (--witness FILE keeps all)\n";
        break;
      }
      out << "  " << later_by(armed, effect.at("time_ns").get<uint64_t>()) << "  "
          << effect.at("node").get<std::string>() << "/nic" << effect.at("nic");
      if (effect.at("qp_num") != 0) out << " qp " << effect.at("qp_num");
      out << " in " << effect.at("rank").get<std::string>() << " (pid " << effect.at("pid")
          << "): " << effect.at("what").get<std::string>() << "\n";
    }
  }
  if (const auto lost = story.at("witnesses_lost").get<uint64_t>(); lost > 0)
    out << lost << " effects were not recorded, or not made, because a table of the injector was full\n";
}

}  // namespace r2bench
