// SPDX-License-Identifier: Apache-2.0
// The folder of one run: made before the job starts, so that a full disk or a path that cannot be written is
// known before anything runs, and taken away again when its files cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/report/report.h"
#include "harness/report/whole_file.h"

namespace r2bench {

class RunFolder {
 public:
  /// Makes `path`, and its parents. An existing folder is taken only when it is empty and no other run has
  /// it. Throws OutputError when it cannot be made, cannot be written, or has less than `needed` bytes free.
  static RunFolder create(const std::filesystem::path& path, uint64_t needed = kNeededBytes);
  /// The same for `parent`/NAME-YYYYmmdd-HHMMSS, with -2, -3 … when another run has taken the name.
  static RunFolder create_fresh(const std::filesystem::path& parent, const std::string& name,
                                uint64_t needed = kNeededBytes);

  /// Removes everything in the folder, and each folder that was made for it, unless keep() was called.
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { made_.clear(), remove_content_ = false; }

  /// For a folder whose turn has not come yet: gives its lock back, and with it a file descriptor.
  void unlock();
  /// Takes it again, if it is not taken. Throws OutputError when another run has used the folder meanwhile.
  void lock();

  /// write_whole() into this folder.
  void write(const std::string& file_name, const std::string& content) const;
  void write(const std::string& file_name, const std::function<void(std::ostream&)>& content) const;
  /// Every format of file_reporters(), result.json last: where it is, the others are, too. Returns the names.
  std::vector<std::string> write_reports(const Report& report) const;

  static constexpr uint64_t kNeededBytes = 16u << 20;  // logs, timeline and pictures of a long run

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  void take();
  void require_empty() const;
  void prove(uint64_t needed) const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  ///< outermost first
  bool remove_content_ = true;
  bool waits_ = false;  ///< unlock() was called: another run may have the folder
  int lock_ = -1;       ///< the folder, locked: a run that has not written yet has it all the same
};

}  // namespace r2bench
