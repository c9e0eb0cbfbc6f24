// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/schedule.h"

#include <cmath>
#include <cstdio>

namespace r2ccl::collective {

const char* name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "AllReduce";
    case Collective::kAllGather:
      return "AllGather";
    case Collective::kReduceScatter:
      return "ReduceScatter";
    case Collective::kBroadcast:
      return "Broadcast";
    case Collective::kAllToAll:
      return "AlltoAll";
  }
  return "";
}

const char* name(OpKind kind) {
  switch (kind) {
    case OpKind::kSend:
      return "send";
    case OpKind::kRecv:
      return "recv";
    case OpKind::kRecvReduce:
      return "recvReduce";
    case OpKind::kRecvCopy:
      return "recvCopy";
  }
  return "";
}

uint32_t Schedule::chunks() const {
  uint32_t total = 0;
  for (const Part& part : parts) total += part.segments * part.chunks_per_segment();
  return total;
}

uint64_t Schedule::operations() const {
  uint64_t total = 0;
  for (const auto& of_rank : lanes) {
    for (const Lane& lane : of_rank) total += lane.ops.size() * iterations(lane);
  }
  return total;
}

double chunk_fraction(const Part& part, uint32_t index) {
  return part.fraction / part.segments * part.chunks[index];
}

std::vector<std::pair<uint64_t, uint64_t>> chunk_ranges(const Schedule& schedule, uint64_t elements) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges(schedule.chunks());
  double before = 0;
  uint64_t from = 0;
  size_t placed = 0;
  const auto place = [&](const Part& part, uint32_t segment, uint32_t index) {
    before += chunk_fraction(part, index);
    uint64_t to = static_cast<uint64_t>(std::llround(before * static_cast<double>(elements)));
    if (++placed == ranges.size() || to > elements) to = elements;
    if (to < from) to = from;
    ranges[part.chunk(segment, index)] = {from, to - from};
    from = to;
  };
  for (const Part& part : schedule.parts) {
    const uint32_t outer = part.block_major ? part.chunks_per_segment() : part.segments;
    const uint32_t inner = part.block_major ? part.segments : part.chunks_per_segment();
    for (uint32_t i = 0; i < outer; ++i) {
      for (uint32_t j = 0; j < inner; ++j) place(part, part.block_major ? j : i, part.block_major ? i : j);
    }
  }
  return ranges;
}

namespace {

std::string plain_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

void append_lane(std::string& text, const Schedule& schedule, uint32_t lane_number, const Lane& lane) {
  const Connection& connection = schedule.connections[lane.connection];
  text += "  lane " + std::to_string(lane_number) + (lane.sends ? " to rank " : " from rank ") +
          std::to_string(lane.sends ? connection.to : connection.from) + " (" +
          schedule.groups[connection.group].name + ", part " + std::to_string(lane.part) + ", " +
          std::to_string(schedule.iterations(lane)) + " ×, " + std::to_string(connection.credits) +
          " credits, weight " + plain_number(connection.weight) + ")\n";
  for (size_t i = 0; i < lane.ops.size(); ++i) {
    const Op& op = lane.ops[i];
    text += "    " + std::to_string(i) + ": " + name(op.kind) + " " + std::to_string(op.chunk);
    const char* joint = " after ";
    for (const Wait& wait : op.waits) {
      if (wait.none()) continue;
      text += joint + std::to_string(wait.lane) + "." + std::to_string(wait.op) +
              (wait.last ? " of the last segment" : "");
      joint = ", ";
    }
    text += "\n";
  }
}

}  // namespace

std::string to_text(const Schedule& schedule, std::span<const uint32_t> ranks) {
  std::string text = schedule.name + ": " + name(schedule.collective) + " of " +
                     std::to_string(schedule.ranks) + " ranks, " +
                     std::to_string(schedule.connections.size()) + " connections, " +
                     std::to_string(schedule.operations()) + " operations\n";
  for (size_t i = 0; i < schedule.parts.size(); ++i) {
    const Part& part = schedule.parts[i];
    text += "part " + std::to_string(i) + ": " + plain_number(part.fraction) + " of the data, " +
            std::to_string(part.segments) + " segments of " + std::to_string(part.chunks.size()) +
            " chunks\n";
  }
  for (const uint32_t rank : ranks) {
    text += "rank " + std::to_string(rank) + "\n";
    for (uint32_t lane = 0; lane < schedule.lanes[rank].size(); ++lane) {
      append_lane(text, schedule, lane, schedule.lanes[rank][lane]);
    }
  }
  return text;
}

}  // namespace r2ccl::collective
