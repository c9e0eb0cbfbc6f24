// SPDX-License-Identifier: Apache-2.0
// A new file beside the one that it is to replace: .NAME.r2bench-part, or with a number behind it where
// others write the same file. Its writer holds a lock (flock) on it for as long as it lives: a part without a
// lock was left by a writer that was killed. plots/whole_file.py makes them in the same way.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace r2bench {

class PartFile {
 public:
  /// Removes what killed writers of `file` have left, and makes a part. Where it cannot be made, error() says
  /// why, and descriptor() is -1.
  explicit PartFile(const std::filesystem::path& file);
  /// Removes the part, unless it was renamed or kept.
  ~PartFile();
  PartFile(const PartFile&) = delete;

  int error() const { return error_; }  ///< as errno; 0: it is there
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }

  /// Closes it, because file systems of other machines tell only then that there was no space, and keeps it
  /// open and locked all the same. Returns the error, or 0.
  int settle();
  /// It becomes `file`, and replaces what has that name. Returns the error, or 0.
  int rename_to(const std::filesystem::path& file);
  /// It is not removed at the end. Returns its name.
  std::filesystem::path keep();

 private:
  /// Makes path_; the error, or 0. EEXIST: others have it.
  int make();

  std::filesystem::path path_;
  int descriptor_ = -1;
  int error_ = 0;
};

/// Removes the parts in `folder` that no living writer has, of those files whose name `chosen` accepts.
void remove_stale_parts(const std::filesystem::path& folder,
                        const std::function<bool(const std::string& name)>& chosen);

}  // namespace r2bench
