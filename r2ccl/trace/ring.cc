// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/trace/ring.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/trace/metrics.h"

namespace r2ccl::trace {

constexpr uint64_t kMagic = 0x33676e6972633272;  // "r2cring3"

/// Start of the mapped file; the events follow at the next cache line.
struct alignas(64) Header {
  uint64_t magic;
  uint64_t capacity;                       // power of two
  std::atomic<uint64_t> unwanted;          // a bit for each hot type that the reader does not want
  alignas(64) std::atomic<uint64_t> next;  // sequence of the next event, from 1
  Event* events() { return reinterpret_cast<Event*>(this + 1); }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

namespace {

// An Event's sequence is shared between processes; the rest is guarded by it, in the manner of a seqlock.
std::atomic_ref<uint64_t> sequence_of(Event& event) { return std::atomic_ref<uint64_t>(event.sequence); }

bool is_hot(EventType type) {
  return type == EventType::kMessageReceived || type == EventType::kSegmentDelivered;
}

uint64_t bit(EventType type) { return uint64_t(type) < 64 ? uint64_t{1} << uint64_t(type) : 0; }

uint32_t thread_id() {
  thread_local const uint32_t id = uint32_t(syscall(SYS_gettid));
  return id;
}

constexpr uint64_t kBeingWritten = ~uint64_t{0};
constexpr size_t kPayloadWords = sizeof(Event) / sizeof(uint64_t) - 1;

// Payload words are copied one by one with relaxed atomics: a reader may look while a writer laps it.
void copy_payload(uint64_t* to, const uint64_t* from) {
  for (size_t i = 0; i < kPayloadWords; ++i)
    __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}
uint64_t* payload(Event& event) { return reinterpret_cast<uint64_t*>(&event) + 1; }

}  // namespace

Writer::Writer(const std::string& path) {
  fault_hook_ = reinterpret_cast<void (*)(const char*, uint64_t)>(dlsym(RTLD_DEFAULT, "faultinject_event"));
  if (path.empty()) return;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    R2_WARN("R2CC_TRACE: cannot open '%s': %s; no events will be recorded", path.c_str(),
            std::strerror(errno));
    return;
  }
  struct stat status {};
  void* memory = MAP_FAILED;
  // Every page is there before the first event: the fast path must not wait for a page fault.
  if (fstat(fd, &status) == 0 && size_t(status.st_size) > sizeof(Header))
    memory = mmap(nullptr, size_t(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  auto* header = memory == MAP_FAILED ? nullptr : static_cast<Header*>(memory);
  if (header && (header->magic != kMagic ||
                 sizeof(Header) + header->capacity * sizeof(Event) > size_t(status.st_size))) {
    munmap(memory, size_t(status.st_size));
    header = nullptr;
  }
  if (!header) {
    R2_WARN("R2CC_TRACE: '%s' is not a trace ring; no events will be recorded", path.c_str());
    return;
  }
  header_ = header;
  mapped_ = size_t(status.st_size);
}

Writer::~Writer() {
  if (header_) munmap(header_, mapped_);
}

Writer& Writer::instance() {
  // Never destroyed: other threads may still emit while the process ends.
  static Writer* const writer = [] {
    const char* path = std::getenv("R2CC_TRACE");
    return new Writer(path ? path : "");
  }();
  return *writer;
}

void Writer::emit(EventType type, uint16_t nic, uint32_t channel, uint64_t a, uint64_t b, uint64_t c,
                  uint32_t peer) noexcept {
  if (is_hot(type) && (!header_ || header_->unwanted.load(std::memory_order_relaxed) & bit(type))) return;
  const uint64_t now = header_ ? now_ns() : 0;
  if (header_) {
    const uint64_t sequence = header_->next.fetch_add(1, std::memory_order_relaxed);
    Event& slot = header_->events()[sequence & (header_->capacity - 1)];
    Event event{sequence, now, type, nic, channel, a, b, c, peer, thread_id(), 0};
    // Two writers never fill one slot at once: one that was off the CPU while the others went round finds it
    // taken, or younger than its own event, which is lost then. (Readers count it.)
    uint64_t before = sequence_of(slot).load(std::memory_order_relaxed);
    if (before < sequence &&
        sequence_of(slot).compare_exchange_strong(before, kBeingWritten, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
      std::atomic_thread_fence(std::memory_order_release);
      copy_payload(payload(slot), payload(event));
      sequence_of(slot).store(sequence, std::memory_order_release);
    }
  }
  if (is_hot(type)) return;
  if (Metrics* metrics = metrics_.load(std::memory_order_acquire))
    metrics->count({0, now ? now : now_ns(), type, nic, channel, a, b, c, peer, thread_id(), 0});
  if (fault_hook_) fault_hook_(name(type).data(), a);
}

Reader Reader::create(size_t capacity) {
  if (capacity == 0 || (capacity & (capacity - 1)) != 0)
    throw std::system_error(EINVAL, std::generic_category(), "trace ring capacity must be a power of two");
  Reader reader;
  reader.mapped_ = sizeof(Header) + capacity * sizeof(Event);
  reader.fd_ = memfd_create("r2ccl-trace", MFD_CLOEXEC);
  if (reader.fd_ < 0 || ftruncate(reader.fd_, off_t(reader.mapped_)) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a trace ring");
  void* memory =
      mmap(nullptr, reader.mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, reader.fd_, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "cannot map a trace ring");
  reader.header_ = static_cast<Header*>(memory);
  reader.header_->capacity = capacity;
  reader.header_->next.store(1, std::memory_order_relaxed);
  reader.header_->unwanted.store(0, std::memory_order_relaxed);
  reader.header_->magic = kMagic;
  reader.path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(reader.fd_);
  return reader;
}

Reader::Reader(Reader&& other) noexcept { *this = std::move(other); }

Reader& Reader::operator=(Reader&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(header_, other.header_);
  std::swap(mapped_, other.mapped_);
  std::swap(next_, other.next_);
  std::swap(path_, other.path_);
  return *this;
}

Reader::~Reader() {
  if (header_) munmap(header_, mapped_);
  if (fd_ >= 0) close(fd_);
}

void Reader::decline(EventType type) noexcept {
  if (is_hot(type)) header_->unwanted.fetch_or(bit(type), std::memory_order_relaxed);
}

uint64_t Reader::drain(std::vector<Event>& out) {
  uint64_t lost = 0;
  const uint64_t end = header_->next.load(std::memory_order_acquire);
  if (end - next_ > header_->capacity) {
    lost = end - next_ - header_->capacity;
    next_ += lost;
  }
  for (; next_ < end; ++next_) {
    Event& slot = header_->events()[next_ & (header_->capacity - 1)];
    Event copy;
    const uint64_t before = sequence_of(slot).load(std::memory_order_acquire);
    if (before < next_ || before == kBeingWritten) {
      // Not yet published. A writer that was killed in between leaves its slot so for ever: once the ring
      // has moved on by a quarter, it is counted as lost.
      if (end - next_ < header_->capacity / 4) break;
      ++lost;
      continue;
    }
    copy_payload(payload(copy), payload(slot));
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t after = sequence_of(slot).load(std::memory_order_relaxed);
    if (before != next_ || after != next_) {  // lapped while we looked
      ++lost;
      continue;
    }
    copy.sequence = next_;
    out.push_back(copy);
  }
  return lost;
}

}  // namespace r2ccl::trace
