// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/builder.h"

#include <numeric>
#include <utility>

namespace r2ccl::collective {

ScheduleBuilder::ScheduleBuilder(std::string name, Collective collective, uint32_t ranks) {
  schedule_.name = std::move(name);
  schedule_.collective = collective;
  schedule_.ranks = ranks;
  schedule_.lanes.resize(ranks);
}

uint16_t ScheduleBuilder::add_part(double fraction, uint32_t segments, uint32_t chunks) {
  return add_part(fraction, segments, std::vector<double>(chunks, 1.0));
}

uint16_t ScheduleBuilder::add_part(double fraction, uint32_t segments, std::vector<double> chunks) {
  const double sum = std::accumulate(chunks.begin(), chunks.end(), 0.0);
  for (double& chunk : chunks) chunk /= sum;
  Part part;
  part.fraction = fraction;
  part.segments = segments;
  part.first_chunk = schedule_.chunks();
  part.chunks = std::move(chunks);
  schedule_.parts.push_back(std::move(part));
  return static_cast<uint16_t>(schedule_.parts.size() - 1);
}

uint16_t ScheduleBuilder::add_group(std::string name, uint16_t rail_class) {
  schedule_.groups.push_back({std::move(name), rail_class});
  return static_cast<uint16_t>(schedule_.groups.size() - 1);
}

uint32_t ScheduleBuilder::connect(uint32_t from, uint32_t to, uint16_t part, uint16_t group,
                                  uint32_t credits) {
  const auto number = static_cast<uint32_t>(schedule_.connections.size());
  Connection connection;
  connection.from = from;
  connection.to = to;
  connection.group = group;
  connection.credits = credits;
  connection.from_lane = static_cast<uint16_t>(schedule_.lanes[from].size());
  schedule_.lanes[from].push_back({number, part, true, {}});
  connection.to_lane = static_cast<uint16_t>(schedule_.lanes[to].size());
  schedule_.lanes[to].push_back({number, part, false, {}});
  schedule_.connections.push_back(connection);
  return number;
}

void ScheduleBuilder::reserve(uint32_t connection, size_t ops) {
  const Connection& c = schedule_.connections[connection];
  schedule_.lanes[c.from][c.from_lane].ops.reserve(ops);
  schedule_.lanes[c.to][c.to_lane].ops.reserve(ops);
}

OpRef ScheduleBuilder::append(uint32_t rank, uint16_t lane, Op op) {
  std::vector<Op>& ops = schedule_.lanes[rank][lane].ops;
  ops.push_back(op);
  return {lane, static_cast<uint32_t>(ops.size() - 1)};
}

OpRef ScheduleBuilder::send(uint32_t connection, uint32_t chunk, Wait first, Wait second) {
  const Connection& c = schedule_.connections[connection];
  return append(c.from, c.from_lane, {OpKind::kSend, chunk, {first, second}});
}

OpRef ScheduleBuilder::recv(uint32_t connection, OpKind kind, uint32_t chunk, Wait first, Wait second) {
  const Connection& c = schedule_.connections[connection];
  return append(c.to, c.to_lane, {kind, chunk, {first, second}});
}

Schedule ScheduleBuilder::finish() {
  for (Connection& connection : schedule_.connections) {
    const Lane& lane = schedule_.lanes[connection.from][connection.from_lane];
    const Part& part = schedule_.parts[lane.part];
    double sum = 0;
    for (const Op& op : lane.ops) sum += part.chunks[op.chunk];
    connection.weight = sum * part.fraction;
  }
  return std::move(schedule_);
}

}  // namespace r2ccl::collective
