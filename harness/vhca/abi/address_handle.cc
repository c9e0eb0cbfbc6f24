// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/address_handle.h"

#include <endian.h>

#include <cerrno>
#include <memory>

#include "harness/vhca/process/addresses.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {

ibv_ah* create_ah(ibv_pd* pd, const ibv_ah_attr& attr) {
  Runtime& runtime = *Context::of(pd->context).runtime;
  int error = 0;
  Resolved resolved;
  if (runtime.is_forked_copy())
    error = ENODEV;
  else if (!has_port(pd->context, attr.port_num))
    error = EINVAL;
  else if (attr.is_global && attr.grh.dgid.raw[0] == 0xff)
    error = EOPNOTSUPP;  // multicast
  else
    error = resolve_address(runtime.fabric(), port_of(pd->context, attr.port_num), attr, resolved);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  auto handle = std::make_unique<AddressHandle>();
  handle->context = pd->context;
  handle->pd = pd;
  handle->attr = attr;
  handle->port = resolved.port;
  handle->target_gid = resolved.gid;
  pd_of(pd).users.fetch_add(1);
  return handle.release();
}

int destroy_ah(ibv_ah* handle) {
  pd_of(handle->pd).users.fetch_sub(1);
  const std::unique_ptr<AddressHandle> gone(static_cast<AddressHandle*>(handle));
  return 0;
}

int address_from_completion(ibv_context* context, std::uint8_t number, const ibv_wc& wc, const ibv_grh* grh,
                            ibv_ah_attr& attr) {
  if (!has_port(context, number)) return EINVAL;
  attr = {};
  attr.dlid = wc.slid;
  attr.sl = wc.sl;
  attr.src_path_bits = wc.dlid_path_bits;
  attr.port_num = number;
  if (!(wc.wc_flags & IBV_WC_GRH)) return 0;
  const Port& port = port_of(context, number);
  attr.is_global = 1;
  attr.grh.dgid = grh->sgid;
  const std::uint32_t word = be32toh(grh->version_tclass_flow);
  attr.grh.flow_label = word & 0xfffff;
  attr.grh.traffic_class = static_cast<std::uint8_t>(word >> 20);
  attr.grh.hop_limit = 0xff;
  for (int index = 0; index < gid_count(port); ++index)
    if (same_gid(port_gid(port, index), grh->dgid)) {
      attr.grh.sgid_index = static_cast<std::uint8_t>(index);
      return 0;
    }
  return EINVAL;
}

}  // namespace vhca
