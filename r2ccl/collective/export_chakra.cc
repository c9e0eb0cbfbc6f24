// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <vector>

#include "r2ccl/collective/export.h"

namespace r2ccl::collective {
namespace {

/// A protobuf message being written (https://protobuf.dev/programming-guides/encoding): varints and
/// length-delimited fields are all that a trace needs.
class Protobuf {
 public:
  void varint(uint32_t field, uint64_t value) {
    append(uint64_t{field} << 3);
    append(value);
  }
  void bytes(uint32_t field, std::string_view value) {
    append(uint64_t{field} << 3 | 2);
    append(value.size());
    text_ += value;
  }
  void packed(uint32_t field, const std::vector<uint64_t>& values) {
    if (values.empty()) return;
    Protobuf inner;
    for (const uint64_t value : values) inner.append(value);
    bytes(field, inner.text_);
  }
  const std::string& text() const { return text_; }
  void append(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }

 private:
  std::string text_;
};

// Field numbers of et_def.proto.
enum NodeField : uint32_t { kId = 1, kName = 2, kType = 3, kCtrlDeps = 4, kDataDeps = 5, kAttr = 10 };
enum AttributeField : uint32_t {
  kAttrName = 1,
  kInt32 = 7,
  kInt64 = 9,
  kUint64 = 13,
  kBool = 27,
  kString = 29
};
enum NodeType : uint64_t { kComp = 4, kCommSend = 5, kCommRecv = 6 };

void attribute(Protobuf& node, std::string_view name, uint32_t field, uint64_t value) {
  Protobuf attr;
  attr.bytes(kAttrName, name);
  attr.varint(field, value);
  node.bytes(kAttr, attr.text());
}

void append_delimited(std::string& trace, const Protobuf& message) {
  Protobuf length;
  length.append(message.text().size());
  trace += length.text() + message.text();
}

/// Of each operation of a rank's lanes, in the order in which they run, the node that others wait for. An
/// addition has two nodes, the receive and what waits for it; the second is the one.
std::vector<std::vector<uint64_t>> ends_of(const Schedule& schedule, uint32_t rank) {
  uint64_t next = 1;
  std::vector<std::vector<uint64_t>> end(schedule.lanes[rank].size());
  for (size_t l = 0; l < schedule.lanes[rank].size(); ++l) {
    const Lane& lane = schedule.lanes[rank][l];
    for (uint64_t i = 0; i < schedule.iterations(lane); ++i) {
      for (const Op& op : lane.ops) {
        next += op.kind == OpKind::kRecvReduce ? 2 : 1;
        end[l].push_back(next - 1);
      }
    }
  }
  return end;
}

/// What is told of a node: its number, that of its lane's node before (0: none), the chunk and its length.
struct Node {
  uint64_t id, previous;
  uint32_t chunk;
  uint64_t bytes;
};

Protobuf transfer(const Schedule& schedule, const Lane& lane, const Op& op, const Node& it,
                  const std::vector<uint64_t>& waits) {
  const Connection& connection = schedule.connections[lane.connection];
  Protobuf node;
  node.varint(kId, it.id);
  node.bytes(kName, std::string(name(op.kind)) + " " + std::to_string(it.chunk));
  node.varint(kType, lane.sends ? kCommSend : kCommRecv);
  if (it.previous != 0) node.packed(kCtrlDeps, {it.previous});
  if (op.kind != OpKind::kRecvReduce) node.packed(kDataDeps, waits);
  attribute(node, "is_cpu_op", kBool, 0);
  attribute(node, "comm_size", kInt64, it.bytes);
  attribute(node, "comm_src", kInt32, connection.from);
  attribute(node, "comm_dst", kInt32, connection.to);
  attribute(node, "comm_tag", kInt32, lane.connection);
  return node;
}

Protobuf addition(const Node& it, const std::vector<uint64_t>& waits) {
  Protobuf node;
  node.varint(kId, it.id);
  node.bytes(kName, "add " + std::to_string(it.chunk));
  node.varint(kType, kComp);
  node.packed(kDataDeps, waits);
  attribute(node, "is_cpu_op", kBool, 0);
  attribute(node, "num_ops", kInt64, it.bytes);
  attribute(node, "tensor_size", kUint64, it.bytes);
  return node;
}

}  // namespace

std::string to_chakra(const Schedule& schedule, uint32_t rank, uint64_t bytes) {
  std::string trace;
  Protobuf metadata;
  metadata.bytes(1, "0.0.4");
  Protobuf described;
  described.bytes(kAttrName, "schedule");
  described.bytes(kString, schedule.name);
  metadata.bytes(2, described.text());
  append_delimited(trace, metadata);

  const auto ranges = chunk_ranges(schedule, bytes);
  const auto end = ends_of(schedule, rank);
  uint64_t id = 1;
  for (const Lane& lane : schedule.lanes[rank]) {
    uint64_t previous = 0;
    for (uint32_t segment = 0; segment < schedule.iterations(lane); ++segment) {
      for (const Op& op : lane.ops) {
        std::vector<uint64_t> waits;
        for (const Wait& wait : op.waits) {
          if (wait.none()) continue;
          const Lane& other = schedule.lanes[rank][wait.lane];
          const uint64_t of = wait.last ? schedule.iterations(other) - 1 : segment;
          waits.push_back(end[wait.lane][of * other.ops.size() + wait.op]);
        }
        const uint32_t chunk = schedule.part_of(lane).chunk(segment, op.chunk);
        const bool adds = op.kind == OpKind::kRecvReduce;
        append_delimited(trace,
                         transfer(schedule, lane, op, {id, previous, chunk, ranges[chunk].second}, waits));
        previous = id++;
        if (!adds) continue;
        waits.push_back(previous);
        append_delimited(trace, addition({id, previous, chunk, ranges[chunk].second}, waits));
        previous = id++;
      }
    }
  }
  return trace;
}

}  // namespace r2ccl::collective
