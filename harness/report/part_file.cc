// SPDX-License-Identifier: Apache-2.0
#include "harness/report/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "harness/report/file_lock.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".r2bench-part";
constexpr int kMaxParts = 100;

fs::path part_of(const fs::path& file, int number) {
  return file.parent_path() /
         ("." + file.filename().string() + kEnding + (number == 1 ? "" : std::to_string(number)));
}

/// The name of the file that `part` is to replace; nullopt: it is no part.
std::optional<std::string> name_of(const std::string& part) {
  const size_t ending = part.rfind(kEnding);
  if (part.empty() || part[0] != '.' || ending == std::string::npos || ending < 2) return std::nullopt;
  const std::string number = part.substr(ending + std::string(kEnding).size());
  if (!std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); }))
    return std::nullopt;
  return part.substr(1, ending - 1);
}

void remove_if_stale(const fs::path& part) {
  const int fd = ::open(part.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && try_lock(fd) == 0 && has_name(fd, part))
    ::unlink(part.c_str());
  ::close(fd);
}

}  // namespace

int PartFile::make() {
  descriptor_ = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return errno;
  // Another writer can have taken it for stale before it was locked.
  if (try_lock(descriptor_) != EWOULDBLOCK && is_still_there(descriptor_, path_)) return 0;
  ::close(std::exchange(descriptor_, -1));
  return EEXIST;
}

PartFile::PartFile(const fs::path& file) {
  for (int number = 1; number <= kMaxParts; ++number) remove_if_stale(part_of(file, number));
  for (int number = 1; number <= kMaxParts; ++number) {
    path_ = part_of(file, number);
    error_ = make();
    if (error_ != EEXIST) break;
  }
  if (error_ != 0) path_.clear();
}

PartFile::~PartFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

int PartFile::settle() {
  const int again = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);  // it shares the lock
  if (again < 0) return 0;
  const int error = ::close(descriptor_) != 0 ? errno : 0;
  descriptor_ = again;
  return error;
}

int PartFile::rename_to(const fs::path& file) {
  if (::rename(path_.c_str(), file.c_str()) != 0) return errno;
  path_.clear();
  return 0;
}

fs::path PartFile::keep() { return std::exchange(path_, {}); }

void remove_stale_parts(const fs::path& folder, const std::function<bool(const std::string&)>& chosen) {
  std::error_code ignored;
  std::vector<fs::path> parts;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto name = name_of(entry->path().filename().string());
    if (name && chosen(*name)) parts.push_back(entry->path());
  }
  for (const fs::path& part : parts) remove_if_stale(part);
}

}  // namespace r2bench
