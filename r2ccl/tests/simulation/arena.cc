// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/arena.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace r2ccl::simulation {
namespace {

Arena* g_arena = nullptr;  // of this process, once it is a history's

struct SizeClass {
  size_t number, bytes;
};

constexpr size_t kSmallStep = 16, kSmallSizes = Arena::kSmall / kSmallStep;

SizeClass size_class(size_t bytes) {
  if (bytes <= Arena::kSmall) {
    const size_t number = bytes == 0 ? 1 : (bytes + kSmallStep - 1) / kSmallStep;
    return {number - 1, number * kSmallStep};
  }
  const auto width = size_t(std::bit_width(bytes - 1));
  const size_t least = size_t{1} << (width - 1), quarter = least / 4;
  const size_t quarters = (bytes - least + quarter - 1) / quarter;
  constexpr size_t kFirstWidth = std::bit_width(Arena::kSmall);
  return {kSmallSizes + 4 * (width - kFirstWidth) + quarters - 1, least + quarters * quarter};
}

}  // namespace

Arena* Arena::make() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return nullptr;
#else
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Arena;
#endif
}

void Arena::enter() {
  auto* const first = const_cast<std::byte*>(begin());
  if (next_) {
    const auto used = size_t(next_ - first);
    map(this, used + sizeof *this);
    std::memset(first, 0, used);
  }
  next_ = first;
  uncleared_ = const_cast<std::byte*>(end());
  free_ = {};
  g_arena = this;
}

void* Arena::allocate(size_t bytes) {
  if (bytes > kBytes) return nullptr;
  const SizeClass size = size_class(bytes);
  if (Free*& first = free_[size.number]) {
    Free* const object = first;
    first = object->next;
    return object;
  }
  const size_t alignment = bytes > kSmall ? kAlignment : kStep;
  const uintptr_t object = (uintptr_t(next_) + sizeof(Block) + alignment - 1) & ~uintptr_t(alignment - 1);
  if (object + size.bytes > uintptr_t(uncleared_)) return nullptr;
  next_ = reinterpret_cast<std::byte*>(object + size.bytes);
  reinterpret_cast<Block*>(object - sizeof(Block))->size = size.number;
  return reinterpret_cast<void*>(object);
}

void* Arena::take_uncleared(size_t bytes) {
  if (bytes > size_t(uncleared_ - next_)) return nullptr;
  uncleared_ -= (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return uncleared_;
}

// Where the kernel does not know how, they are mapped when they are touched.
void Arena::map(void* memory, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t first = uintptr_t(memory) & ~(kPage - 1),
                  end = (uintptr_t(memory) + bytes + kPage - 1) & ~(kPage - 1);
  static_cast<void>(madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE));
}

Arena* Arena::current() { return g_arena; }

void Arena::give_back(void* object) {
  Free*& first = free_[reinterpret_cast<const Block*>(uintptr_t(object) - sizeof(Block))->size];
  first = new (object) Free{first};
}

}  // namespace r2ccl::simulation

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

using r2ccl::simulation::Arena;
using r2ccl::simulation::g_arena;

// Not inlined: a compiler that sees into them takes free() for the wrong end of operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* object = g_arena ? g_arena->allocate(bytes) : nullptr;
  if (!object) object = std::malloc(bytes == 0 ? 1 : bytes);
  if (!object) throw std::bad_alloc();
  return object;
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  void* object = g_arena && size_t(alignment) <= Arena::kAlignment
                     ? g_arena->allocate(bytes > Arena::kSmall ? bytes : Arena::kSmall + 1)
                     : nullptr;
  if (!object && posix_memalign(&object, size_t(alignment), bytes) != 0) throw std::bad_alloc();
  return object;
}
[[gnu::noinline]] void operator delete(void* object) noexcept {
  if (g_arena && g_arena->has(object))
    g_arena->give_back(object);
  else
    std::free(object);
}
void operator delete(void* object, size_t) noexcept { operator delete(object); }
void operator delete(void* object, std::align_val_t) noexcept { operator delete(object); }
void operator delete(void* object, size_t, std::align_val_t) noexcept { operator delete(object); }

#endif
