// SPDX-License-Identifier: Apache-2.0
// The address handles that datagrams are sent with.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

ibv_ah* create_ah(ibv_pd* pd, const ibv_ah_attr& attr);
int destroy_ah(ibv_ah* ah);
// The address of whoever sent the datagram that the completion and the GRH speak of. 0 or an errno.
int address_from_completion(ibv_context* context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* grh,
                            ibv_ah_attr& attr);

}  // namespace vhca
