// SPDX-License-Identifier: Apache-2.0
// The agent's calls of libibverbs: V(ibv_reg_mr)(…). With AGENT_BINDS_AT_RUN_TIME it is not linked with the
// library and finds each function by dlvsym, as NCCL does.
#pragma once

#include <infiniband/verbs.h>

#ifdef AGENT_BINDS_AT_RUN_TIME
namespace agent {
void* verbs(const char* name);
}
#define V(name) (reinterpret_cast<decltype(&::name)>(::agent::verbs(#name)))
// The inline ibv_query_port falls back on the exported one, which this program is not linked with (verbs.cc).
#undef ibv_query_port
extern "C" int ibv_query_port(ibv_context* device, uint8_t port, _compat_ibv_port_attr* attributes);
#define ibv_query_port(context, port_num, port_attr) ___ibv_query_port(context, port_num, port_attr)
#else
#define V(name) (&::name)
#endif
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
