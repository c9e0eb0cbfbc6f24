// SPDX-License-Identifier: Apache-2.0
#include "harness/report/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <ostream>
#include <utility>

#include "harness/report/file_lock.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

OutputError cannot(const fs::path& path, const std::string& what, int error) {
  std::string advice;
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space, or choose another place with --out";
  if (error == EACCES || error == EROFS || error == EPERM) advice = "; choose another place with --out";
  return OutputError(path.string() + ": " + what + ": " + std::strerror(error) + advice);
}

/// Makes `path` and what it lacks above it; notes what was made, outermost first.
void make_folders(const fs::path& path, std::vector<fs::path>& made) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  for (fs::path at = path; !at.empty() && !fs::exists(at, ignored); at = at.parent_path())
    missing.push_back(at);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (::mkdir(it->c_str(), 0777) == 0) {
      made.push_back(*it);
    } else if (errno != EEXIST) {
      const int error = errno;
      throw cannot(*it, "cannot be made", error);
    }
  }
}

std::string local_time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

/// Closes at the end of its scope.
struct File {
  int fd = -1;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      made_(std::move(other.made_)),
      remove_content_(other.remove_content_),
      waits_(std::exchange(other.waits_, false)),
      lock_(std::exchange(other.lock_, -1)) {
  other.made_.clear();
  other.remove_content_ = false;
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  try {
    lock();
  } catch (const OutputError&) {
  }
  if (remove_content_) {
    for (const auto& entry : fs::directory_iterator(path_, ignored)) fs::remove_all(entry.path(), ignored);
  }
  // Only what is empty goes: another run may have begun to use a parent that was made here.
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) ::rmdir(it->c_str());
  if (lock_ >= 0) ::close(lock_);
}

// The kernel gives the lock back whatever the run dies of.
void RunFolder::take() {
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw cannot(path_, "cannot be read", errno);
  if (try_lock(lock_) == EWOULDBLOCK) {
    made_.clear(), remove_content_ = false;  // it is the other's
    throw OutputError(path_.string() +
                      ": another run is using this folder; choose another folder with --out");
  }
}

void RunFolder::require_empty() const {
  std::error_code error;
  const fs::directory_iterator content(path_, error);
  if (error) throw cannot(path_, "cannot be read", error.value());
  if (content != fs::directory_iterator())
    throw OutputError(path_.string() +
                      ": is not empty; an older result is never overwritten, choose another "
                      "folder with --out or remove it");
}

void RunFolder::unlock() {
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  waits_ = remove_content_ || !made_.empty();  // else it is kept
}

void RunFolder::lock() {
  if (!std::exchange(waits_, false)) return;
  try {
    take();
    require_empty();
  } catch (const OutputError&) {  // it is another run's now
    made_.clear(), remove_content_ = false;
    if (lock_ >= 0) ::close(std::exchange(lock_, -1));
    throw;
  }
}

RunFolder RunFolder::create(const fs::path& path, uint64_t needed) {
  RunFolder folder(path.lexically_normal().has_filename() ? path.lexically_normal()
                                                          : path.lexically_normal().parent_path());
  folder.remove_content_ = false;
  std::error_code ignored;
  if (fs::exists(folder.path_, ignored) && !fs::is_directory(folder.path_, ignored)) {
    throw OutputError(folder.path_.string() + ": is a file; --out needs a folder");
  }
  make_folders(folder.path_, folder.made_);
  folder.take();
  folder.require_empty();
  folder.remove_content_ = true;
  folder.prove(needed);
  return folder;
}

RunFolder RunFolder::create_fresh(const fs::path& parent, const std::string& name, uint64_t needed) {
  const std::string base = name + "-" + local_time_stamp();
  std::vector<fs::path> made;
  struct Undo {
    std::vector<fs::path>& made;
    ~Undo() {
      for (auto it = made.rbegin(); it != made.rend(); ++it) ::rmdir(it->c_str());
    }
  } undo{made};
  make_folders(parent, made);
  for (int i = 1; i < 10'000; ++i) {
    const fs::path path = parent / (i == 1 ? base : base + "-" + std::to_string(i));
    // mkdir is atomic: of two runs that start in one second, only one gets the name.
    if (::mkdir(path.c_str(), 0777) == 0) {
      RunFolder folder(path);
      folder.made_ = std::move(made);
      folder.made_.push_back(path);
      made.clear();
      folder.take();
      folder.prove(needed);
      return folder;
    }
    const int error = errno;
    if (error != EEXIST) throw cannot(path, "cannot be made", error);
  }
  throw OutputError((parent / base).string() + ": too many runs with this name");
}

void RunFolder::prove(uint64_t needed) const {
  const fs::path path = path_ / ".space";
  int error = 0;
  {
    const File file{::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)};
    if (file.fd < 0) {
      error = errno;
      throw cannot(path_, "cannot be written", error);
    }
    error = needed == 0 ? 0 : ::posix_fallocate(file.fd, 0, static_cast<off_t>(needed));
  }
  ::unlink(path.c_str());
  // A file system that cannot reserve says so; the write itself will tell.
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) {
    throw cannot(path_, "a run needs " + std::to_string(needed >> 20) + " MiB there", error);
  }
}

void RunFolder::write(const std::string& file_name, const std::string& content) const {
  write(file_name, [&](std::ostream& out) { out << content; });
}

void RunFolder::write(const std::string& file_name, const std::function<void(std::ostream&)>& content) const {
  write_whole(path_ / file_name, content);
}

std::vector<std::string> RunFolder::write_reports(const Report& report) const {
  std::vector<std::string> names;
  const auto reporters = file_reporters();
  for (const auto& reporter : reporters) names.push_back(reporter->file_name());
  for (auto it = reporters.rbegin(); it != reporters.rend();
       ++it)  // result.json, which stands for the run, last
    write((*it)->file_name(), [&](std::ostream& out) { (*it)->write(report, out); });
  return names;
}

}  // namespace r2bench
