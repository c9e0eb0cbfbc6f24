// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/health/failure_log.h"

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

void FailureLog::left(const void* channel, int nic, const std::string& rail, const std::string& by,
                      const std::string& why, uint64_t now) {
  gave_up(channel);  // it cannot be on its way twice
  Failure& failure =
      open_.try_emplace(nic, Failure{rail, by, why, now, now, 0, 0, 0, 0, false, {}, {}}).first->second;
  failure.on_their_way[channel] = now;
  failure.last = now;
}

void FailureLog::replayed(const void* channel, uint64_t segments) {
  for (auto& [nic, failure] : open_)
    if (failure.on_their_way.contains(channel)) failure.segments += segments;
}

void FailureLog::went_on(const void* channel, const std::string& rail, uint64_t now) {
  for (auto& [nic, failure] : open_) {
    const auto it = failure.on_their_way.find(channel);
    if (it == failure.on_their_way.end()) continue;
    failure.longest = std::max(failure.longest, now - it->second);
    failure.last = now;
    ++failure.went_on;
    ++failure.over[rail];
    failure.on_their_way.erase(it);
    return;
  }
}

void FailureLog::gave_up(const void* channel) {
  for (auto& [nic, failure] : open_) failure.gave_up += int(failure.on_their_way.erase(channel));
}

std::string FailureLog::first_words(const Failure& failure) {
  return failure.rail + " failed: " + failure.why + " (detected by " + failure.by + "); ";
}

std::string FailureLog::in_the_end(const Failure& failure) {
  std::string text = first_words(failure);
  if (failure.went_on > 0) {
    text += channels(size_t(failure.went_on)) + (failure.went_on == 1 ? " migrated" : " migrated, the last") +
            " after " + in_ms(failure.longest) + ", over ";
    for (const auto& [rail, count] : failure.over)
      text += (text.ends_with("over ") ? "" : ", ") + rail +
              (failure.over.size() > 1 ? " (" + std::to_string(count) + ")" : "");
    text += "; " + std::to_string(failure.segments) +
            (failure.segments == 1 ? " segment was" : " segments were") +
            " retransmitted; a NIC that recovers is used again once it has answered probes for a while";
  }
  const char* and_then = failure.went_on > 0 ? "; " : "";
  if (failure.gave_up > 0)
    text += and_then + channels(size_t(failure.gave_up)) + " failed or closed before another path was found";
  else if (!failure.on_their_way.empty())
    text += and_then + channels(failure.on_their_way.size()) + " had no path when the process ended";
  return text;
}

std::vector<std::string> FailureLog::due(uint64_t now) {
  std::vector<std::string> lines;
  for (auto it = open_.begin(); it != open_.end();) {
    Failure& failure = it->second;
    const bool over = failure.on_their_way.empty();
    if (now == kAll || (over && now - failure.last >= kSettled)) {
      // An end without a word of its own: its channel's error says it all.
      if (failure.went_on > 0 || !failure.told) lines.push_back(in_the_end(failure));
      it = open_.erase(it);
      continue;
    }
    if (!over && !failure.told && now - failure.began >= kLong) {
      failure.told = true;
      lines.push_back(first_words(failure) + channels(failure.on_their_way.size()) +
                      " without a path after " + in_ms(now - failure.began) + " of search");
    }
    ++it;
  }
  return lines;
}

}  // namespace r2ccl
