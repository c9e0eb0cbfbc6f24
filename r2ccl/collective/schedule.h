// SPDX-License-Identifier: Apache-2.0
// A collective written down as data: per rank and lane, in order, which chunk is sent or received, and after
// what. Pure: no verbs, no clock, no threads. The executor runs it on channels, the flow simulator on ports,
// the checker on sets.
//
// A connection is a FIFO from one rank to another; its two ends are lanes. A lane runs its operations in
// order, and the lanes of a rank run beside each other: only waits order them. So a lane needs no peer per
// operation, and the n-th operation of a send lane meets the n-th of its receive lane.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace r2ccl::collective {

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };
const char* name(Collective collective);

enum class OpKind : uint8_t {
  kSend,        ///< what the slot holds now
  kRecv,        ///< into a slot that holds nothing
  kRecvReduce,  ///< adds to what the slot holds
  kRecvCopy,    ///< replaces what the slot holds by the result
};
const char* name(OpKind kind);

/// "Not before operation `op` of lane `lane` of the same rank has completed."
struct Wait {
  static constexpr uint16_t kNone = 0xffff;
  uint16_t lane = kNone;
  bool last = false;  ///< in the lane's last iteration; else in the same iteration as the one that waits
  uint32_t op = 0;

  bool none() const { return lane == kNone; }
  bool operator==(const Wait&) const = default;
};

struct Op {
  OpKind kind = OpKind::kSend;
  uint32_t chunk = 0;  ///< within a segment of the lane's part
  std::array<Wait, 2> waits{};
  bool operator==(const Op&) const = default;
};

/// A consecutive share of the data, cut into `segments` equal segments, each into chunks[] of the sizes
/// given.
struct Part {
  double fraction = 1;  ///< of the data; all parts' add up to 1
  uint32_t segments = 1;
  std::vector<double> chunks;  ///< relative sizes within a segment; add up to 1
  uint32_t first_chunk = 0;    ///< number of the first one within the schedule
  /// A chunk's segments lie beside each other, so that each rank's block is one piece (AllGather,
  /// ReduceScatter, AlltoAll); else a segment's chunks do.
  bool block_major = false;

  uint32_t chunks_per_segment() const { return static_cast<uint32_t>(chunks.size()); }
  uint32_t chunk(uint32_t segment, uint32_t index) const {
    return first_chunk + segment * chunks_per_segment() + index;
  }
  bool operator==(const Part&) const = default;
};

/// One end of a connection. Its operations are those of one segment; they are run for each segment of the
/// part in turn, so a schedule of 64 segments is no larger than one of a single segment.
struct Lane {
  uint32_t connection = 0;
  uint16_t part = 0;
  bool sends = false;
  std::vector<Op> ops;
  bool operator==(const Lane&) const = default;
};

struct Connection {
  uint32_t from = 0, to = 0;            ///< ranks
  uint16_t from_lane = 0, to_lane = 0;  ///< of these ranks
  uint16_t group = 0;                   ///< index into Schedule::groups
  uint32_t credits = 2;  ///< chunks that may be under way or arrived without having been taken by their op
  double weight = 0;     ///< the part of the data that it carries: its share of a port is proportional
  bool operator==(const Connection&) const = default;
};

/// Connections that belong together, such as one ring; they get a share of each port of their own where ports
/// are exclusive.
struct ConnectionGroup {
  std::string name;
  uint16_t rail_class = 0;  ///< which NICs carry it: 0 all of a node; others are the caller's (Ports)
  bool operator==(const ConnectionGroup&) const = default;
};

struct Schedule {
  std::string name;
  Collective collective = Collective::kAllReduce;
  uint32_t ranks = 0;
  uint32_t root = 0;  ///< Broadcast: who has the data
  std::vector<Part> parts;
  std::vector<ConnectionGroup> groups;
  std::vector<Connection> connections;
  std::vector<std::vector<Lane>> lanes;  ///< by rank
  /// Who must hold each chunk at the end (ReduceScatter, AlltoAll) and whose it is at the beginning
  /// (AllGather, AlltoAll); by chunk number, empty where everybody does.
  std::vector<uint32_t> owner, origin;

  uint32_t chunks() const;
  uint64_t operations() const;  ///< with all iterations
  const Part& part_of(const Lane& lane) const { return parts[lane.part]; }
  uint64_t iterations(const Lane& lane) const { return parts[lane.part].segments; }
  bool operator==(const Schedule&) const = default;
};

/// First element and number of elements of each chunk when `elements` of them are cut as the schedule says:
/// without gap or overlap; by chunk number. Chunks of few elements may be empty.
std::vector<std::pair<uint64_t, uint64_t>> chunk_ranges(const Schedule& schedule, uint64_t elements);

/// One chunk's part of the data.
double chunk_fraction(const Part& part, uint32_t index);

/// The schedule in words; of each of `ranks` also the lanes, operation by operation.
std::string to_text(const Schedule& schedule, std::span<const uint32_t> ranks = {});

}  // namespace r2ccl::collective
