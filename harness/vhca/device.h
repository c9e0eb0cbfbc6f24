// The devices of this process's node and what they say about themselves.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "harness/vhca/fabric_layout.h"
#include "harness/vhca/objects.h"

namespace vhca {

inline constexpr std::uint32_t kMaxQpWr = 16384;
inline constexpr std::uint32_t kMaxSge = 32;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr int kMaxCqe = 1 << 20;
inline constexpr std::uint32_t kMaxReadsOutstanding = 16;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 30;
inline constexpr int kGidCount = 2;

// GID 0: fe80:: with the port's GUID. GID 1: RoCE v2, ::ffff:10.<nic>.<node / 256>.<node % 256 + 1>.
union ibv_gid port_gid(const Port& port, int index);

ibv_device** get_device_list(int* count);
ibv_context* open_device(ibv_device* device);
int close_device(ibv_context* context);
std::uint64_t device_guid(const ibv_device* device);  // network order
int device_index(const ibv_device* device);

int query_device(ibv_context* context, ibv_device_attr* attr);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry, std::size_t size);

}  // namespace vhca
