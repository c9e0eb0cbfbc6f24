// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/memory_region.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace r2ccl::verbs {

namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr unsigned kRelaxed = IBV_ACCESS_RELAXED_ORDERING;

Error refusal(const char* call, const Device& device, size_t bytes, int error) {
  std::string text = std::string(call) + " of " + std::to_string(bytes) + " bytes on " + device.name() +
                     ": " + std::strerror(error);
  if (error != ENOMEM) return Error{ErrorCode::kVerbs, text};
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur != RLIM_INFINITY)
    text += "; RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur / 1024) + " KiB";
  return Error{ErrorCode::kMemoryLock, text};
}

}  // namespace

Result<MemoryRegion> MemoryRegion::create(const Device& device, void* data, size_t bytes) {
  MemoryRegion region;
  region.region_.reset(ibv_reg_mr(device.pd(), data, bytes, kAccess));
  if (!region.region_) return refusal("ibv_reg_mr", device, bytes, errno);
  return region;
}

Result<MemoryRegion> MemoryRegion::create_buffer(const Device& device, void* data, size_t bytes) {
  if (!device.relaxed_ordering()) return create(device, data, bytes);
  MemoryRegion region;
  region.region_.reset(ibv_reg_mr_iova2(device.pd(), data, bytes, uintptr_t(data), kAccess | kRelaxed));
  if (!region.region_) return refusal("ibv_reg_mr", device, bytes, errno);
  return region;
}

Result<MemoryRegion> MemoryRegion::create_from_dma_buf(const Device& device, int fd, uint64_t offset,
                                                       const void* data, size_t bytes) {
  const unsigned access = device.relaxed_ordering() ? kAccess | kRelaxed : kAccess;
  MemoryRegion region;
  auto* const register_it = dma_buf_registration();
  if (!register_it) return refusal("ibv_reg_dmabuf_mr", device, bytes, EOPNOTSUPP);
  region.region_.reset(register_it(device.pd(), offset, bytes, uintptr_t(data), fd, int(access)));
  if (!region.region_) return refusal("ibv_reg_dmabuf_mr", device, bytes, errno);
  return region;
}

}  // namespace r2ccl::verbs
