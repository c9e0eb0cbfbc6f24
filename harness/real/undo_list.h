// SPDX-License-Identifier: Apache-2.0
// What a guard has changed and not put back yet, in a file: it outlives a guard that is killed, so that the
// next one, or the next r2bench, can put it back. Not a reboot: /run is empty after one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "harness/real/change.h"

namespace r2bench {

/// Made with mode 0700 when something is changed, gone when nothing is.
inline constexpr const char* kUndoFolder = "/run/r2bench-undo";

class UndoList {
 public:
  /// Takes over list `name`, or makes it; throws RealFaultError when another process still has it after
  /// `patience`, or the folder is not this user's alone.
  UndoList(const std::string& folder, const std::string& name, std::chrono::milliseconds patience);
  UndoList(const UndoList&) = delete;
  /// A list with nothing on it leaves no file.
  ~UndoList();

  const std::map<uint64_t, Change>& changes() const { return changes_; }
  /// Of the network namespace that the changes were made in: commands mean another interface elsewhere.
  bool made_here() const;
  /// In the file when it returns; throws RealFaultError when that cannot be.
  void remember(uint64_t id, const Change& change);
  void forget(uint64_t id);

 private:
  void read_file();
  void write_file() const;

  std::string folder_, path_, network_;
  int lock_ = -1;  ///< held for as long as this process lives
  std::map<uint64_t, Change> changes_;
};

/// Has a guard been here? Also of a process that may not look into the folder.
bool has_undo_lists(const std::string& folder = kUndoFolder);

/// Carries out what guards that are dead have left. `tell` gets a sentence for each change; guards that live
/// keep theirs. Returns how many changes could not be put back: they stay on their list.
size_t put_back_what_is_left(const std::function<void(const std::string&)>& tell,
                             const std::string& folder = kUndoFolder,
                             std::chrono::milliseconds limit = std::chrono::milliseconds(40'000));

}  // namespace r2bench
