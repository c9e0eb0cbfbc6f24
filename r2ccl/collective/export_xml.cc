// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "r2ccl/collective/export.h"

namespace r2ccl::collective {
namespace {

const char* msccl_collective(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kAllGather:
      return "allgather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllToAll:
      return "alltoall";
  }
  return "custom";
}

const char* msccl_type(OpKind kind) {
  return kind == OpKind::kSend ? "s" : kind == OpKind::kRecvReduce ? "rrc" : "r";
}

/// Where a rank's operations stand as steps, and which are waited for.
struct Steps {
  std::vector<std::vector<uint32_t>> of;      // by lane; by operation of all segments
  std::vector<std::vector<bool>> waited_for;  // likewise
};

uint64_t target(const Schedule& schedule, uint32_t rank, const Wait& wait, uint32_t segment) {
  const Lane& lane = schedule.lanes[rank][wait.lane];
  return (wait.last ? schedule.iterations(lane) - 1 : segment) * lane.ops.size() + wait.op;
}

Steps steps_of(const Schedule& schedule, uint32_t rank) {
  Steps steps;
  for (const Lane& lane : schedule.lanes[rank]) {
    std::vector<uint32_t>& of = steps.of.emplace_back();
    uint32_t next = 0;
    for (uint32_t segment = 0; segment < schedule.iterations(lane); ++segment) {
      for (const Op& op : lane.ops) {
        if (!op.waits[0].none() && !op.waits[1].none()) ++next;  // a nop before it
        of.push_back(next++);
      }
    }
    steps.waited_for.emplace_back(of.size(), false);
  }
  for (const Lane& lane : schedule.lanes[rank]) {
    for (uint32_t segment = 0; segment < schedule.iterations(lane); ++segment) {
      for (const Op& op : lane.ops) {
        for (const Wait& wait : op.waits) {
          if (!wait.none()) steps.waited_for[wait.lane][target(schedule, rank, wait, segment)] = true;
        }
      }
    }
  }
  return steps;
}

void append_step(std::string& xml, uint32_t step, const char* type, uint32_t chunk, int count, int lane,
                 long dependency, bool waited_for) {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "      <step s=\"%u\" type=\"%s\" srcbuf=\"o\" srcoff=\"%u\" dstbuf=\"o\" dstoff=\"%u\" cnt=\"%d\" "
      "depid=\"%d\" deps=\"%ld\" hasdep=\"%d\"/>\n",
      step, type, chunk, chunk, count, lane, dependency, waited_for ? 1 : 0);
  xml += text;
}

/// Lane `l` of a rank as a thread block.
void append_block(std::string& xml, const Schedule& schedule, uint32_t rank, size_t l, uint32_t channel,
                  const Steps& steps) {
  const Lane& lane = schedule.lanes[rank][l];
  const Connection& connection = schedule.connections[lane.connection];
  xml += "    <tb id=\"" + std::to_string(l) + "\" send=\"" +
         (lane.sends ? std::to_string(connection.to) : "-1") + "\" recv=\"" +
         (lane.sends ? "-1" : std::to_string(connection.from)) + "\" chan=\"" + std::to_string(channel) +
         "\">\n";
  size_t n = 0;
  for (uint32_t segment = 0; segment < schedule.iterations(lane); ++segment) {
    for (const Op& op : lane.ops) {
      const uint32_t step = steps.of[l][n];
      const auto dependency = [&](const Wait& wait) -> long {
        return wait.none() ? -1
                           : static_cast<long>(steps.of[wait.lane][target(schedule, rank, wait, segment)]);
      };
      const auto block = [](const Wait& wait) { return wait.none() ? -1 : static_cast<int>(wait.lane); };
      const bool both = !op.waits[0].none() && !op.waits[1].none();
      const uint32_t chunk = schedule.part_of(lane).chunk(segment, op.chunk);
      if (both) append_step(xml, step - 1, "nop", 0, 0, block(op.waits[0]), dependency(op.waits[0]), false);
      const Wait& wait = both || op.waits[0].none() ? op.waits[1] : op.waits[0];
      append_step(xml, step, msccl_type(op.kind), chunk, 1, block(wait), dependency(wait),
                  steps.waited_for[l][n]);
      ++n;
    }
  }
  xml += "    </tb>\n";
}

}  // namespace

std::string to_xml(const Schedule& schedule) {
  // A thread block is told from others with the same peer by its channel.
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> used;
  std::vector<uint32_t> channel;
  uint32_t channels = 1;
  for (const Connection& connection : schedule.connections) {
    channel.push_back(used[{connection.from, connection.to}]++);
    channels = std::max(channels, channel.back() + 1);
  }
  const uint32_t chunks = schedule.chunks();
  std::string xml = "<algo name=\"" + schedule.name + "\" proto=\"Simple\" nchannels=\"" +
                    std::to_string(channels) + "\" nchunksperloop=\"" + std::to_string(chunks) +
                    "\" ngpus=\"" + std::to_string(schedule.ranks) + "\" coll=\"" +
                    msccl_collective(schedule.collective) +
                    "\" inplace=\"1\" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n";
  for (const Part& part : schedule.parts) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "  <!-- chunks %u to %u: %.6f of the data, %u segments of %u chunks -->\n",
                  part.first_chunk, part.chunk(part.segments, 0) - 1, part.fraction, part.segments,
                  part.chunks_per_segment());
    xml += text;
  }
  for (uint32_t rank = 0; rank < schedule.ranks; ++rank) {
    const std::string count = std::to_string(chunks);
    xml += "  <gpu id=\"" + std::to_string(rank) + "\" i_chunks=\"0\" o_chunks=\"" + count +
           "\" s_chunks=\"0\">\n";
    const Steps steps = steps_of(schedule, rank);
    for (size_t l = 0; l < schedule.lanes[rank].size(); ++l)
      append_block(xml, schedule, rank, l, channel[schedule.lanes[rank][l].connection], steps);
    xml += "  </gpu>\n";
  }
  return xml + "</algo>\n";
}

}  // namespace r2ccl::collective
