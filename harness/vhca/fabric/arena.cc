// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/fabric/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace vhca {
namespace {

std::size_t pages_for(std::size_t bytes) { return (bytes + kArenaPageBytes - 1) / kArenaPageBytes; }

// Claims as much of the run as is free; returns how many pages it got.
std::size_t claim_run(Fabric& fabric, ProcessId owner, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    ProcessId expected = 0;
    if (!fabric.page_owner[first + i].compare_exchange_strong(expected, owner)) return i;
  }
  return count;
}

void release_run(Fabric& fabric, ProcessId owner, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    ProcessId expected = owner;
    fabric.page_owner[first + i].compare_exchange_strong(expected, 0);
  }
}

}  // namespace

std::uint64_t allocate_pages(Fabric& fabric, ProcessId owner, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(1, pages_for(bytes));
  if (count > kArenaPages) return 0;
  std::size_t first = fabric.next_page.fetch_add(static_cast<std::uint32_t>(count)) % kArenaPages;
  for (std::size_t looked = 0; looked < 2 * kArenaPages;) {
    if (first + count > kArenaPages) {
      looked += kArenaPages - first;
      first = 0;
      continue;
    }
    raise_mark(fabric.pages_used,
               first + count);  // before the claim: what is claimed is always below the mark
    const std::size_t got = claim_run(fabric, owner, first, count);
    if (got == count) {
      taken_over();
      const std::uint64_t offset = kArenaOffset + first * kArenaPageBytes;
      std::memset(at_offset<char>(fabric, offset), 0, count * kArenaPageBytes);
      return offset;
    }
    release_run(fabric, owner, first, got);
    first += got + 1;
    looked += got + 1;
  }
  return 0;
}

void free_pages(Fabric& fabric, ProcessId owner, std::uint64_t offset, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(1, pages_for(bytes));
  // While the pages are still ours: afterwards they may be someone else's.
  ::madvise(at_offset<char>(fabric, offset), count * kArenaPageBytes, MADV_REMOVE);
  release_run(fabric, owner, (offset - kArenaOffset) / kArenaPageBytes, count);
}

void release_all_pages(Fabric& fabric, ProcessId owner) {
  // Not punched out: another process may be reclaiming the same pages, and a third may have them already.
  for (std::size_t i = 0; i < fabric.pages_used.load(); ++i) {
    std::atomic<ProcessId>& page = fabric.page_owner[i];
    if (page.load(std::memory_order_relaxed) != owner) continue;
    ProcessId expected = owner;
    page.compare_exchange_strong(expected, 0);
  }
}

}  // namespace vhca
