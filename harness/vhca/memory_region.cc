#include "harness/vhca/memory_region.h"

#include <cerrno>
#include <memory>

#include "harness/vhca/huge_pages.h"
#include "harness/vhca/runtime.h"

namespace vhca {

void* resolve_key(const Fabric& fabric, std::uint32_t key, ProcessId owner, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t bytes, std::uint32_t rights) {
  const MrSlot& mr = fabric.memory_regions[key & (kMaxMemoryRegions - 1)];
  if (key == 0 || mr.key.load(std::memory_order_acquire) != key) return nullptr;
  if (mr.owner.load(std::memory_order_relaxed) != owner || mr.pd != pd || (mr.access & rights) != rights)
    return nullptr;
  const std::uint64_t offset = address - mr.iova;
  if (address < mr.iova || offset > mr.length || bytes > mr.length - offset) return nullptr;
  return reinterpret_cast<void*>(mr.address + offset);
}

ibv_mr* register_memory(ibv_pd* ibpd, void* address, std::size_t length, std::uint64_t iova, int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB;
  // Optional flags of later libraries (IBV_ACCESS_OPTIONAL_RANGE) may be ignored by definition; others must
  // not be.
  const bool wants_remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if ((access & ~(kKnown | IBV_ACCESS_OPTIONAL_RANGE)) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (length == 0 || reinterpret_cast<std::uintptr_t>(address) + length < length ||
      (wants_remote_change && !(access & IBV_ACCESS_LOCAL_WRITE))) {
    errno = EINVAL;
    return nullptr;
  }
  Pd& pd = pd_of(ibpd);
  Runtime& runtime = *Context::of(pd.context).runtime;
  if (runtime.is_forked_copy()) {
    errno = ENODEV;
    return nullptr;
  }
  auto table_index = runtime.fabric().memory_regions.claim(runtime.self());
  if (table_index == kMaxMemoryRegions) {
    errno = ENOMEM;
    return nullptr;
  }
  if (wants_huge_pages()) use_huge_pages(address, length);
  MrSlot& slot = runtime.fabric().memory_regions[table_index];
  constexpr std::uint32_t kGenerations = 1u << (32 - kMrSlotBits);
  std::uint32_t generation = (slot.generation.fetch_add(1) + 1) % kGenerations;
  if (generation == 0) generation = (slot.generation.fetch_add(1) + 1) % kGenerations;  // a key is never 0
  const auto key = static_cast<std::uint32_t>(generation << kMrSlotBits | table_index);
  slot.pd = pd.id;
  slot.access = static_cast<std::uint32_t>(access);
  slot.iova = iova;
  slot.length = length;
  slot.address = reinterpret_cast<std::uintptr_t>(address);
  slot.key.store(key, std::memory_order_release);
  auto mr = std::make_unique<Mr>();
  mr->context = pd.context;
  mr->pd = ibpd;
  mr->addr = address;
  mr->length = length;
  mr->handle = static_cast<std::uint32_t>(table_index);
  mr->lkey = mr->rkey = key;
  mr->slot = table_index;
  pd.users.fetch_add(1);
  return mr.release();
}

int deregister_memory(ibv_mr* ibmr) {
  const std::unique_ptr<Mr> mr(static_cast<Mr*>(ibmr));
  Runtime& runtime = *Context::of(mr->context).runtime;
  pd_of(mr->pd).users.fetch_sub(1);
  if (runtime.is_forked_copy()) return 0;
  MrSlot& slot = runtime.fabric().memory_regions[mr->slot];
  slot.key.store(0);
  // A transfer that has looked at the key before is still allowed to be at it; the memory may go when we
  // return.
  runtime.wait_for_transfers();
  slot.owner.store(0);
  return 0;
}

}  // namespace vhca
