// SPDX-License-Identifier: Apache-2.0
// Test support: the host of an end (channel_end.h, choice.h) that writes down what is to be done.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "r2ccl/protocol/choice.h"

namespace r2ccl::testing_support {

struct Path {
  PathState state = PathState::kStandby;
  ProbeSight probe = ProbeSight::kAnswered;
  bool usable = true;
  bool failed = false;
};

using Did = std::vector<std::string>;

/// Writes down what an end wants done.
struct Host {
  std::map<uint32_t, Path> has;
  std::vector<std::string> did;
  uint32_t is_active = 0;
  bool is_opening = false;
  uint32_t opens_path = 0;

  void note(const char* what, uint32_t path) { did.push_back(what + (" " + std::to_string(path))); }
  bool holds(Rule) const { return true; }
  std::optional<PathState> state(uint32_t path) const {
    const auto it = has.find(path);
    return it == has.end() ? std::nullopt : std::optional(it->second.state);
  }
  bool marked_failed(uint32_t path) const { return has.contains(path) && has.at(path).failed; }
  uint32_t active() const { return is_active; }
  std::vector<uint32_t> all() const {
    std::vector<uint32_t> ids;
    for (const auto& [id, path] : has) ids.push_back(id);
    return ids;
  }
  std::vector<uint32_t> paths() const { return all(); }
  // Each path has NICs of its own, which have its number.
  std::vector<uint32_t> paths_on(int nic) const {
    return has.contains(uint32_t(nic)) ? std::vector{uint32_t(nic)} : std::vector<uint32_t>();
  }
  std::vector<uint32_t> paths_to(int nic) const { return paths_on(nic); }
  bool opening(uint32_t path) const { return is_opening && path == opens_path; }
  uint32_t opening_over(int nic) const { return opening(uint32_t(nic)) ? uint32_t(nic) : 0; }
  bool usable(uint32_t path) const { return has.at(path).usable; }
  ProbeSight probe(uint32_t path) const { return has.at(path).probe; }
  bool opens() const { return is_opening; }
  void prove(uint32_t path) { note("prove", path); }
  void unanswered(uint32_t path) { note("unanswered", path); }
  void open() { did.push_back("open"); }
  void mark(uint32_t path) {
    note("mark", path);
    has.at(path).failed = true;
  }
  void drop(uint32_t path, bool tell) {
    note(tell ? "drop" : "drop untold", path);
    has.erase(path);
  }
  void send_use(uint32_t path) { note("say", path); }
  bool connected() const { return is_connected; }
  bool any_marked() const { return has_marked; }
  bool failed() const { return has_failed; }
  bool is_over(uint32_t) const { return over; }
  template <typename F>
  auto owning(F&& f) {
    owns = true;
    const auto result = f();
    owns = false;
    return result;
  }
  void activate(uint32_t path, bool first, bool moved) {
    note("carry", path);
    was_first = first, was_moved = moved;
  }
  void carries_on(bool) { detail("carries on", is_active); }
  void look_for_marked() { detail("look for marked", is_active); }
  bool resume() {
    detail("resume", is_active);
    return resumes;
  }
  void carried(uint32_t path, bool) {
    EXPECT_FALSE(owns);
    detail("carried", path);
  }
  void stand_by(uint32_t path) { note("stand by", path); }
  void send_rest(uint32_t path) { note("rest", path); }
  bool another_stands_by(uint32_t path) const { return another != 0 && another != path; }
  void forget(uint32_t path) { note("forget", path); }
  void lane(uint32_t path) { note("lane", path); }
  void send_lane(uint32_t path) { note("say lane", path); }
  void send_fenced(bool stopped) { did.push_back(stopped ? "fenced" : "cannot fence"); }
  void detail(const char* what, uint32_t path) {
    if (in_detail) note(what, path);
  }
  uint32_t another = 0;  // stands by
  bool leaves = true;
  bool in_detail = false, owns = false, begins = true, over = true, resumes = true;
  bool is_connected = true, has_marked = false, has_failed = false, was_first = false, was_moved = false;
  bool may_leave() const { return leaves; }
  void leaving(uint32_t, uint32_t) {}
  void told(uint32_t path) { note("told", path); }
  void hear() {
    did.push_back("hear");
    has_traffic = has_traffic && !closes_when_heard;
  }
  bool carries_traffic() const { return has_traffic; }
  bool has_traffic = true, closes_when_heard = false;
  void as_marked(uint32_t path) { note("as marked", path); }
  bool begin_fence(uint32_t path) {
    EXPECT_TRUE(owns);
    detail("begin", path);
    return begins;
  }
  void send_migrate(uint32_t path) { detail("migrate", path); }
  void take_out(uint32_t path) {
    detail("take out", path);
    has.at(path).state = PathState::kFencing;
    if (is_active == path) is_active = 0;
  }
  void stop(uint32_t path) {
    EXPECT_TRUE(owns);
    note("fence", path);
  }
  void fence_given_up(uint32_t path) { note("fence given up", path); }
  void send_drop(uint32_t path) { note("send drop", path); }
  void prove_anew(uint32_t path) { note("prove anew", path); }
  void opening_refused(uint32_t path) {
    note("opening fails", path);
    is_opening = false;
    has.erase(path);
  }
  void send_nic_lost(int nic) { note("NIC lost", uint32_t(nic)); }
  int home_nic() const { return 1; }
  int peer_home_nic() const { return 2; }
  void send_nic_back(int nic) { note("NIC back", uint32_t(nic)); }
  void home_may_work() { did.push_back("home may work"); }
  void rails_changed() { did.push_back("rails change"); }
};

/// A sender that has left path 1 and has both fences.
inline MigrationEnd choosing(uint32_t target = 0) {
  MigrationEnd end(true);
  end.leave(1, target);
  end.fenced();
  end.peer_has_fenced(1, 1, true);
  EXPECT_EQ(end.phase(), Phase::kChoosing);
  return end;
}

/// A sender: 1 carries, 2 is a lane, 3 stands by, 4 is being opened, 5 is being fenced.
inline Host with_paths() {
  Host host{{{1, {PathState::kActive}},
             {2, {PathState::kLane}},
             {3, {PathState::kStandby}},
             {4, {PathState::kOpening}},
             {5, {PathState::kFencing}}},
            {},
            1,
            true};
  host.opens_path = 4;
  return host;
}

}  // namespace r2ccl::testing_support
