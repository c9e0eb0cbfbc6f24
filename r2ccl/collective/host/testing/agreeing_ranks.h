// SPDX-License-Identifier: Apache-2.0
// Test support: several ranks in one process that agree on capacities over real connections, which may be cut.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "r2ccl/collective/host/agreement_star.h"
#include "r2ccl/collective/host/gate.h"
#include "r2ccl/collective/host/plan_agreement.h"
#include "r2ccl/tests/testing/proxy.h"

namespace r2ccl::collective::testing_support {

using namespace std::chrono_literals;
using r2ccl::testing_support::Proxy;

/// What a rank saw of one sequence: the operations at which the view changed.
struct History {
  struct Change {
    uint64_t number;
    ViewPointer view;
  };
  std::vector<Change> changes;
  uint64_t begun = 0;

  void add(uint64_t number, const ViewPointer& view) {
    begun = number + 1;
    if (changes.empty() || changes.back().view->epoch != view->epoch) changes.push_back({number, view});
  }
  uint64_t epoch_of(uint64_t number) const {
    uint64_t epoch = 0;
    for (const Change& change : changes)
      if (change.number <= number) epoch = change.view->epoch;
    return epoch;
  }
};

class Ranks {
 public:
  explicit Ranks(int count, PlanAgreement::Settings settings = {}, bool tuner = false) : count_(count) {
    settings.interface.names = "lo";
    std::vector<std::unique_ptr<PlanAgreement::Listener>> listeners;
    for (int i = 0; i < count; ++i) listeners.push_back(std::move(PlanAgreement::listen(settings).value()));
    const auto straight = listeners[0]->address();
    StarAddress hub;
    std::memcpy(&hub, straight.data(), sizeof hub);
    for (int i = 0; i < count; ++i) {
      ways_.push_back(std::make_unique<Proxy>());
      endpoint_ = hub.endpoint;
      hubs_.push_back(hub);
      hubs_.back().endpoint = ways_.back()->where();
    }
    for (int i = 0; i < count; ++i) {
      settings.name = "rank " + std::to_string(i);
      settings_.push_back(settings);
    }
    listeners_ = std::move(listeners);
    histories_.resize(size_t(count));
    progress_ = std::vector<std::atomic<uint64_t>>(size_t(count));
    settled_capacity_ = std::vector<std::atomic<uint64_t>>(size_t(count));
    if (!tuner) return;
    for (int i = 0; i < count; ++i) tuners_.push_back(std::make_shared<Gate>(std::make_shared<View>()));
  }
  ~Ranks() { stop(); }

  /// The connections of `rank` are cut as `plans` say. Before join().
  void cut(int rank, std::deque<r2ccl::testing_support::Plan> plans) { plans_.emplace_back(rank, std::move(plans)); }

  void join() {
    for (int i = 0; i < count_; ++i) ways_[size_t(i)]->lead_to(endpoint_, {});
    for (auto& [rank, plans] : plans_) ways_[size_t(rank)]->lead_to(endpoint_, plans);
    for (auto& way : ways_) way->open();
    for (int i = 0; i < count_; ++i) {
      PlanAgreement::Address address{};
      std::memcpy(address.data(), &hubs_[size_t(i)], sizeof(StarAddress));
      auto joined =
          PlanAgreement::join(std::move(listeners_[size_t(i)]), i, count_, address, settings_[size_t(i)]);
      agreements_.push_back(std::move(joined.value()));
      if (!tuners_.empty()) agreements_.back()->count_tuner(tuners_[size_t(i)], i == 0);
    }
  }

  /// Operations begin on all ranks, none more than `apart` ahead of another one, until stop().
  void run(uint64_t apart = 64) {
    for (int i = 0; i < count_; ++i) threads_.emplace_back([this, i, apart] { begin_operations(i, apart); });
  }
  void stop() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  PlanAgreement& operator[](int rank) { return *agreements_[size_t(rank)]; }
  void leave(int rank) { agreements_[size_t(rank)].reset(); }
  Proxy& way(int rank) { return *ways_[size_t(rank)]; }
  Gate& tuner(int rank) { return *tuners_[size_t(rank)]; }
  const History& history(int rank) const { return histories_[size_t(rank)][0]; }
  const History& tuner_history(int rank) const { return histories_[size_t(rank)][1]; }

  /// Until operations of all ranks begin under `capacities`.
  void wait_for(const std::vector<double>& capacities) {
    uint64_t code = 1;
    for (const double c : capacities) code = code * 31 + code_of(c);
    for (auto& settled : settled_capacity_)
      while (settled != code) {
        if (ended_) throw std::runtime_error("a rank's operations have ended before");
        std::this_thread::yield();
      }
  }
  void expect_same_views() const {
    for (int sequence = 0; sequence < (tuners_.empty() ? 1 : 2); ++sequence) {
      const History& first = histories_[0][size_t(sequence)];
      for (int i = 1; i < count_; ++i) {
        const History& other = histories_[size_t(i)][size_t(sequence)];
        const uint64_t both = std::min(first.begun, other.begun);
        for (const History* one : {&first, &other})
          for (const auto& change : one->changes) {
            if (change.number >= both) continue;
            EXPECT_EQ(first.epoch_of(change.number), other.epoch_of(change.number))
                << "operation " << change.number << " of sequence " << sequence << " on ranks 0 and " << i;
            if (change.number == 0) continue;
            EXPECT_EQ(first.epoch_of(change.number - 1), other.epoch_of(change.number - 1));
          }
      }
    }
  }

 private:
  void begin_operations(int rank, uint64_t apart) {
    auto& histories = histories_[size_t(rank)];
    for (uint64_t number = 0; !stop_; ++number) {
      for (const auto& other : progress_)
        while (other + apart < number && !stop_) std::this_thread::yield();
      Result<ViewPointer> view = agreements_[size_t(rank)]->view_for(number);
      while (view && !*view && !stop_) {
        std::this_thread::yield();
        view = agreements_[size_t(rank)]->view_for(number);
      }
      if (!view) return end(rank, view.error());
      if (!*view) return;
      histories[0].add(number, *view);
      uint64_t code = 1;
      for (const double c : (*view)->capacities) code = code * 31 + code_of(c);
      if (!tuners_.empty()) {
        auto tuned = tuners_[size_t(rank)]->view_for(number);
        while (tuned && !*tuned && !stop_) {
          std::this_thread::yield();
          tuned = tuners_[size_t(rank)]->view_for(number);
        }
        if (!tuned) return end(rank, tuned.error());
        if (!*tuned) return;
        histories[1].add(number, *tuned);
        if ((*tuned)->epoch != (*view)->epoch) code = 0;
      }
      settled_capacity_[size_t(rank)] = code;
      progress_[size_t(rank)] = number;
      if (rank % 2 == 1 && number % 5 == 0) std::this_thread::yield();
    }
  }

  void end(int rank, const Error& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.message;
    ended_ = true;
  }

  const int count_;
  std::vector<PlanAgreement::Settings> settings_;
  control::Endpoint endpoint_;
  std::vector<StarAddress> hubs_;
  std::vector<std::unique_ptr<Proxy>> ways_;
  std::vector<std::pair<int, std::deque<r2ccl::testing_support::Plan>>> plans_;
  std::vector<std::unique_ptr<PlanAgreement::Listener>> listeners_;
  std::vector<std::shared_ptr<Gate>> tuners_;
  std::vector<std::unique_ptr<PlanAgreement>> agreements_;
  std::vector<std::array<History, 2>> histories_;
  std::vector<std::atomic<uint64_t>> progress_, settled_capacity_;
  std::atomic<bool> stop_{false}, ended_{false};
  std::vector<std::thread> threads_;
};

}  // namespace r2ccl::collective::testing_support
