// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/control/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace r2ccl::control {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // so that nobody's access can fault

/// The abstract address of that name; it says whose it is, so that users do not meet. What does not fit is
/// mixed (FNV-1a).
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::string text = "r2ccl/" + std::to_string(geteuid()) + "/" + name;
  constexpr size_t kRoom = sizeof address.sun_path - 1;
  if (text.size() > kRoom) {
    uint64_t mix = 0xcbf29ce484222325;
    for (const char c : text) mix = (mix ^ uint8_t(c)) * 0x100000001b3;
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(mix));
    text = text.substr(0, kRoom - 16) + digits;
  }
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

Descriptor new_socket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

constexpr size_t kMostAtOnce = 16, kMostGuests = 256;

/// Anybody may take an abstract name.
bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool give(int to, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/// What has come: a descriptor, nothing yet (kNothing), or something that is no page (kEnd).
constexpr int kNothing = -1, kEnd = -2;
int take(int from) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // with room for more the kernel would install more
  const ssize_t got = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? kNothing : kEnd;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  Descriptor file;
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    file = Descriptor(fd);
  }
  return got > 0 && file ? file.release() : kEnd;
}

}  // namespace

Result<SharedPage> SharedPage::make(const std::string& name, size_t bytes) {
  SharedPage page;
  page.name_ = name;
  page.bytes_ = bytes;
  Descriptor file(memfd_create("r2ccl-node", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), off_t(bytes)) != 0 || fcntl(file.get(), F_ADD_SEALS, kSeals) != 0 ||
      !page.map(std::move(file)))
    return Error{ErrorCode::kSystem, std::string("memory to share with other processes: ") + strerror(errno)};
  return page;
}

SharedPage::SharedPage(SharedPage&& other) noexcept { *this = std::move(other); }

SharedPage& SharedPage::operator=(SharedPage&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  std::swap(file_, other.file_);
  std::swap(memory_, other.memory_);
  std::swap(serving_, other.serving_);
  std::swap(joined_, other.joined_);
  std::swap(socket_, other.socket_);
  std::swap(guests_, other.guests_);
  return *this;
}

SharedPage::~SharedPage() {
  if (memory_) munmap(memory_, bytes_);
}

bool SharedPage::tend() {
  if (serving_) {
    let_in();
    return false;
  }
  if (!socket_.open() && !listen()) visit();
  return !serving_ && socket_.open() && receive();
}

bool SharedPage::listen() {
  sockaddr_un address;
  const socklen_t length = address_of(name_, address);
  Descriptor fd = new_socket();
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    return false;
  socket_ = Stream(std::move(fd));
  serving_ = true;
  return true;
}

void SharedPage::let_in() {
  std::erase_if(guests_, [](const Stream& guest) {
    char byte;
    const ssize_t got = recv(guest.fd(), &byte, 1, MSG_DONTWAIT);  // nobody has anything to say
    return got >= 0 || (errno != EAGAIN && errno != EINTR);
  });
  // Anybody may connect, and nobody may keep this thread or take all descriptors of the process.
  for (size_t i = 0; i < kMostAtOnce && guests_.size() < kMostGuests; ++i) {
    Descriptor guest(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!guest) return;
    if (same_user(guest.get()) && give(guest.get(), file_.get())) guests_.emplace_back(std::move(guest));
  }
}

void SharedPage::visit() {
  sockaddr_un address;
  const socklen_t length = address_of(name_, address);
  Descriptor fd = new_socket();
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || !same_user(fd.get()))
    return;
  socket_ = Stream(std::move(fd));
}

bool SharedPage::receive() {
  const int got = take(socket_.fd());
  if (got == kNothing) return false;
  if (got == kEnd) {  // who served has ended: next time
    socket_.close();
    joined_ = false;
    return false;
  }
  Descriptor file(got);
  struct stat theirs {
  }, ours{};
  const int seals = fcntl(file.get(), F_GET_SEALS);  // first: only a memfd has any
  const bool whole = seals >= 0 && (seals & kSeals) == kSeals && fstat(file.get(), &theirs) == 0 &&
                     size_t(theirs.st_size) == bytes_ && fstat(file_.get(), &ours) == 0;
  const bool same = whole && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
  joined_ = whole && (same || map(std::move(file)));
  if (!joined_) socket_.close();  // another time, perhaps
  return joined_ && !same;
}

bool SharedPage::map(Descriptor fd) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return false;
  if (memory_) munmap(memory_, bytes_);
  memory_ = memory;
  file_ = std::move(fd);
  return true;
}

}  // namespace r2ccl::control
