// SPDX-License-Identifier: Apache-2.0
// The devices of this process's node and what they say about themselves.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace vhca {

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
