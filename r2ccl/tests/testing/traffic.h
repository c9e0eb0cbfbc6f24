// SPDX-License-Identifier: Apache-2.0
// Test support: verified traffic over one channel, as NCCL's progress thread drives it. Messages of many
// sizes, each with its own pattern, in slots that are used again as soon as test() says done.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/two_processes.h"

namespace r2ccl::testing_support {

/// The process's Net; a failed expectation and nullptr when there is none.
inline Net* net() {
  auto result = Net::acquire(nullptr);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : nullptr;
}

inline Channel* accept_one(Net& net, int device, const Link& link, Listener*& listener) {
  std::array<std::byte, kHandleBytes> handle{};
  auto listening = net.listen(device, handle.data());
  EXPECT_TRUE(listening.ok());
  listener = *listening;
  link.send(handle.data(), handle.size());
  return until_ready([&] { return net.accept(listener); });
}

inline Channel* connect_one(Net& net, int device, const Link& link) {
  std::array<std::byte, kHandleBytes> handle{};
  EXPECT_TRUE(link.receive(handle.data(), handle.size()));
  return until_ready([&] { return net.connect(device, handle.data()); });
}

/// Hands handles on between the children: what the receiver says, the sender hears.
inline void relay_handle(const Child& receiver, const Child& sender) {
  std::array<std::byte, kHandleBytes> handle{};
  if (receiver.link.receive(handle.data(), handle.size())) sender.link.send(handle.data(), handle.size());
}

/// Tries until the receive is taken; a failed expectation and nullptr on an error.
inline Request* post_receive(Net& net, Channel* channel, void* data, size_t bytes, Registration* reg) {
  for (;;) {
    auto request = net.irecv(channel, data, bytes, reg);
    EXPECT_TRUE(request.ok()) << request.error().message;
    if (!request) return nullptr;
    if (*request) return *request;
  }
}

constexpr size_t kLargest = 1 << 20;  ///< bytes of a slot
constexpr uint64_t kOpen = 8;         ///< messages in flight

inline size_t size_of_message(uint64_t message) {
  static constexpr size_t kSizes[] = {0, 1, 8, 127, 128, 4096, 65537, 524288, 1048576};
  return kSizes[message % std::size(kSizes)];
}

/// No lambda at its one use: a lambda is constexpr, and gcc would try a second long to evaluate it.
inline std::vector<uint8_t> bytes_of_messages() {
  std::vector<uint8_t> table(kLargest + 4096);
  uint64_t x = 88172645463325252ull;
  for (uint8_t& byte : table) byte = uint8_t((x ^= x << 13, x ^= x >> 7, x ^= x << 17) >> 32);
  return table;
}

/// The first `bytes` bytes of message `message`: pieces of one table at a start that the number decides, and
/// the number itself, so that no two messages in flight are alike.
inline void fill_message(uint64_t message, uint8_t* data, size_t bytes) {
  static const std::vector<uint8_t> table = bytes_of_messages();
  std::memcpy(data, table.data() + message * 61 % 4096, bytes);
  for (size_t at = 0; at + sizeof message <= bytes; at += 4096)
    std::memcpy(data + at, &message, sizeof message);
}

/// GPU memory, of a test that has any (a stand-in's): what it is called, and where the test may look at it.
struct GpuMemory {
  uint8_t* address;
  uint8_t* view;
};
inline std::function<GpuMemory(size_t bytes)> gpu_memory;

/// Where messages lie, and what NCCL would say of it: host memory, or a GPU's by a descriptor. For the latter
/// a memfd is the dma-buf, and the address that NCCL passes is one that cannot be read or written: whoever
/// looks through it ends the test.
class Slots {
 public:
  enum class Kind { kHost, kDmaBuf, kGpu };
  Slots(Kind kind, size_t bytes) : kind_(kind), bytes_(bytes) {
    if (kind == Kind::kHost) {
      view_ = static_cast<uint8_t*>(map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      address_ = view_;
      return;
    }
    if (kind == Kind::kGpu) {
      const GpuMemory memory = gpu_memory(bytes);
      address_ = memory.address;
      view_ = memory.view;
      return;
    }
    fd_ = memfd_create("slots", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd_, off_t(kBefore + bytes)), 0);
    view_ = static_cast<uint8_t*>(map(PROT_READ | PROT_WRITE, MAP_SHARED, fd_, kBefore));
    address_ = static_cast<uint8_t*>(map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Slots() {
    if (kind_ == Kind::kGpu) return;  // the process's end frees it
    munmap(view_, bytes_);
    if (kind_ != Kind::kHost) munmap(address_, bytes_);
    if (fd_ >= 0) close(fd_);
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  Result<Registration*> reg(Net& net, Channel* channel) {
    if (kind_ == Kind::kHost) return net.reg(channel, address_, bytes_);
    if (kind_ == Kind::kGpu) return net.reg(channel, address_, bytes_, {BufferMemory::Kind::kGpu, -1, 0});
    auto registered = net.reg(channel, address_, bytes_, {BufferMemory::Kind::kDmaBuf, fd_, kBefore});
    close(fd_);  // as NCCL does
    fd_ = -1;
    return registered;
  }
  uint8_t* view(size_t at) const { return view_ + at; }        ///< what is in it
  uint8_t* address(size_t at) const { return address_ + at; }  ///< what NCCL calls it

 private:
  static constexpr size_t kBefore = 3 * 4096;
  void* map(int protection, int flags, int fd, size_t offset) const {
    void* mapped = mmap(nullptr, bytes_, protection, flags | MAP_NORESERVE, fd, off_t(offset));
    EXPECT_NE(mapped, MAP_FAILED);
    return mapped;
  }
  Kind kind_;
  size_t bytes_;
  int fd_ = -1;
  uint8_t* view_ = nullptr;
  uint8_t* address_ = nullptr;
};

/// Messages number `first` up to `last` (excluded) of 8 × kWords bytes, which all have their number in each
/// word, kOpen open at a time; every word is compared. Calls `look` behind each hundred.
template <size_t kWords>
void carry_words(Net& net, Channel* channel, uint64_t first, uint64_t last, bool sends,
                 const std::function<void()>& look = {}) {
  using Message = std::array<uint64_t, kWords>;
  std::vector<Message> slots(kOpen);
  auto reg = net.reg(channel, slots.data(), kOpen * sizeof(Message));
  ASSERT_TRUE(reg.ok());
  std::array<Request*, kOpen> open{};
  for (uint64_t posted = first, done = first; done < last;) {
    if (posted < last && posted < done + kOpen) {
      Message& slot = slots[posted % kOpen];
      slot.fill(sends ? posted : ~uint64_t{0});
      auto request =
          sends ? net.isend(channel, &slot, sizeof slot, *reg) : net.irecv(channel, &slot, sizeof slot, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) open[posted++ % kOpen] = *request;
    }
    if (done == posted) continue;
    auto outcome = net.test(open[done % kOpen]);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    if (!outcome->done) continue;
    for (const uint64_t word : slots[done % kOpen]) ASSERT_EQ(word, done);
    if (++done % 100 == 0 && look) look();
  }
  EXPECT_TRUE(net.dereg(channel, *reg).ok());
}

/// Receives messages number `first` up to `messages` (excluded) and compares every byte; also that nothing
/// was written behind them.
inline void receive_messages(Net& net, Channel* channel, uint64_t first, uint64_t messages,
                             Slots::Kind kind = Slots::Kind::kHost) {
  Slots buffer(kind, kOpen * kLargest);
  std::vector<uint8_t> wanted(kLargest);
  auto reg = buffer.reg(net, channel);
  ASSERT_TRUE(reg.ok());
  std::array<Request*, kOpen> open{};
  uint64_t posted = first, done = first;
  while (done < messages) {
    if (posted < messages && posted < done + kOpen) {
      const size_t slot = posted % kOpen * kLargest;
      const size_t bytes = size_of_message(posted);
      std::memset(buffer.view(slot), 0xee, std::min(bytes + 64, kLargest));
      auto request = net.irecv(channel, buffer.address(slot), kLargest, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) open[posted++ % kOpen] = *request;
    }
    if (done < posted) {
      auto outcome = net.test(open[done % kOpen]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (outcome->done) {
        const size_t bytes = size_of_message(done);
        ASSERT_EQ(outcome->bytes, bytes) << "message " << done;
        const uint8_t* slot = buffer.view(done % kOpen * kLargest);
        fill_message(done, wanted.data(), bytes);
        ASSERT_EQ(std::memcmp(slot, wanted.data(), bytes), 0)
            << "message " << done << " of " << bytes << " bytes";
        for (size_t i = bytes; i < std::min(bytes + 64, kLargest); ++i)
          ASSERT_EQ(slot[i], 0xee) << "written beyond message " << done;
        ++done;
      }
    }
  }
  ASSERT_TRUE(net.dereg(channel, *reg).ok());
}

/// Sends messages number `first` up to `messages` (excluded); a slot is filled with other bytes as soon as
/// its message is done.
inline void send_messages(Net& net, Channel* channel, uint64_t first, uint64_t messages,
                          Slots::Kind kind = Slots::Kind::kHost) {
  Slots buffer(kind, kOpen * kLargest);
  auto reg = buffer.reg(net, channel);
  ASSERT_TRUE(reg.ok()) << reg.error().message;
  std::array<Request*, kOpen> open{};
  uint64_t posted = first, done = first;
  bool filled = false;
  while (done < messages) {
    if (posted < messages && posted < done + kOpen) {
      const size_t bytes = size_of_message(posted);
      const size_t slot = posted % kOpen * kLargest;
      if (!filled) fill_message(posted, buffer.view(slot), bytes);
      filled = true;
      auto request = net.isend(channel, buffer.address(slot), bytes, *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      if (*request) {
        open[posted++ % kOpen] = *request;
        filled = false;
      }
    }
    if (done < posted) {
      auto outcome = net.test(open[done % kOpen]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (outcome->done) {
        // At once, as NCCL's GPU might: whoever still reads the old bytes sends garbage.
        std::memset(buffer.view(done % kOpen * kLargest), 0x5a,
                    std::min<size_t>(size_of_message(done), 4096));
        ++done;
      }
    }
  }
  ASSERT_TRUE(net.dereg(channel, *reg).ok());
}

// Rounds. How much a fault test sends must not depend on how fast the machine is: the children send and
// receive round after round, and between two rounds the parent, which sees what was broken, says whether that
// is enough.

/// A child's side: a round is done; does the parent want one more?
inline bool one_more_round(const Link& link) {
  char word = 'r';
  link.send(&word, 1);
  return link.receive(&word, 1) && word == '+';
}

/// The parent's side: rounds until `enough`, or until a child has ended.
inline void run_rounds(const Child& receiver, const Child& sender, const std::function<bool()>& enough) {
  for (;;) {
    char word;
    for (const Child* child : {&receiver, &sender})
      if (!child->link.receive(&word, 1)) return;
    word = enough() ? '.' : '+';
    for (const Child* child : {&receiver, &sender})
      if (::send(child->link.fd, &word, 1, MSG_NOSIGNAL) != 1) return;
    if (word == '.') return;
  }
}

/// Messages of a round: 91 MB, or 36 MB.
constexpr uint64_t kRound = kSanitizerFactor > 1 ? 200 : 500;

inline void receive_rounds(Net& net, Channel* channel, const Link& link,
                           Slots::Kind kind = Slots::Kind::kHost) {
  uint64_t first = 0;
  do {
    receive_messages(net, channel, first, first + kRound, kind);
    first += kRound;
  } while (!testing::Test::HasFailure() && one_more_round(link));
}

inline void send_rounds(Net& net, Channel* channel, const Link& link, Slots::Kind kind = Slots::Kind::kHost) {
  uint64_t first = 0;
  do {
    send_messages(net, channel, first, first + kRound, kind);
    first += kRound;
  } while (!testing::Test::HasFailure() && one_more_round(link));
}

/// A receiver's whole life on `device`: accept, what `carry` does, close.
inline void receive_with(const Link& link, int device, const std::function<void(Net&, Channel*)>& carry) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  Listener* listener = nullptr;
  Channel* channel = accept_one(*n, device, link, listener);
  ASSERT_NE(channel, nullptr);
  carry(*n, channel);
  EXPECT_TRUE(n->close(channel).ok());
  EXPECT_TRUE(n->close(listener).ok());
}

inline void send_with(const Link& link, int device, const std::function<void(Net&, Channel*)>& carry) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  Channel* channel = connect_one(*n, device, link);
  ASSERT_NE(channel, nullptr);
  carry(*n, channel);
  EXPECT_TRUE(n->close(channel).ok());
}

inline void receive_all(const Link& link, uint64_t messages, int device = 0) {
  receive_with(link, device, [&](Net& n, Channel* channel) { receive_messages(n, channel, 0, messages); });
}

inline void send_all(const Link& link, uint64_t messages, int device = 0) {
  send_with(link, device, [&](Net& n, Channel* channel) { send_messages(n, channel, 0, messages); });
}

}  // namespace r2ccl::testing_support
