// SPDX-License-Identifier: Apache-2.0
// What other programs read: the files are taken apart again and hold what the schedule says.
#include "r2ccl/collective/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"

namespace r2ccl::collective {
namespace {

std::vector<Schedule> samples() {
  const std::vector<double> c = {1, 0.5, 1, 1, 0.75};
  return {ring_allreduce(natural_order(4), 2), mix_allreduce(5, mix_fractions(c).parts, 2),
          direct_allreduce(direct_shares(c).shares, 2), r2ccl_allreduce(5, r2ccl_rings(c, 4).rings, 4),
          ring_allgather(natural_order(3), 2)};
}

std::string attribute(const std::string& tag, const std::string& name) {
  std::smatch match;
  return std::regex_search(tag, match, std::regex(" " + name + "=\"([^\"]*)\"")) ? match[1].str() : "";
}

struct XmlBlock {
  int send = -1, recv = -1, channel = 0;
  std::vector<std::string> steps;
};

TEST(Xml, has_a_step_for_each_operation_and_dependencies_that_exist) {
  for (const Schedule& schedule : samples()) {
    const std::string xml = to_xml(schedule);
    std::vector<std::vector<XmlBlock>> gpus;
    const std::regex tag("<(gpu|tb|step) [^>]*>");
    for (auto at = std::sregex_iterator(xml.begin(), xml.end(), tag); at != std::sregex_iterator(); ++at) {
      const std::string text = at->str();
      if ((*at)[1] == "gpu") {
        EXPECT_EQ(attribute(text, "id"), std::to_string(gpus.size()));
        gpus.emplace_back();
      } else if ((*at)[1] == "tb") {
        gpus.back().push_back({std::stoi(attribute(text, "send")),
                               std::stoi(attribute(text, "recv")),
                               std::stoi(attribute(text, "chan")),
                               {}});
      } else {
        EXPECT_EQ(attribute(text, "s"), std::to_string(gpus.back().back().steps.size()));
        gpus.back().back().steps.push_back(text);
      }
    }
    ASSERT_EQ(gpus.size(), schedule.ranks);
    uint64_t operations = 0;
    std::map<std::tuple<int, int, int>, std::vector<std::string>> sent,
        received;  // chunks in order, by source, destination, channel
    for (int rank = 0; rank < static_cast<int>(gpus.size()); ++rank) {
      for (const XmlBlock& block : gpus[rank]) {
        EXPECT_NE(block.send < 0, block.recv < 0);
        for (const std::string& step : block.steps) {
          if (const int block_of = std::stoi(attribute(step, "depid")); block_of >= 0) {
            ASSERT_LT(block_of, static_cast<int>(gpus[rank].size()));
            const auto& others = gpus[rank][block_of].steps;
            const size_t index = std::stoul(attribute(step, "deps"));
            ASSERT_LT(index, others.size());
            EXPECT_EQ(attribute(others[index], "hasdep"), "1");
          }
          const std::string type = attribute(step, "type");
          if (type == "nop") continue;
          ++operations;
          auto& list = type == "s" ? sent[{rank, block.send, block.channel}]
                                   : received[{block.recv, rank, block.channel}];
          list.push_back(attribute(step, "srcoff"));
        }
      }
    }
    EXPECT_EQ(operations, schedule.operations()) << schedule.name;
    EXPECT_EQ(sent, received) << schedule.name;
    EXPECT_EQ(sent.size(), schedule.connections.size()) << "a pair and a channel name one connection";
  }
}

/// Reads protobuf's wire format; written for this test and not from the encoder.
struct Reader {
  const std::string& text;
  size_t at = 0;

  bool done() const { return at >= text.size(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }
  std::string chunk() {
    const size_t length = varint();
    EXPECT_LE(at + length, text.size());
    at += length;
    return text.substr(at - length, length);
  }
};

struct TraceNode {
  uint64_t id = 0, type = 0;
  std::string name;
  std::vector<uint64_t> deps;
  std::map<std::string, uint64_t> attributes;
};

TraceNode decode_node(const std::string& text) {
  TraceNode node;
  Reader reader{text};
  while (!reader.done()) {
    const uint64_t key = reader.varint();
    switch (key) {
      case 1 << 3:
        node.id = reader.varint();
        break;
      case 2 << 3 | 2:
        node.name = reader.chunk();
        break;
      case 3 << 3:
        node.type = reader.varint();
        break;
      case 4 << 3 | 2:
      case 5 << 3 | 2: {
        const std::string packed = reader.chunk();
        Reader inner{packed};
        while (!inner.done()) node.deps.push_back(inner.varint());
        break;
      }
      case 10 << 3 | 2: {
        const std::string attr = reader.chunk();
        Reader inner{attr};
        EXPECT_EQ(inner.varint(), 1u << 3 | 2);
        const std::string name = inner.chunk();
        EXPECT_EQ(inner.varint() & 7, 0u) << name;
        node.attributes[name] = inner.varint();
        break;
      }
      default:
        ADD_FAILURE() << "field " << (key >> 3) << " with wire type " << (key & 7);
        return node;
    }
  }
  return node;
}

TEST(Chakra, traces_match_each_other_and_their_dependencies_can_be_met) {
  constexpr uint64_t kBytes = 1000003;
  for (const Schedule& schedule : samples()) {
    using End = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;  // source, destination, tag, size
    std::multiset<End> sent, received;
    uint64_t operations = 0;
    for (uint32_t rank = 0; rank < schedule.ranks; ++rank) {
      const std::string trace = to_chakra(schedule, rank, kBytes);
      Reader reader{trace};
      const std::string metadata = reader.chunk();
      EXPECT_EQ(metadata.substr(0, 7), std::string("\x0a\x05") + "0.0.4");
      std::map<uint64_t, TraceNode> nodes;
      while (!reader.done()) {
        TraceNode node = decode_node(reader.chunk());
        EXPECT_TRUE(nodes.emplace(node.id, node).second) << "id " << node.id << " twice";
      }
      for (const auto& [id, node] : nodes) {
        if (node.type == 4) continue;
        ++operations;
        ASSERT_TRUE(node.type == 5 || node.type == 6) << node.type;
        const auto& a = node.attributes;
        EXPECT_EQ(node.type == 5 ? a.at("comm_src") : a.at("comm_dst"), rank);
        (node.type == 5 ? sent : received)
            .insert({a.at("comm_src"), a.at("comm_dst"), a.at("comm_tag"), a.at("comm_size")});
      }
      // No node waits for itself by way of others: all can be put in an order.
      std::set<uint64_t> over;
      for (bool moved = true; moved && over.size() < nodes.size();) {
        moved = false;
        for (const auto& [id, node] : nodes) {
          if (over.contains(id) || !std::all_of(node.deps.begin(), node.deps.end(),
                                                [&](uint64_t dep) { return over.contains(dep); }))
            continue;
          over.insert(id);
          moved = true;
        }
      }
      EXPECT_EQ(over.size(), nodes.size()) << schedule.name << ", rank " << rank;
    }
    EXPECT_EQ(operations, schedule.operations());
    EXPECT_EQ(sent, received) << schedule.name;
  }
}

}  // namespace
}  // namespace r2ccl::collective
