// SPDX-License-Identifier: Apache-2.0
// The devices of this process's node and what they say about themselves.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "harness/vhca/fabric_layout.h"
#include "harness/vhca/objects.h"

namespace vhca {

inline constexpr std::uint32_t kMaxQpWr = 16384;
inline constexpr std::uint32_t kMaxSge = 32;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr int kMaxCqe = 1 << 20;
inline constexpr std::uint32_t kMaxReadsOutstanding = 16;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 30;
inline constexpr std::uint32_t kMaxSrqWr = 16384;

// GID 0: fe80:: with the port's GUID. GID 1, Ethernet only: RoCE v2, ::ffff:10.<nic + 16 * (port - 1)>.<node
// / 256>.<node % 256 + 1>.
union ibv_gid port_gid(const Port& port, int index);
int gid_count(const Port& port);
// The port's table, in host order: the default partition, and on InfiniBand a second one.
std::span<const std::uint16_t> partition_keys(const Port& port);
const Port& port_of(ibv_context* context, std::uint32_t number);
bool has_port(ibv_context* context, std::uint32_t number);

ibv_device** get_device_list(int* count);
ibv_context* open_device(ibv_device* device);
int close_device(ibv_context* context);
std::uint64_t device_guid(const ibv_device* device);  // network order
int device_index(const ibv_device* device);

int query_device(ibv_context* context, ibv_device_attr* attr);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
// 0 or an errno. Fills the port's own table; `entry` has `size` bytes.
int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                    std::size_t size);

}  // namespace vhca
