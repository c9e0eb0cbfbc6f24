// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/memory_region.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "harness/vhca/memory/gpu_delay.h"
#include "harness/vhca/memory/gpu_memory.h"
#include "harness/vhca/memory/huge_pages.h"
#include "harness/vhca/process/objects.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {
namespace {

constexpr std::uint64_t kPage = 4096;

// 0, or the errno of a request that no device takes.
int check_access(int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB;
  // Optional flags of later libraries (IBV_ACCESS_OPTIONAL_RANGE) may be ignored by definition; others must
  // not be.
  if ((access & ~(kKnown | IBV_ACCESS_OPTIONAL_RANGE)) != 0) return EOPNOTSUPP;
  const bool wants_remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  return wants_remote_change && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

ibv_mr* refuse_region(int error) {
  errno = error;
  return nullptr;
}

// Gives [address, address + length) of this process a key, under the name `iova`. `gpu`: what others must
// know of it, or nullptr for host memory.
ibv_mr* make_region(ibv_pd* ibpd, void* address, std::size_t length, std::uint64_t iova, int access,
                    const GpuRegion* gpu = nullptr) {
  Pd& pd = pd_of(ibpd);
  Runtime& runtime = *Context::of(pd.context).runtime;
  auto table_index = runtime.fabric().memory_regions.claim(runtime.self());
  if (table_index == kMaxMemoryRegions) return refuse_region(ENOMEM);
  MrSlot& slot = runtime.fabric().memory_regions[table_index];
  constexpr std::uint32_t kGenerations = 1u << (32 - kMrSlotBits);
  std::uint32_t generation = (slot.generation.fetch_add(1) + 1) % kGenerations;
  if (generation == 0) generation = (slot.generation.fetch_add(1) + 1) % kGenerations;  // a key is never 0
  const auto key = static_cast<std::uint32_t>(generation << kMrSlotBits | table_index);
  slot.context.store(Context::of(pd.context).id);
  slot.pd = pd.id;
  slot.access = static_cast<std::uint32_t>(access);
  slot.iova = iova;
  slot.length = length;
  slot.address = gpu ? gpu_reference(table_index) : reinterpret_cast<std::uintptr_t>(address);
  if (gpu) {
    GpuRegion& region = runtime.fabric().gpu_regions[table_index];
    region = *gpu;
    region.nic = Context::of(pd.context).first_port;
    if (visibility_delay_ms() &&
        !delay_region(runtime.fabric(), runtime.self(), table_index, length, region.nic, region)) {
      slot.owner.store(0);
      return refuse_region(ENOMEM);
    }
  }
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

// Registers GPU memory. False: [address, address + length) is none, and `out` is unchanged.
bool register_gpu_memory(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access,
                         ibv_mr*& out) {
  GpuRegion region{};
  const GpuExport exported = export_gpu_memory(address, length, region);
  if (exported == GpuExport::kHost) return false;
  if (visibility_delay_ms() == 0)
    out = refuse_region(EINVAL);
  else
    out = exported == GpuExport::kDone ? make_region(pd, address, length, iova, access, &region)
                                       : refuse_region(EOPNOTSUPP);
  return true;
}

// Whether there is memory at all of these addresses, as the kernel finds out when it pins a region's pages.
bool is_mapped(const void* address, std::size_t length) {
  constexpr std::size_t kPagesAtOnce = 4096;
  unsigned char resident[kPagesAtOnce];
  const auto begin = reinterpret_cast<std::uintptr_t>(address) & ~(kPage - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(address) + length;
  for (std::uintptr_t at = begin; at < end; at += kPagesAtOnce * kPage)
    if (::mincore(reinterpret_cast<void*>(at), std::min<std::size_t>(end - at, kPagesAtOnce * kPage),
                  resident) != 0 &&
        errno == ENOMEM)
      return false;
  return true;
}

// The regions of those slots end: whoever has not looked at its key yet finds none.
void end_regions(Runtime& runtime, std::span<const std::size_t> slots) {
  if (slots.empty()) return;  // nothing is to be waited for
  auto& regions = runtime.fabric().memory_regions;
  for (const std::size_t slot : slots) regions[slot].key.store(0);
  // A transfer that has looked at the key before is still allowed to be at it; the memory may go when we
  // return.
  runtime.wait_for_transfers();
  for (const std::size_t slot : slots) {
    if (is_gpu(reinterpret_cast<void*>(regions[slot].address)) &&
        runtime.fabric().gpu_regions[slot].shadow != 0)
      end_delay(slot);
    regions[slot].context.store(0);
    regions[slot].owner.store(0);
  }
}

}  // namespace

ibv_mr* register_memory(ibv_pd* ibpd, void* address, std::size_t length, std::uint64_t iova, int access) {
  if (const int error = check_access(access)) return refuse_region(error);
  if (length == 0 || reinterpret_cast<std::uintptr_t>(address) + length < length)
    return refuse_region(EINVAL);
  if (Context::of(pd_of(ibpd).context).runtime->is_forked_copy()) return refuse_region(ENODEV);
  if (ibv_mr* region = nullptr; register_gpu_memory(ibpd, address, length, iova, access, region))
    return region;
  if (!is_mapped(address, length)) return refuse_region(EFAULT);
  if (wants_huge_pages()) use_huge_pages(address, length);
  return make_region(ibpd, address, length, iova, access);
}

ibv_mr* register_dma_buf(ibv_pd* ibpd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                         int access) {
  static const char* const told = std::getenv("VHCA_DMABUF");
  if (told && std::string_view(told) == "0") return refuse_region(EOPNOTSUPP);
  if (const int error = check_access(access)) return refuse_region(error);
  if (length == 0 || offset % kPage != iova % kPage || offset + length < length || iova + length < length)
    return refuse_region(EINVAL);
  if (Context::of(pd_of(ibpd).context).runtime->is_forked_copy()) return refuse_region(ENODEV);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return refuse_region(EBADF);
  if (status.st_size < 0 || offset + length > static_cast<std::uint64_t>(status.st_size))
    return refuse_region(EINVAL);
  // A driver exports a GPU's memory under the address that it has in the process.
  if (ibv_mr* region = nullptr;
      register_gpu_memory(ibpd, reinterpret_cast<void*>(iova), length, iova, access, region)) {
    if (region) region->addr = nullptr;
    return region;
  }
  const std::uint64_t before = offset % kPage;
  const int protection = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
  void* const mapping =
      ::mmap(nullptr, before + length, protection, MAP_SHARED, fd, static_cast<off_t>(offset - before));
  if (mapping == MAP_FAILED) return refuse_region(errno == ENOMEM ? ENOMEM : EINVAL);
  ibv_mr* const region = make_region(ibpd, static_cast<char*>(mapping) + before, length, iova, access);
  if (!region) {
    const int error = errno;
    ::munmap(mapping, before + length);
    return refuse_region(error);
  }
  auto& mr = *static_cast<Mr*>(region);
  mr.mapping = mapping;
  mr.mapped = before + length;
  mr.addr = nullptr;  // the program has no address of its own for it
  return region;
}

int deregister_memory(ibv_mr* ibmr) {
  const std::unique_ptr<Mr> mr(static_cast<Mr*>(ibmr));
  Runtime& runtime = *Context::of(mr->context).runtime;
  pd_of(mr->pd).users.fetch_sub(1);
  const auto unmap = [&] {
    if (mr->mapping) ::munmap(mr->mapping, mr->mapped);
  };
  if (runtime.is_forked_copy()) {
    unmap();
    return 0;
  }
  end_regions(runtime, {&mr->slot, 1});
  unmap();
  return 0;
}

void end_regions_of(const Context& context) {
  Runtime& runtime = *context.runtime;
  auto& regions = runtime.fabric().memory_regions;
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < regions.used_slots.load(); ++i)
    if (regions[i].owner.load() == runtime.self() && regions[i].context.load() == context.id)
      slots.push_back(i);
  end_regions(runtime, slots);
}

}  // namespace vhca
