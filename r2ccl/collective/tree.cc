// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {
namespace {

struct Tree {
  std::vector<int> parent;
  std::vector<Ranks> children;
};

/// In-order binary tree of positions first … last − 1: the middle is the root, so that odd positions are
/// leaves.
int add_subtree(Tree& tree, int first, int last, int parent) {
  if (first >= last) return -1;
  // The position with the most trailing zero bits, counted from 1, so that leaves are every other one.
  int root = first, most = -1;
  for (int i = first; i < last; ++i) {
    int zeros = 0;
    for (int n = i + 1; n % 2 == 0; n /= 2) ++zeros;
    if (zeros > most) most = zeros, root = i;
  }
  tree.parent[static_cast<size_t>(root)] = parent;
  for (const int child : {add_subtree(tree, first, root, root), add_subtree(tree, root + 1, last, root)}) {
    if (child >= 0) tree.children[static_cast<size_t>(root)].push_back(static_cast<uint32_t>(child));
  }
  return root;
}

Tree tree_of(uint32_t ranks) {
  Tree tree;
  tree.parent.assign(ranks, -1);
  tree.children.resize(ranks);
  add_subtree(tree, 0, static_cast<int>(ranks), -1);
  return tree;
}

/// Sums go up and the result comes down; `shift`: position i is rank i + shift.
void add_tree(ScheduleBuilder& builder, uint32_t ranks, uint32_t shift, uint16_t part, uint16_t group) {
  const Tree tree = tree_of(ranks);
  const auto rank = [&](uint32_t position) { return (position + shift) % ranks; };
  std::vector<uint32_t> up(ranks), down(ranks);
  for (uint32_t i = 0; i < ranks; ++i) {
    if (tree.parent[i] < 0) continue;
    up[i] = builder.connect(rank(i), rank(static_cast<uint32_t>(tree.parent[i])), part, group);
    down[i] = builder.connect(rank(static_cast<uint32_t>(tree.parent[i])), rank(i), part, group);
  }
  for (uint32_t i = 0; i < ranks; ++i) {
    OpRef complete;
    for (const uint32_t child : tree.children[i]) {
      complete = builder.recv(up[child], OpKind::kRecvReduce, 0, complete.same());
    }
    if (tree.parent[i] >= 0) {
      const OpRef sent = builder.send(up[i], 0, complete.same());
      complete = builder.recv(down[i], OpKind::kRecvCopy, 0, sent.same());
    }
    for (const uint32_t child : tree.children[i]) builder.send(down[child], 0, complete.same());
  }
}

}  // namespace

Schedule double_tree_allreduce(uint32_t ranks, uint32_t segments) {
  ScheduleBuilder builder("double tree", Collective::kAllReduce, ranks);
  for (uint32_t shift = 0; shift < 2; ++shift) {
    const uint16_t part = builder.add_part(0.5, segments, 1);
    add_tree(builder, ranks, shift, part, builder.add_group(shift == 0 ? "first tree" : "second tree"));
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
