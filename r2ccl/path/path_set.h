// SPDX-License-Identifier: Apache-2.0
// A channel's paths: which of them carry, which stand by, and what becomes of those out of use. The service
// thread changes it; what the progress thread reads too, the active path and the lanes, it changes as the
// channel's owner.
//
// Where memory is short, functions that take a path over throw std::bad_alloc, and it is still where it was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "r2ccl/path/nic_workers.h"
#include "r2ccl/path/ownership.h"
#include "r2ccl/path/path.h"
#include "r2ccl/path/retired_paths.h"

namespace r2ccl {

class PathSet {
 public:
  /// `device_fatals`: ProcessContext's.
  explicit PathSet(const RetiredPaths::Fatals& device_fatals) : retired_(device_fatals) {}

  // --- those in use, in the order in which they were made
  auto begin() const { return paths_.begin(); }
  auto end() const { return paths_.end(); }
  size_t size() const { return paths_.size(); }
  Path& operator[](size_t i) const { return *paths_[i]; }
  /// The first for which `wanted(const Path*)` holds; nullptr: there is none.
  template <class Predicate>
  Path* first(Predicate&& wanted) const {
    for (const auto& path : paths_)
      if (wanted(static_cast<const Path*>(path.get()))) return path.get();
    return nullptr;
  }
  template <class Predicate>
  bool any(Predicate&& wanted) const {
    return first(wanted) != nullptr;
  }
  Path* find(uint32_t id) const {
    return first([id](const Path* path) { return path->id() == id; });
  }

  // --- those that carry
  /// It carries everything: CTS entries, ACKs and messages; nullptr: there is none just now.
  Path* active() const { return active_; }
  /// They carry segments of messages beside it.
  const std::vector<Path*>& lanes() const { return lanes_; }
  Path* carrying(uint32_t id) const {
    if (active_ && active_->id() == id) return active_;
    for (Path* lane : lanes_)
      if (lane->id() == id) return lane;
    return nullptr;
  }
  void activate(Path& path, Owned owned) {
    remove_lane(path, owned);
    path.state = PathState::kActive;
    active_ = &path;
  }
  void add_lane(Path& path, Owned) {
    lanes_.push_back(&path);
    path.state = PathState::kLane;
  }
  void remove_lane(const Path& path, Owned) { std::erase(lanes_, &path); }
  /// It carries no more, and is to be fenced.
  void leave(Path& path, Owned owned) {
    if (&path == active_) active_ = nullptr;
    remove_lane(path, owned);
    path.state = PathState::kFencing;
  }
  /// None carries any more.
  void leave_all(Owned) {
    active_ = nullptr;
    lanes_.clear();
  }

  // --- coming and going
  /// The next add() or reclaim() needs no memory.
  void reserve() { paths_.reserve(paths_.size() + 1); }
  Path& add(std::unique_ptr<Path>&& path) { return *paths_.emplace_back(std::move(path)); }
  /// Out of use; whole until `keep_until` (CLOCK_MONOTONIC, ns).
  void retire(uint32_t id, uint64_t keep_until) {
    const auto it = place_of(id);
    if (it == paths_.end()) return;
    retired_.retire(std::move(*it), keep_until);
    paths_.erase(it);
  }
  /// A retired path that is still whole, to be fenced after all; or one of those in use. nullptr when its
  /// queue pair is destroyed: then it brings nothing any more.
  Path* reclaim(uint32_t id) {
    reserve();
    if (auto path = retired_.reclaim(id)) return &add(std::move(path));
    return find(id);
  }
  /// One that this end could not fence is put out of reach with its completion queue, until traffic flows.
  void set_aside(uint32_t id) {
    const auto it = place_of(id);
    if (it == paths_.end()) return;
    aside_ = std::move(*it);
    paths_.erase(it);
  }
  Path* aside() const { return aside_.get(); }
  void retire_aside(uint64_t keep_until) {
    if (aside_) retired_.retire(std::move(aside_), keep_until);
  }
  void destroy_all(NicWorkers& workers) {
    while (!paths_.empty()) {
      retired_.destroy(workers, std::move(paths_.back()));
      paths_.pop_back();
    }
    if (aside_) retired_.destroy(workers, std::move(aside_));
    retired_.destroy_all(workers);
  }
  RetiredPaths& retired() { return retired_; }
  const RetiredPaths& retired() const { return retired_; }

 private:
  std::vector<std::unique_ptr<Path>>::iterator place_of(uint32_t id) {
    return std::find_if(paths_.begin(), paths_.end(), [id](const auto& path) { return path->id() == id; });
  }

  std::vector<std::unique_ptr<Path>> paths_;
  Path* active_ = nullptr;
  std::vector<Path*> lanes_;
  std::unique_ptr<Path> aside_;
  RetiredPaths retired_;
};

}  // namespace r2ccl
