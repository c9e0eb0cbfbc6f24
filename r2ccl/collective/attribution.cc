// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/attribution.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace r2ccl::collective {
namespace {

enum NicSide { kSending, kReceiving };

struct SlowLink {
  size_t from, to;
};
using Nics = std::set<size_t>;

class Search {
 public:
  explicit Search(const RailLinks& links) : links_(links), may_(links.nodes), slow_(links.nodes) {
    for (auto& both : may_) both[kSending] = both[kReceiving] = true;
    for (size_t from = 0; from < links.nodes; ++from)
      for (size_t to = 0; to < links.nodes; ++to) {
        if (from == to) continue;
        const CapacityCode link = links.at(from, to);
        if (is_fast(link)) may_[from][kSending] = may_[to][kReceiving] = false;
        if (!is_slow(link)) continue;
        slow_[from][kSending].push_back({from, to});
        slow_[to][kReceiving].push_back({from, to});
      }
  }

  /// Slow links that are connected by common NICs.
  std::vector<std::vector<SlowLink>> components() const {
    std::vector<std::vector<SlowLink>> all;
    std::vector<bool> seen(links_.nodes);
    for (size_t first = 0; first < links_.nodes; ++first) {
      if (seen[first] || (slow_[first][kSending].empty() && slow_[first][kReceiving].empty())) continue;
      std::vector<size_t> nodes{first};
      std::vector<SlowLink> component;
      seen[first] = true;
      for (size_t i = 0; i < nodes.size(); ++i) {
        component.insert(component.end(), slow_[nodes[i]][kSending].begin(), slow_[nodes[i]][kSending].end());
        for (const auto& direction : slow_[nodes[i]])
          for (const SlowLink& link : direction)
            for (const size_t node : {link.from, link.to})
              if (!seen[node]) seen[node] = true, nodes.push_back(node);
      }
      all.push_back(std::move(component));
    }
    return all;
  }

  /// The one smallest set of NICs that explains these links; of two of one size that with fewer NICs slow in
  /// one direction only. Empty: there is none, or not one.
  Nics explanation(const std::vector<SlowLink>& links) const {
    for (size_t size = 1; size <= kMostSlowTogether; ++size) {
      std::set<Nics> found;
      Nics chosen;
      cover(links, size, chosen, found);
      if (found.empty()) continue;
      std::vector<std::pair<size_t, const Nics*>> ranked;
      for (const Nics& nics : found)
        ranked.emplace_back(std::count_if(nics.begin(), nics.end(), [this](size_t nic) { return one_way(nic); }), &nics);
      std::sort(ranked.begin(), ranked.end());
      if (ranked.size() > 1 && ranked[0].first == ranked[1].first) return {};
      const Nics& best = *ranked[0].second;
      const bool certain = std::all_of(best.begin(), best.end(), [this](size_t nic) { return witnesses(nic) >= 2; });
      return certain ? best : Nics();
    }
    return {};
  }

  /// Slow links that this NIC may be the reason of.
  size_t witnesses(size_t nic) const {
    size_t sum = 0;
    for (const NicSide side : {kSending, kReceiving})
      if (may_[nic][side]) sum += slow_[nic][side].size();
    return sum;
  }

  /// By its fastest slow link in each direction, the slower of both. A link to another one of `named` counts only where
  /// there is no other: it may be that one's.
  CapacityCode capacity(size_t nic, const Nics& named) const {
    for (const bool of_named : {false, true}) {
      CapacityCode least = kNominal;
      for (const NicSide side : {kSending, kReceiving}) {
        if (!may_[nic][side]) continue;
        CapacityCode most = 0;
        for (const SlowLink& link : slow_[nic][side])
          if (named.contains(side == kSending ? link.to : link.from) == of_named)
            most = std::max(most, links_.at(link.from, link.to));
        if (most > 0) least = std::min(least, most);
      }
      if (least < kNominal) return least;
    }
    return kNominal;
  }

 private:
  bool one_way(size_t nic) const {
    return std::any_of(slow_[nic].begin(), slow_[nic].end(), [](const auto& links) { return links.empty(); }) ||
           !may_[nic][kSending] || !may_[nic][kReceiving];
  }
  /// Each smallest set has one end of each link, so these two attempts find all of them.
  void cover(const std::vector<SlowLink>& links, size_t more, Nics& chosen, std::set<Nics>& found) const {
    const auto open = std::find_if(links.begin(), links.end(), [&](const SlowLink& link) {
      return !(chosen.contains(link.from) && may_[link.from][kSending]) && !(chosen.contains(link.to) && may_[link.to][kReceiving]);
    });
    if (open == links.end()) {
      found.insert(chosen);
      return;
    }
    if (more == 0) return;
    const std::pair<size_t, NicSide> ends[] = {{open->from, kSending}, {open->to, kReceiving}};
    for (const auto& [nic, side] : ends) {
      if (!may_[nic][side]) continue;
      chosen.insert(nic);  // it was not there: else the link would be covered
      cover(links, more - 1, chosen, found);
      chosen.erase(nic);
    }
  }

  const RailLinks& links_;
  std::vector<std::array<bool, 2>> may_;                  // no fast link in that direction
  std::vector<std::array<std::vector<SlowLink>, 2>> slow_;
};

}  // namespace

std::vector<CapacityCode> attribute(const RailLinks& links, std::span<const CapacityCode> before) {
  std::vector<CapacityCode> capacities(links.nodes, kNominal);
  const Search search(links);
  for (const auto& component : search.components()) {
    Nics named = search.explanation(component);
    if (named.empty())
      for (const SlowLink& link : component)
        for (const size_t node : {link.from, link.to})
          if (node < before.size() && before[node] < kNominal && search.witnesses(node) > 0) named.insert(node);
    for (const size_t nic : named) capacities[nic] = search.capacity(nic, named);
  }
  return capacities;
}

}  // namespace r2ccl::collective
