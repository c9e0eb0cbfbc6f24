// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/selection.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "r2ccl/base/log.h"
#include "r2ccl/collective/host/node_counter.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::collective {

namespace {

/// What the agreement sees of the node's tuners: it turns a view into a size.
class Follower final : public OperationCounter {
 public:
  Follower(std::shared_ptr<NodeCounter> counter, Advise advise, uint32_t group, uint64_t id)
      : counter_(std::move(counter)), advise_(std::move(advise)), group_(group), id_(id) {}
  ~Follower() override { counter_->forget_engine(id_); }
  CapacityCode engine_pace(CapacityCode own) override { return counter_->engine_pace(id_, own); }
  std::optional<uint64_t> hold(uint64_t ahead) override { return counter_->hold(ahead); }
  void resume(uint64_t from, const ViewPointer& view) override {
    if (!view || from == kNever) return counter_->resume(kNever, std::nullopt);
    std::string why;
    const uint64_t least = least_bytes_worth_it(advise_, *view, why);
    counter_->resume(from, NodeCounter::Answer{view->epoch, least});
    if (least == kNever)
      trace::Writer::instance().emit(trace::EventType::kAlgorithmChosen, 0xffff, group_, view->epoch, 0,
                                     uint64_t(trace::PlannedAlgorithm::kNccl));
    R2_INFO("NET/R2CCL: mode 3: plan %" PRIu64 ": from the tuner's operation %" PRIu64 " on AllReduce %s: %s",
            view->epoch, from,
            least == kNever ? "stays with NCCL's own choice, on Balance"
                            : ("of " + std::to_string(least) + " bytes and more goes over CollNet").c_str(),
            why.c_str());
  }
  void fail(const Error& error) override { counter_->fail(error); }

 private:
  const std::shared_ptr<NodeCounter> counter_;
  const Advise advise_;
  const uint32_t group_;
  const uint64_t id_;
};

}  // namespace

// The tuners and groups of this process, which NCCL makes without telling one of the other.
struct Registry {
  std::mutex mutex;
  std::vector<Selection*> selections;
  std::vector<GroupOffer*> offers;

  static Registry& get() {
    static Registry registry;
    return registry;
  }

  // Locked. A group that has no tuner gets the first one of its communicator.
  void match() {
    for (GroupOffer* offer : offers) {
      if (offer->selection_ || offer->communicator_ == 0) continue;
      for (Selection* selection : selections)
        if (selection->setting_.communicator == offer->communicator_ &&
            selection->setting_.nodes == offer->ranks_) {
          offer->selection_ = selection;
          tell(*offer);
          break;
        }
    }
  }

  // Locked. NCCL before 2.28 does not say which communicator a tuner and a group are of. It makes the tuner
  // after the group: so it is the one group that waits for a tuner, or it is not known.
  void match_unnamed(Selection* selection) {
    std::vector<GroupOffer*> waiting;
    for (GroupOffer* offer : offers)
      if (!offer->selection_ && offer->communicator_ == 0) waiting.push_back(offer);
    if (waiting.size() == 1 && waiting[0]->ranks_ == selection->setting_.nodes) {
      waiting[0]->selection_ = selection;
      tell(*waiting[0]);
    } else {
      R2_INFO("NET/R2CCL: mode 3: %zu CollNet groups wait for a tuner: this communicator of %" PRIu64
              " ranks stays with NCCL's own choice",
              waiting.size(), selection->setting_.ranks);
    }
  }

  // Locked. The agreement counts the tuners as soon as all of the node are here.
  static void tell(GroupOffer& offer) {
    Selection& selection = *offer.selection_;
    if (!selection.counter_ || !selection.counted_) return;
    offer.agreement_.count_tuner(std::make_shared<Follower>(selection.counter_, offer.advise_,
                                                            offer.agreement_.group_number(), offer.id_),
                                 selection.counter_->lead(offer.id_));
  }
};

namespace {

uint64_t new_id() {
  static std::atomic<uint32_t> made{0};
  return uint64_t(uint32_t(getpid())) << 32 | (made++ + 1);
}

constexpr uint64_t kLonelyOperations = 1000;  // operations without the node's other tuners
constexpr size_t kMostAdvice = 1024;          // sizes of operations

}  // namespace

Selection::Setting Selection::Setting::from(const Config& config) {
  Setting setting;
  setting.node = config.node_scope;
  // NCCL's own word for "another node", which several processes of one host may have.
  if (const char* host = std::getenv("NCCL_HOSTID")) setting.node += std::string("/") + host;
  setting.at_most = config.connect_bound;
  return setting;
}

Selection::Selection(Setting setting) : setting_(std::move(setting)) {
  const bool even = setting_.nodes > 1 && setting_.ranks % setting_.nodes == 0;
  const uint64_t local = even ? setting_.ranks / setting_.nodes : 0;
  if (even && local <= uint64_t(NodeCounter::kMostTuners) && (setting_.communicator != 0 || local == 1)) {
    char number[32];
    std::snprintf(number, sizeof number, "%016" PRIx64, setting_.communicator);
    auto counter = NodeCounter::make("tuner/" + std::string(number) + "/" + setting_.node, int(local));
    if (counter) {
      counter_ = std::move(*counter);
    } else {
      R2_WARN("NET/R2CCL: mode 3: %s: NCCL's own choice stays", counter.error().message.c_str());
    }
  } else if (setting_.nodes > 1) {
    R2_INFO("NET/R2CCL: mode 3: %" PRIu64 " ranks on %" PRIu64
            " nodes%s: the progress of the ranks of a node is not known, so NCCL's own choice stays",
            setting_.ranks, setting_.nodes, setting_.communicator == 0 ? ", NCCL before 2.28" : "");
  }
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  counted_ = counter_ && counter_->complete();
  registry.selections.push_back(this);
  if (!counter_) return;
  if (setting_.communicator != 0) {
    registry.match();
  } else {
    registry.match_unnamed(this);
  }
}

Selection::~Selection() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.selections, this);
  for (GroupOffer* offer : registry.offers) {
    if (offer->selection_ != this) continue;
    offer->agreement_.count_tuner(nullptr, false);
    offer->selection_ = nullptr;
  }
  registry.match();
}

Result<Choice> Selection::choose(bool all_reduce, uint64_t bytes, bool collnet, bool others) {
  if (!collnet || setting_.nodes < 2) return Choice::kAsIs;
  const Choice usual = others ? Choice::kWithoutCollNet : Choice::kAsIs;
  if (!all_reduce || !counter_) return usual;
  const uint64_t number = next_++;
  {
    Registry& registry = Registry::get();
    const std::lock_guard lock(registry.mutex);
    const bool just_complete = !counted_ && counter_->complete();
    counted_ = counted_ || just_complete;
    for (GroupOffer* offer : registry.offers) {
      if (offer->selection_ != this) continue;
      if (just_complete) Registry::tell(*offer);
      if (offer->capacity_) offer->agreement_.set_capacity(offer->capacity_());
    }
  }
  if (!counted_ && number == kLonelyOperations && !std::exchange(said_incomplete_, true))
    R2_INFO(
        "NET/R2CCL: mode 3: not all ranks of this node share memory (other users, containers): "
        "NCCL's own choice stays");
  auto answer = counter_->wait_for(number, setting_.at_most);
  if (!answer) return answer.error();
  const Choice choice = bytes >= answer->least_bytes ? Choice::kCollNet : usual;
  say(choice, answer->epoch, bytes);
  return choice;
}

// Once for each answer and view: the size is that of the first such operation.
void Selection::say(Choice choice, uint64_t epoch, uint64_t bytes) {
  uint64_t& last = said_[choice == Choice::kCollNet];
  if (last == epoch) return;
  last = epoch;
  R2_INFO("NET/R2CCL: mode 3: communicator %016" PRIx64 ", AllReduce %" PRIu64 " (%" PRIu64
          " bytes), plan %" PRIu64 ": %s",
          setting_.communicator, next_ - 1, bytes, epoch,
          choice == Choice::kCollNet ? "over CollNet, on the host engine" : "NCCL's own choice");
}

GroupOffer::GroupOffer(uint64_t communicator, uint64_t ranks, PlanAgreement& agreement,
                       std::function<NodeCapacity()> capacity, Advise advise)
    : communicator_(communicator),
      ranks_(ranks),
      id_(new_id()),
      agreement_(agreement),
      capacity_(std::move(capacity)),
      advise_(std::move(advise)) {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  registry.offers.push_back(this);
  registry.match();
}

GroupOffer::~GroupOffer() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.offers, this);
  if (selection_) agreement_.count_tuner(nullptr, false);
}

}  // namespace r2ccl::collective
