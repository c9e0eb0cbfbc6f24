// One opened device of the program: its queue pairs and completion queues, the faults at work on it, and the
// slow path of posts and polls. The fast path (slots.h) comes here only while something must be seen or done.
//
// Locks: one mutex per context, taken before any lock of the provider and never the other way round; the
// provider never calls us. Nothing here waits for the program.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "faultinject/faults/fault.h"
#include "faultinject/preload/async_events.h"
#include "faultinject/preload/queue_pair.h"

namespace faultinject {

class Process;
struct Slot;

class Context {
 public:
  Context(Process& process, Slot& slot, ibv_context* context, uint32_t node, uint32_t nic, uint32_t ports);
  ~Context();
  Context(const Context&) = delete;

  // --- called by the exported functions and the patched operations ---
  void add_cq(ibv_cq* cq);
  std::unique_ptr<CompletionQueue> take_cq(ibv_cq* cq);      // before the real ibv_destroy_cq
  void put_back(std::unique_ptr<CompletionQueue> cq);        // it failed
  void add_qp(ibv_qp* qp, const ibv_qp_init_attr& attributes);
  uint64_t begin_destroy(ibv_qp* qp);                           // returns the serial, 0 if unknown
  void end_destroy(ibv_qp* qp, uint64_t serial, bool destroyed);
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
  int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  int poll_cq(ibv_cq* cq, int entries, ibv_wc* wcs);
  // Completions that a fast-path poll fetched while a fault began: what must not be shown is taken out.
  int review(ibv_cq* cq, int count, ibv_wc* wcs);
  void after_req_notify(ibv_cq* cq);
  bool shows_port_down();

  // --- called by the injector's thread ---
  // Takes the board's faults up: what was armed, fired or healed since. Returns nothing; idempotent.
  void sync(uint64_t now_ns);
  // Releases what is due; returns the next moment at which something will be (UINT64_MAX: nothing).
  uint64_t tick(uint64_t now_ns);

  // --- what a Fault may use, with the mutex held ---
  uint32_t node() const { return node_; }
  uint32_t nic() const { return nic_; }
  uint32_t ports() const { return ports_; }
  // The device is being opened: what holds already is no news, so no event tells of it.
  bool opening() const { return opening_; }
  Board& board() const;
  template <typename Visit>
  void each_qp(Visit visit) {
    for (auto& [pointer, qp] : qps_)
      if (!qp->dying) visit(*qp);
  }
  // Traffic of the queue pair is lost from now on: its real queue pair goes to ERR, and the program sees
  // nothing of it before the emulated retries are exhausted. True if it was done now.
  bool cut(QueuePair& qp, Fault& fault, uint64_t now_ns, Effect effect = Effect::kQpToErr);
  // The queue pair goes to ERR at once and the program sees its flushes. True if it was done now.
  bool strike(QueuePair& qp, Fault& fault, uint64_t now_ns, bool fatal_event);
  // The delivered work of `wc` is reported as lost: now (wc is rewritten), or after the retries (false: do not
  // show it). The real queue pair goes to ERR.
  bool lose_ack(QueuePair& qp, Fault& fault, ibv_wc& wc, uint64_t now_ns, bool after_retries);
  void push_event(const ibv_async_event& event) { events_.push(event); }
  void witness(const Fault& fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns);
  void show_port_down(bool down) { port_down_ += down ? 1 : -1; }
  uint64_t choice(const Fault& fault, const QueuePair& qp) const;  // a number from the seed

  AsyncEvents& events() { return events_; }
  ibv_context* device() const { return context_; }
  std::mutex& mutex() { return mutex_; }

 private:
  using QpMap = std::unordered_map<const ibv_qp*, std::unique_ptr<QueuePair>>;

  // With the mutex held, all of them.
  QueuePair* find(const ibv_qp* qp);
  QueuePair* find(uint32_t qp_num);
  CompletionQueue* queue(ibv_cq* cq);
  QueuePair* find_or_adopt(ibv_qp* qp);
  QueuePair& insert(ibv_qp* qp, const ibv_qp_init_attr& attributes);
  void set_life(QueuePair& qp, QueuePair::Life life);
  void sync_locked(uint64_t now_ns);
  void refresh_mode();
  bool needs_slow_path() const;

  bool move_to_err(QueuePair& qp);
  void count_triggers(uint32_t wrs, uint64_t bytes, uint64_t now_ns);
  int post_bounded(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad);
  bool must_hold(const QueuePair& qp) const;
  void hold(QueuePair& qp, const ibv_send_wr& wr, uint64_t bytes, uint64_t now_ns);
  uint64_t pump(QueuePair& qp, uint64_t now_ns);  // next moment at which its head may go
  uint64_t pump_all(uint64_t now_ns);
  void release_all_held(QueuePair& qp);
  void drop_held(QueuePair& qp);

  bool is_send(const QueuePair& qp, const CompletionQueue& cq, const ibv_wc& wc) const;
  // False: hidden or dropped.
  bool process(CompletionQueue& cq, ibv_wc& wc, uint64_t now_ns);
  Sent retire(QueuePair& qp, const ibv_wc& wc, bool& known);
  void hide(QueuePair& qp, CompletionQueue& cq, const ibv_wc& wc, bool send, uint64_t now_ns);
  void show_hidden(QueuePair& qp, bool program_moved_it);
  void drain(CompletionQueue& cq, uint64_t now_ns);
  void show_due(uint64_t now_ns);
  void due_at(QueuePair& qp, uint64_t time_ns);
  int take_ready(CompletionQueue& cq, int entries, ibv_wc* wcs);
  void kick(QueuePair& qp);
  void forget_completions(QueuePair& qp);

  Process& process_;
  Slot& slot_;
  ibv_context* context_;
  const uint32_t node_, nic_, ports_;
  AsyncEvents events_;

  std::mutex mutex_;
  QpMap qps_;
  std::unordered_map<uint32_t, QueuePair*> by_number_;
  std::unordered_map<const ibv_cq*, std::unique_ptr<CompletionQueue>> cqs_;
  std::vector<std::unique_ptr<Fault>> faults_;
  uint32_t faults_seen_ = 0;
  int port_down_ = 0;
  bool first_op_seen_ = false;
  uint32_t held_ = 0;               // WRs held back in this context
  uint64_t next_due_ns_ = UINT64_MAX;  // the least shown_at_ns of the queue pairs that are cut
  uint32_t cuts_ = 0;               // queue pairs that are cut
  uint64_t next_serial_ = 1;
  bool opening_ = true;             // until the first sync() has ended
  bool mode_dirty_ = false;         // what needs_slow_path() depends on has changed
};

}  // namespace faultinject
