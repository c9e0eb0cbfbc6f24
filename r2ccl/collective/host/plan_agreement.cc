// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/plan_agreement.h"

#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/collective/agreement_message.h"
#include "r2ccl/collective/attribution.h"
#include "r2ccl/collective/host/agreement_inputs.h"
#include "r2ccl/collective/host/agreement_star.h"
#include "r2ccl/collective/host/gate.h"
#include "r2ccl/collective/report.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::collective {
namespace {

struct ListenerImpl final : PlanAgreement::Listener {
  PlanAgreement::Address address() const override {
    PlanAgreement::Address bytes{};
    std::memcpy(bytes.data(), &star, sizeof star);
    return bytes;
  }
  StarAddress star;
  control::Descriptor socket;
};
static_assert(sizeof(StarAddress) <= PlanAgreement::kAddressBytes);

ViewPointer healthy(int ranks) {
  auto view = std::make_shared<View>();
  view->capacities.assign(size_t(ranks), 1.0);
  return view;
}

std::string number(uint64_t value) { return value == kNever ? "none" : std::to_string(value); }

class Driver final : public PlanAgreement {
 public:
  Driver(Star star, int rank, int ranks, Settings settings)
      : settings_(std::move(settings)),
        name_(settings_.name.empty() ? "" : " (" + settings_.name + ")"),
        rank_(rank),
        ranks_(ranks),
        star_(std::move(star)),
        nics_(nics_told(ranks, settings_.nics)),
        gate_(healthy(ranks)),
        inputs_(nics_),
        reported_(1 + nics_, kNominal),
        own_links_(size_t(ranks) * nics_),
        newest_(healthy(ranks)),
        member_({}, nics_),
        coordinator_(ranks, {}, nics_),
        pacer_(nanoseconds(settings_.settle)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Driver() override {
    if (getpid() != process_) {  // a forked child has no such thread
      thread_.detach();
      return;
    }
    stop_ = true;
    star_.wake();
    thread_.join();
    trace::Writer::instance().emit(trace::EventType::kPlansEnded, 0xffff, number_, 0, 0, 0, uint32_t(rank_));
  }

  Result<ViewPointer> view_for(uint64_t number) override { return gate_.view_for(number); }

  void set_capacity(const NodeCapacity& capacity) override {
    if (inputs_.take(capacity)) star_.wake();
  }

  void watch_capacity(std::function<NodeCapacity()> look) override {
    inputs_.watch(std::move(look));
    star_.wake();
  }

  void set_links(const LinkCodes& links) override {
    if (nics_ == 0 || links.size() != size_t(ranks_) * nics_) return;
    inputs_.set_links(links);
    star_.wake();
  }

  std::vector<size_t> take_tried() override { return inputs_.take_tried(); }

  void count_tuner(std::shared_ptr<OperationCounter> counter, bool leads) override {
    inputs_.count_tuner(std::move(counter), leads);
    star_.wake();
  }

  uint32_t group_number() const override { return number_; }
  bool settled() const override { return settled_; }

 private:
  static uint32_t next_number() {
    static std::atomic<uint32_t> made{0};
    return ++made;
  }
  static constexpr uint64_t kNothing = ~uint64_t{0};
  bool coordinates() const { return rank_ == 0; }
  void run() {
    pthread_setname_np(pthread_self(), "r2cc-plan");
    uint64_t due = 0;
    while (!stop_) {
      star_.wait(due);
      due = turn(now_ns());
    }
    if (coordinates()) {
      coordinator_.abort(outgoing_);
      send_all(now_ns());
    }
    // Others may have the decision and begin operations by it.
    if (held_tuner_)
      held_tuner_->fail({ErrorCode::kPeerGone, "the CollNet group was closed while a new plan was being agreed on"});
    star_.leave();
  }

  /// Does what is to be done; when to look again (kNothing: when something arrives).
  uint64_t turn(uint64_t now) {
    uint64_t next = kNothing;
    const auto at = [&next](uint64_t when) { next = std::min(next, when); };
    star_.tend(now);
    Star::Event event;
    while (star_.next(event)) {
      if (event.connected) {
        on_connected(event.rank);
      } else {
        on_bytes(event.rank, event.bytes, now);
      }
      send_all(now);
    }
    at(look(now));
    const uint64_t reports = report(now);
    at(reports);
    send_all(now);
    if (coordinates()) at(coordinate(now));
    send_all(now);
    at(star_.tend(now));
    at(watch(now));
    settled_ = !member_.pending() && member_.unanswered().empty() && reports == kNothing &&
               (!coordinates() || (coordinator_.idle() && !coordinator_.due(sequences())));
    return next;
  }

  void on_connected(int rank) {
    if (coordinates()) {
      coordinator_.unanswered(rank, outgoing_);
    } else {
      for (const AgreementMessage& message : member_.unanswered()) star_.send(0, encode(message));
    }
  }

  void on_bytes(int rank, std::span<const std::byte> bytes, uint64_t now) {
    const auto message = decode(bytes, ranks_, nics_);
    if (!message) return star_.drop(rank);
    if (coordinates()) {
      coordinator_.on_message(rank, message.value(), outgoing_);
    } else {
      hear(message.value(), now);
    }
  }

  // Rank 0's messages to itself go no other way than everybody's, but need no connection.
  void send_all(uint64_t now) {
    while (!outgoing_.empty()) {
      const auto out = std::exchange(outgoing_, {});
      for (const auto& [to, message] : out) {
        if (to == rank_) {
          hear(message, now);
        } else {
          star_.send(to, encode(message));
        }
      }
    }
  }

  void say(const AgreementMessage& message) {
    if (coordinates()) {
      coordinator_.on_message(0, message, outgoing_);
    } else {
      star_.send(0, encode(message));
    }
  }

  void hear(const AgreementMessage& message, uint64_t now) {
    Points points;
    points.fill(kNever);
    if (member_.takes(message)) {
      held_ = message.sequences;
      pending_since_ = now;
      if (held_ & bit(Sequence::kEngine)) points[size_t(Sequence::kEngine)] = *gate_.hold(engine_ahead());
      if (held_ & bit(Sequence::kTuner)) {
        held_tuner_ = inputs_.tuner();
        if (held_tuner_) points[size_t(Sequence::kTuner)] = held_tuner_->hold(kTunerAhead).value_or(kNever);
      }
    }
    std::optional<Decision> decision;
    const auto answer = member_.on_message(message, points, decision);
    if (decision) resume(*decision);
    if (answer) say(*answer);
  }

  void resume(const Decision& decision) {
    const uint64_t engine = decision.from[size_t(Sequence::kEngine)];
    const uint64_t tuner = decision.from[size_t(Sequence::kTuner)];
    if (held_ & bit(Sequence::kEngine)) gate_.resume(engine, decision.view);
    if (held_tuner_) held_tuner_->resume(tuner, decision.view);
    held_tuner_.reset();
    held_ = 0;
    failed_ = false;
    if (!decision.view) {
      R2_INFO("NET/R2CCL: mode 3%s: epoch %llu is abandoned, the plan is unchanged", name_.c_str(),
              static_cast<unsigned long long>(decision.epoch));
      return;
    }
    try_links(*std::exchange(newest_, decision.view));
    R2_INFO("NET/R2CCL: mode 3%s: %s; epoch %llu from operation %s on (from the tuner's %s on)",
            name_.c_str(), in_words(*decision.view).c_str(), static_cast<unsigned long long>(decision.epoch),
            number(engine).c_str(), number(tuner).c_str());
    double least = 1;
    for (const double capacity : decision.view->capacities) least = std::min(least, capacity);
    trace::Writer::instance().emit(trace::EventType::kPlanAgreed, 0xffff, number_, decision.epoch, engine,
                                   uint64_t(least * 1000 + 0.5), uint32_t(rank_));
    if (settings_.on_view) settings_.on_view(decision);
  }

  /// An engine that has begun nothing of late has nothing that a hold could stop.
  uint64_t engine_ahead() const { return engine_rests_ && gate_.next() == begun_at_look_ ? 0 : kAhead; }

  /// What was measured of NICs that get their full share again must not have them named once more.
  void try_links(const View& before) {
    const std::vector<size_t> tried = links_tried(before, *newest_, size_t(rank_));
    if (tried.empty()) return;
    own_links_.forget(tried);
    inputs_.try_links(tried);
  }

  uint8_t counted() { return uint8_t(bit(Sequence::kEngine) | (inputs_.tuner() ? bit(Sequence::kTuner) : 0)); }
  uint8_t sequences() { return uint8_t(bit(Sequence::kEngine) | (inputs_.leads() ? bit(Sequence::kTuner) : 0)); }

  /// When to look again at what nobody tells of.
  uint64_t look(uint64_t now) {
    if (!inputs_.watches()) return kNothing;
    if (now < look_at_) return look_at_;
    inputs_.look();
    engine_rests_ = std::exchange(begun_at_look_, gate_.next()) == gate_.next();
    return look_at_ = now + nanoseconds(kLookEvery);
  }

  /// Tells rank 0 of this node's capacity, and of its links, when they have changed and the burst is over.
  uint64_t report(uint64_t now) {
    NodeCodes capacity = inputs_.capacity();
    if (const auto links = inputs_.changed_links()) own_links_.set(*links);
    CapacityCode pace = inputs_.engine_pace();
    if (const auto tuner = inputs_.tuner()) pace = tuner->engine_pace(pace);
    const uint64_t when =
        pacer_.due(capacity, reported_, now, own_links_.changed() || differ(pace, reported_pace_));
    const bool changed = now >= when;
    if (!changed && !inputs_.take_tuner_changed()) return when;
    if (changed) {
      inputs_.take_tuner_changed();
      pacer_.done(now);
      reported_ = std::move(capacity);
      reported_pace_ = pace;
      own_links_.tell();
    }
    say(member_.report(reported_, counted(), own_links_.told(), reported_pace_));
    return changed ? kNothing : when;
  }

  uint64_t coordinate(uint64_t now) {
    if (coordinator_.collecting()) {
      const uint64_t until = proposed_at_ + nanoseconds(settings_.answer_within);
      if (now < until) return until;
      coordinator_.abort(outgoing_);
      try_again_at_ = now + nanoseconds(settings_.answer_within);
      send_all(now);
    }
    if (!coordinator_.due(sequences()) || !star_.complete()) {
      due_since_ = 0;
      return kNothing;
    }
    if (due_since_ == 0) due_since_ = now;
    const uint64_t when = std::max(due_since_ + nanoseconds(settings_.settle), try_again_at_);
    if (now < when) return when;
    due_since_ = 0;
    proposed_at_ = now;
    coordinator_.propose(sequences(), outgoing_);
    send_all(now);
    return coordinator_.collecting() ? proposed_at_ + nanoseconds(settings_.answer_within) : kNothing;
  }

  /// A decision that stays away because rank 0 cannot be reached: the collective cannot complete.
  uint64_t watch(uint64_t now) {
    if (!member_.pending() || coordinates() || failed_) return kNothing;
    const auto lost = star_.lost_since();
    if (!lost) return kNothing;
    const uint64_t until = std::max(*lost, pending_since_) + nanoseconds(settings_.give_up);
    if (now < until && !star_.ended()) return until;
    failed_ = true;
    const Error error{ErrorCode::kPeerGone,
                      "rank 0 of the CollNet group could not be reached for " +
                          std::to_string((now - *lost) / kNsPerMs) +
                          " ms while a new plan was being agreed on: its decision is not known"};
    R2_WARN("NET/R2CCL: mode 3%s: %s", name_.c_str(), error.message.c_str());
    gate_.fail(error);
    if (held_tuner_) held_tuner_->fail(error);
    return kNothing;
  }

  const Settings settings_;
  const std::string name_;
  const int rank_, ranks_;
  const uint32_t number_ = next_number();
  const pid_t process_ = getpid();
  Star star_;
  const size_t nics_;  // of each node in a view
  Gate gate_;
  AgreementInputs inputs_;
  std::atomic<bool> stop_{false}, settled_{true};

  // The thread's own.
  NodeCodes reported_;
  CapacityCode reported_pace_ = kNominal;
  OwnLinks own_links_;
  ViewPointer newest_;
  Member member_;
  Coordinator coordinator_;  // rank 0's
  std::vector<Coordinator::Outgoing> outgoing_;
  std::shared_ptr<OperationCounter> held_tuner_;
  uint8_t held_ = 0;  // sequences of the pending epoch
  uint64_t pending_since_ = 0;
  ReportPacer pacer_;
  uint64_t proposed_at_ = 0, due_since_ = 0, try_again_at_ = 0, look_at_ = 0;
  uint64_t begun_at_look_ = 0;  // the engine's next operation
  bool engine_rests_ = false;   // it was the same one at the look before
  bool failed_ = false;
  std::thread thread_;
};

}  // namespace

PlanAgreement::Settings PlanAgreement::Settings::from(const Config& config) {
  Settings settings;
  settings.interface = {config.socket_interface, config.socket_family, config.comm_id};
  settings.give_up = config.unreached_bound() + config.fail_bound;
  return settings;
}

Result<std::unique_ptr<PlanAgreement::Listener>> PlanAgreement::listen(const Settings& settings) {
  if (sodium_init() < 0) return Error{ErrorCode::kSystem, "libsodium cannot be initialised"};
  auto listener = std::make_unique<ListenerImpl>();
  listener->star.version = kStarVersion;
  listener->star.token = control::random_token();
  auto socket = control::listen_any(settings.interface, listener->star.endpoint);
  if (!socket) return socket.error();
  listener->socket = std::move(*socket);
  return std::unique_ptr<Listener>(std::move(listener));
}

Result<std::unique_ptr<PlanAgreement>> PlanAgreement::join(std::unique_ptr<Listener> listener, int rank,
                                                           int ranks, const Address& rank_0,
                                                           const Settings& settings) {
  if (rank < 0 || rank >= ranks || ranks > kMostAgreeing)
    return Error{ErrorCode::kInvalidArgument,
                 "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                     " cannot agree on capacities: at most " + std::to_string(kMostAgreeing) + " can"};
  StarAddress hub;
  std::memcpy(&hub, rank_0.data(), sizeof hub);
  if (hub.version != kStarVersion)
    return Error{ErrorCode::kVersionMismatch, "rank 0 has another version of the agreement on capacities"};
  auto& own = static_cast<ListenerImpl&>(*listener);
  auto star = Star::make(rank == 0 ? std::move(own.socket) : control::Descriptor(), hub, rank, ranks);
  if (!star) return star.error();
  return std::unique_ptr<PlanAgreement>(std::make_unique<Driver>(std::move(*star), rank, ranks, settings));
}

}  // namespace r2ccl::collective
