// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/incidents.h"

#include <algorithm>
#include <cstdio>

namespace r2ccl {
namespace {

std::string in_ms(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", double(ns) / 1e6);
  return text;
}

std::string channels(size_t count) { return std::to_string(count) + (count == 1 ? " channel" : " channels"); }

}  // namespace

void Incidents::left(const void* channel, int nic, const std::string& rail, const std::string& by,
                     const std::string& why, uint64_t now) {
  gave_up(channel);  // it cannot be on its way twice
  Incident& incident =
      open_.try_emplace(nic, Incident{rail, by, why, now, now, 0, 0, 0, 0, false, {}, {}}).first->second;
  incident.on_their_way[channel] = now;
  incident.last = now;
}

void Incidents::replayed(const void* channel, uint64_t segments) {
  for (auto& [nic, incident] : open_)
    if (incident.on_their_way.contains(channel)) incident.segments += segments;
}

void Incidents::went_on(const void* channel, const std::string& rail, uint64_t now) {
  for (auto& [nic, incident] : open_) {
    const auto it = incident.on_their_way.find(channel);
    if (it == incident.on_their_way.end()) continue;
    incident.longest = std::max(incident.longest, now - it->second);
    incident.last = now;
    ++incident.went_on;
    ++incident.over[rail];
    incident.on_their_way.erase(it);
    return;
  }
}

void Incidents::gave_up(const void* channel) {
  for (auto& [nic, incident] : open_) incident.gave_up += int(incident.on_their_way.erase(channel));
}

std::string Incidents::first_words(const Incident& incident) {
  return incident.rail + " failed: " + incident.why + " (noticed by " + incident.by + "); ";
}

std::string Incidents::in_the_end(const Incident& incident) {
  std::string text = first_words(incident);
  if (incident.went_on > 0) {
    text += channels(size_t(incident.went_on)) + (incident.went_on == 1 ? " went on" : " went on, the last") +
            " after " + in_ms(incident.longest) + ", over ";
    for (const auto& [rail, count] : incident.over)
      text += (text.ends_with("over ") ? "" : ", ") + rail +
              (incident.over.size() > 1 ? " (" + std::to_string(count) + ")" : "");
    text += "; " + std::to_string(incident.segments) +
            (incident.segments == 1 ? " segment was" : " segments were") +
            " sent again; a NIC that comes back is used again when it has carried probes for a while";
  }
  const char* and_then = incident.went_on > 0 ? "; " : "";
  if (incident.gave_up > 0)
    text += and_then + channels(size_t(incident.gave_up)) + " failed, or ended, before another way was found";
  else if (!incident.on_their_way.empty())
    text +=
        and_then + channels(incident.on_their_way.size()) + " had found no other way when the process ended";
  return text;
}

std::vector<std::string> Incidents::due(uint64_t now) {
  std::vector<std::string> lines;
  for (auto it = open_.begin(); it != open_.end();) {
    Incident& incident = it->second;
    const bool over = incident.on_their_way.empty();
    if (now == kAll || (over && now - incident.last >= kSettled)) {
      // An end without a word of its own: its channel's error says it all.
      if (incident.went_on > 0 || !incident.told) lines.push_back(in_the_end(incident));
      it = open_.erase(it);
      continue;
    }
    if (!over && !incident.told && now - incident.began >= kLong) {
      incident.told = true;
      lines.push_back(first_words(incident) + channels(incident.on_their_way.size()) +
                      " without another way after " + in_ms(now - incident.began) + " of search");
    }
    ++it;
  }
  return lines;
}

}  // namespace r2ccl
