// SPDX-License-Identifier: Apache-2.0
#include "harness/report/whole_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ostream>
#include <streambuf>
#include <string>
#include <utility>

#include "harness/report/part_file.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the kernel's own limit (path_resolution(7))
constexpr int kMaxUnwritten = 100;

OutputError cannot_be_written(const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return OutputError(path.string() + ": cannot be written: " + std::strerror(error) +
                     (full ? "; free some space" : ""));
}

/// Closes at the end of its scope.
struct OpenFile {
  int fd = -1;
  ~OpenFile() { close(); }
  /// Returns the error, or 0. File systems of other machines tell here that there was no space.
  int close() { return fd >= 0 && ::close(std::exchange(fd, -1)) != 0 ? errno : 0; }
};

/// Writes to a file descriptor, and remembers the first error.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(int fd) : fd_(fd) { setp(room_.data(), room_.data() + room_.size()); }
  int error() const { return error_; }

 private:
  int_type overflow(int_type next) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
    return traits_type::not_eof(next);
  }
  int sync() override {
    for (const char* at = pbase(); at < pptr() && error_ == 0;) {
      const ssize_t count = ::write(fd_, at, size_t(pptr() - at));
      if (count >= 0) {
        at += count;
      } else if (errno == EAGAIN) {  // a descriptor of the caller's can be nonblocking
        pollfd writable{fd_, POLLOUT, 0};
        ::poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    setp(room_.data(), room_.data() + room_.size());
    return error_ == 0 ? 0 : -1;
  }

  int fd_;
  int error_ = 0;
  std::array<char, 1 << 16> room_;
};

/// Where and how a file is written.
struct Target {
  fs::path file;        ///< behind all links; it need not exist
  int descriptor = -1;  ///< of this process, which `file` names
  bool exists = false;
  bool replaceable = false;  ///< a regular file, or none yet
};

/// -1: it is none.
int number_of(const std::string& text) {
  int number = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? number : -1;
}

/// Throws OutputError where it can be told without writing that `named` cannot be written.
Target target_of(const fs::path& named) {
  Target target{named};
  std::error_code error;
  const fs::path descriptors = fs::canonical("/proc/self/fd", error);
  bool special = false;
  for (int links = 0; links < kMaxLinks && !special; ++links) {
    const fs::path folder =
        fs::canonical(target.file.has_parent_path() ? target.file.parent_path() : ".", error);
    if (error) break;  // opening the file tells why
    const std::string name = target.file.filename().string();
    if (folder == descriptors && number_of(name) >= 0) {
      target.descriptor = number_of(name);
      const int flags = ::fcntl(target.descriptor, F_GETFL);
      if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) throw cannot_be_written(named, EBADF);
      return target;
    }
    const bool link = fs::is_symlink(target.file, error);
    // What is behind a link of /proc is in use under another name; what is in /dev belongs to the system.
    special = (folder.string() + "/").starts_with("/proc/") || (folder == "/dev" && !link);
    if (special || !link) break;
    target.file = folder / fs::read_symlink(target.file, error);
  }
  if (special) target.file = named;
  struct stat status {};
  target.exists = ::stat(target.file.c_str(), &status) == 0;
  if (!target.exists && errno != ENOENT) throw cannot_be_written(named, errno);
  if (target.exists && S_ISDIR(status.st_mode)) throw cannot_be_written(named, EISDIR);
  if (target.exists && ::faccessat(AT_FDCWD, target.file.c_str(), W_OK, AT_EACCESS) != 0)
    throw cannot_be_written(named, errno);
  target.replaceable = !special && (!target.exists || S_ISREG(status.st_mode));
  return target;
}

/// True for an error of making the part, or of giving it the target's name, that concerns its folder or the
/// part, and not the target.
bool in_place_after(const Target& target, int error) {
  return target.exists && (error == EACCES || error == EPERM || error == EROFS || error == EBUSY ||
                           error == EXDEV || error == ENAMETOOLONG || error == EEXIST);
}

/// Returns the first error, or 0.
int write_to(int fd, const std::function<void(std::ostream&)>& content) {
  FileBuffer buffer(fd);
  std::ostream out(&buffer);
  content(out);
  out.flush();
  return buffer.error();
}

void write_in_place(const Target& target, const fs::path& named,
                    const std::function<void(std::ostream&)>& content) {
  const int create = target.exists ? 0 : O_CREAT;  // with it some systems refuse what others own in /tmp
  OpenFile opened{target.descriptor >= 0
                      ? ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0)
                      : ::open(target.file.c_str(), create | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666)};
  if (opened.fd < 0) throw cannot_be_written(named, errno);
  if (const int error = write_to(opened.fd, content); error != 0) throw cannot_be_written(named, error);
  if (const int error = opened.close(); error != 0) throw cannot_be_written(named, error);
}

/// Gives the new file the owner, the group and the permissions of the one that it replaces; false: it cannot.
bool take_over(const Target& target, int part) {
  struct stat before {};
  struct stat made {};
  if (!target.exists) return true;
  if (::stat(target.file.c_str(), &before) != 0 || ::fstat(part, &made) != 0) return false;
  if ((before.st_uid != made.st_uid || before.st_gid != made.st_gid) &&
      ::fchown(part, before.st_uid, before.st_gid) != 0)
    return false;
  return ::fchmod(part, before.st_mode & 0777) == 0;
}

/// All that `file` has. Returns the error of reading, or 0.
int copy_from(int file, std::ostream& out) {
  if (::lseek(file, 0, SEEK_SET) != 0) return errno;
  for (std::array<char, 1 << 16> room;;) {
    const ssize_t count = ::read(file, room.data(), room.size());
    if (count == 0) return 0;
    if (count > 0)
      out.write(room.data(), count);
    else if (errno != EINTR)
      return errno;
  }
}

/// Keeps what could not be written, under a name that no later writer takes away. Returns what says so.
std::string kept(PartFile& part, const fs::path& file) {
  for (int number = 1; number <= kMaxUnwritten; ++number) {
    const fs::path free = file.string() + ".unwritten" + (number == 1 ? "" : std::to_string(number));
    if (::link(part.path().c_str(), free.c_str()) == 0)
      return "; " + free.string() + " has what was to be written";
    if (errno != EEXIST) break;
  }
  return "; " + part.keep().string() + " has what was to be written";
}

}  // namespace

void write_whole(const fs::path& named, const std::function<void(std::ostream&)>& content) {
  const Target target = target_of(named);
  if (!target.replaceable) return write_in_place(target, named, content);
  PartFile part(target.file);
  if (in_place_after(target, part.error())) return write_in_place(target, named, content);
  if (part.error() != 0) throw cannot_be_written(named, part.error());
  if (!take_over(target, part.descriptor())) return write_in_place(target, named, content);
  if (const int error = write_to(part.descriptor(), content); error != 0)
    throw cannot_be_written(named, error);
  if (const int error = part.settle(); error != 0) throw cannot_be_written(named, error);
  const int error = part.rename_to(target.file);
  if (error == 0) return;
  if (!in_place_after(target, error)) throw cannot_be_written(named, error);
  int unread = 0;  // an error may cut the target off: what was written is in the part until it is there
  try {
    write_in_place(target, named, [&](std::ostream& out) { unread = copy_from(part.descriptor(), out); });
  } catch (const OutputError& failed) {
    throw OutputError(failed.what() + kept(part, target.file));
  }
  if (unread != 0) throw OutputError(cannot_be_written(named, unread).what() + kept(part, target.file));
}

void check_writable(const fs::path& named) {
  const Target target = target_of(named);
  // Opening a pipe waits for its reader, and closing it again would be the end of what the reader gets.
  if (!target.replaceable) return;
  const PartFile part(target.file);
  if (part.error() != 0 && !in_place_after(target, part.error()))
    throw cannot_be_written(named, part.error());
}

}  // namespace r2bench
