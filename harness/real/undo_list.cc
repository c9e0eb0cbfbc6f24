// SPDX-License-Identifier: Apache-2.0
#include "harness/real/undo_list.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "harness/base/json_text.h"
#include "harness/real/guard.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw RealFaultError("the list of changes to revert cannot be written to " + path + ": " + why);
}

/// Whoever can write a list has its commands run as root.
bool is_ours_alone(const std::string& path, mode_t type) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == type &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

std::string network_namespace() {
  std::error_code none;
  return fs::read_symlink("/proc/self/ns/net", none).string();
}

/// The locked file `path`, or -1 while another process has it.
int try_lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) fail(path, strerror(errno));
  struct stat open_file {
  }, named{};
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
      open_file.st_ino == named.st_ino)  // else its owner has just taken it away
    return fd;
  close(fd);
  return -1;
}

}  // namespace

UndoList::UndoList(const std::string& folder, const std::string& name, std::chrono::milliseconds patience)
    : folder_(folder), path_(folder + "/" + name + ".json"), network_(network_namespace()) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(folder, strerror(errno));
    if (!is_ours_alone(folder, S_IFDIR)) fail(folder, "it is not this user's alone (chmod 700)");
    lock_ = try_lock(folder + "/" + name + ".lock");
    if (lock_ >= 0) break;
    if (Clock::now() >= deadline) fail(path_, "another process has it");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  try {
    read_file();
  } catch (...) {
    close(lock_);
    throw;
  }
}

UndoList::~UndoList() {
  if (changes_.empty()) {
    for (const char* each : {".json", ".new", ".lock"})
      unlink(fs::path(path_).replace_extension(each).c_str());
    rmdir(folder_.c_str());  // not while another guard has a list there
  }
  close(lock_);
}

void UndoList::read_file() {
  if (!fs::exists(path_)) return;
  if (!is_ours_alone(path_, S_IFREG)) fail(path_, "somebody else has written it");
  std::ifstream file(path_);
  try {
    const auto json = json_from(std::string(std::istreambuf_iterator<char>(file), {}));
    json.at("network").get_to(network_);
    for (const auto& each : json.at("changes")) changes_[each.at("id")] = each.at("change").get<Change>();
  } catch (const nlohmann::json::exception& error) {
    fail(path_, error.what());
  }
}

bool UndoList::made_here() const { return network_ == network_namespace(); }

void UndoList::write_file() const {
  nlohmann::json json = {{"network", network_}, {"changes", nlohmann::json::array()}};
  for (const auto& [id, change] : changes_) json["changes"].push_back({{"id", id}, {"change", change}});
  const std::string text = json_text(json, 1) + "\n",
                    fresh = fs::path(path_).replace_extension(".new").string();
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) fail(fresh, strerror(errno));
  const bool written = write(fd, text.data(), text.size()) == ssize_t(text.size());
  const int error = errno;
  close(fd);
  if (!written) fail(fresh, strerror(error));
  if (rename(fresh.c_str(), path_.c_str()) != 0) fail(path_, strerror(errno));
}

void UndoList::remember(uint64_t id, const Change& change) {
  changes_[id] = change;
  write_file();
}

void UndoList::forget(uint64_t id) {
  if (changes_.erase(id) != 0) write_file();
}

bool has_undo_lists(const std::string& folder) { return fs::exists(folder); }

size_t put_back_what_is_left(const std::function<void(const std::string&)>& tell, const std::string& folder,
                             std::chrono::milliseconds limit) {
  std::error_code none;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.insert(entry.path().stem().string());
  size_t failed = 0;
  for (const std::string& name : names) {
    const std::string lock = folder + "/" + name + ".lock";
    const int held = is_ours_alone(folder, S_IFDIR) ? try_lock(lock) : -1;
    if (held < 0) continue;  // a guard lives, and puts its own changes back
    close(held);
    try {
      UndoList list(folder, name, std::chrono::milliseconds(0));
      if (!list.made_here()) {
        failed += list.changes().size();
        for (const auto& [id, change] : list.changes())
          tell(
              "a real fault was left in another network namespace, where it stays until r2bench runs "
              "there: " +
              change.in_words());
        continue;
      }
      Guard guard(limit, &list);
      guard.put_all_back([&](const std::string& text) { tell("left by a guard that was killed: " + text); });
      failed += guard.changed();
    } catch (const RealFaultError& error) {
      ++failed;
      tell(error.what());
    }
  }
  return failed;
}

}  // namespace r2bench
