// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

// Additions to an owned chunk have one order, so that a result's bits do not depend on who is faster: those
// with the smallest shares, which send the slowest, last. What is sent ahead of its turn waits in the
// connection's credits.
Schedule direct_allreduce(std::span<const double> shares, uint32_t segments, uint32_t depth) {
  const auto p = static_cast<uint32_t>(shares.size());
  ScheduleBuilder builder("direct", Collective::kAllReduce, p);
  Ranks owners;
  std::vector<double> sizes;
  for (uint32_t rank = 0; rank < p; ++rank) {
    if (shares[rank] <= 0) continue;
    owners.push_back(rank);
    sizes.insert(sizes.end(), depth, shares[rank]);
  }
  const uint16_t part = builder.add_part(1, segments, sizes), group = builder.add_group("direct");
  for (uint32_t j = 0; j < owners.size(); ++j) {
    const uint32_t owner = owners[j];
    Ranks others;
    for (uint32_t i = 1; i < p; ++i) others.push_back((owner + i) % p);
    std::stable_sort(others.begin(), others.end(),
                     [&](uint32_t a, uint32_t b) { return shares[a] > shares[b]; });
    std::vector<uint32_t> in, out;
    for (const uint32_t other : others) {
      in.push_back(builder.connect(other, owner, part, group, kDirectCredits));
      out.push_back(builder.connect(owner, other, part, group, kDirectCredits));
    }
    for (uint32_t d = 0; d < depth; ++d) {
      const uint32_t chunk = j * depth + d;
      OpRef complete;
      std::vector<OpRef> raw;
      for (const uint32_t from : in) {
        raw.push_back(builder.send(from, chunk));
        complete = builder.recv(from, OpKind::kRecvReduce, chunk, complete.same());
      }
      for (size_t i = 0; i < out.size(); ++i) {
        builder.send(out[i], chunk, complete.same());
        builder.recv(out[i], OpKind::kRecvCopy, chunk, raw[i].same());
      }
    }
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
