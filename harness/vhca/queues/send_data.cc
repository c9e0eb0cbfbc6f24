// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/send_data.h"

#include <algorithm>
#include <array>

#include "harness/vhca/memory/gpu_memory.h"
#include "harness/vhca/memory/keys.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {
namespace {

constexpr std::size_t kGatherBytes = 1024;
constexpr std::uint64_t kLargeBytes = 32 * 1024;

// The WR's own buffers for [offset, offset + bytes); 0 pieces and false on a bad key.
bool local_pieces(Qp& qp, const SendEntry& e, std::uint64_t index, std::uint64_t offset, std::uint64_t bytes,
                  iovec* out, std::size_t& pieces) {
  pieces = 0;
  if (e.is_inline) {
    out[pieces++] = {&qp.inline_data[(index & qp.send_mask) * qp.init.cap.max_inline_data + offset], bytes};
    return true;
  }
  Runtime& runtime = *qp.owner->runtime;
  const std::uint32_t rights =
      carries_data_to_peer(e.opcode) ? 0 : static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE);
  const ibv_sge* sge = &qp.send_sges[(index & qp.send_mask) * qp.init.cap.max_send_sge];
  for (std::uint32_t i = 0; i < e.sge_count && bytes != 0; ++i) {
    if (offset >= sge[i].length) {
      offset -= sge[i].length;
      continue;
    }
    const std::uint64_t take = std::min<std::uint64_t>(sge[i].length - offset, bytes);
    void* at = resolve_key(runtime.fabric(), sge[i].lkey, runtime.self(), qp.shared->pd, sge[i].addr + offset,
                           take, rights);
    if (!at) return false;
    out[pieces++] = {at, take};
    offset = 0;
    bytes -= take;
  }
  return true;
}

}  // namespace

Answer place_piece(Qp& qp, SendEntry& e, std::uint64_t index, std::uint64_t bytes, std::uint64_t now) {
  std::array<iovec, kMaxSge> local;
  std::size_t pieces = 0;
  if (!local_pieces(qp, e, index, e.placed, bytes, local.data(), pieces)) return Answer::kLocalFault;
  // Short messages leave from one buffer that lies like the destination, so that the copy moves whole aligned
  // words.
  alignas(64) char gather[kGatherBytes + 64];
  if (bytes != 0 && bytes <= kGatherBytes && carries_data_to_peer(e.opcode) && !e.is_inline &&
      !any_gpu(local.data(), pieces)) {
    char* at = gather + ((e.remote_address + e.placed) & 63);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < pieces; ++i) {
      copy_whole_words(at + filled, local[i].iov_base, local[i].iov_len);
      filled += local[i].iov_len;
    }
    local[0] = {at, bytes};
    pieces = 1;
  }
  return place(*qp.owner->runtime, qp,
               {e, e.placed, bytes, e.placed == 0, e.placed + bytes == e.length, local.data(), pieces}, now);
}

bool may_share_a_copy(const SendEntry& e) {
  return (e.opcode == IBV_WR_RDMA_WRITE || e.opcode == IBV_WR_RDMA_READ) && e.length >= kLargeBytes &&
         e.length <= kTogetherBytes && e.placed == 0 && !e.is_inline && !e.dropped;
}

bool place_together(Qp& qp, std::uint64_t first, std::size_t count, std::uint64_t now) {
  std::array<iovec, kTogetherPieces> local;
  std::array<const SendEntry*, kTogetherMessages> sends;
  std::size_t pieces = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const SendEntry& e = qp.send_entry(first + i);
    sends[i] = &e;
    std::size_t its = 0;
    if (!local_pieces(qp, e, first + i, 0, e.length, local.data() + pieces, its)) return false;
    pieces += its;
  }
  return place_whole(*qp.owner->runtime, qp, sends.data(), count, local.data(), pieces, now) ==
         Answer::kPlaced;
}

}  // namespace vhca
