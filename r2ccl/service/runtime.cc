// SPDX-License-Identifier: Apache-2.0
// The process-wide Net: devices, listeners, channels, and the service thread behind them.
#include <pthread.h>
#include <sodium.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "r2ccl/base/log.h"
#include "r2ccl/channel/sender.h"
#include "r2ccl/path/registrations.h"
#include "r2ccl/service/net.h"
#include "r2ccl/service/nics.h"
#include "r2ccl/service/service.h"
#include "r2ccl/topology/topology.h"

namespace r2ccl {
namespace {

std::atomic<bool> g_forked{false};
static_assert(sizeof(wire::Handle) <= kHandleBytes);

constexpr rlim_t kEnoughLockedMemory = rlim_t{256} << 20;

void check_locked_memory() {
  rlimit limit{};
  if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;  // root has CAP_IPC_LOCK
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kEnoughLockedMemory)
    R2_WARN("NET/R2CCL: RLIMIT_MEMLOCK is %llu KiB; NICs pin NCCL's buffers. %s",
            static_cast<unsigned long long>(limit.rlim_cur / 1024), advice(ErrorCode::kMemoryLock).data());
}

/// The Net that this thread has used last: a process has one, except in simulations. It has no destructor,
/// which would keep the library from being unloaded while the thread lives.
struct OfThread {
  uint64_t net;  // its number; 0: none yet
  ProgressThread* thread;
};
thread_local constinit OfThread t_now{0, nullptr};
std::atomic<uint64_t> g_nets{0};

class PlanOfGroup final : public GroupPlan {
 public:
  explicit PlanOfGroup(PlanKnowledge& all) : all_(all), plan_(all.begin()) {}
  ~PlanOfGroup() override {
    if (!g_forked.load(std::memory_order_relaxed)) all_.end(plan_);
  }
  void is_followed_by(Channel* channel) override { channel->follow(*plan_); }
  void knows(int device, double relative, size_t under_way) override {
    all_.knows(plan_, size_t(device), relative, under_way);
  }

 private:
  PlanKnowledge& all_;
  PlanKnowledge::Plan* const plan_;
};

class Runtime final : public Net {
 public:
  static Result<std::unique_ptr<Runtime>> create() {
    auto runtime = std::unique_ptr<Runtime>(new Runtime);
    auto config = Config::from_environment();
    if (!config) return config.error();
    trace::Writer::instance();  // R2CC_TRACE is read when the other variables are
    if (sodium_init() < 0) return Error{ErrorCode::kSystem, "libsodium cannot be initialised"};
    if (const int error = ibv_fork_init(); error != 0)
      R2_WARN("NET/R2CCL: ibv_fork_init: %s; do not fork while the job runs", std::strerror(error));
    check_locked_memory();
    ProcessContext& context = runtime->context_;
    context.config = std::move(*config);
    for (const std::string& warning : context.config.warnings) R2_WARN("NET/R2CCL: %s", warning.c_str());
    if (auto opened = runtime->open_devices(); !opened) return opened.error();
    std::vector<std::string> names;
    for (const auto& device : context.devices) names.push_back(device.name());
    std::vector<double> nominal;
    for (const auto& device : context.devices) {
      nominal.push_back(std::max(1, device.speed_mbps()));
      runtime->speeds_mbps_.push_back(device.speed_mbps());
      runtime->addresses_.push_back(std::to_array(device.address().gid.raw));
    }
    context.capacities = balance::Capacities(nominal);
    std::vector<double> bytes_per_ns;
    for (const double mbps : nominal) bytes_per_ns.push_back(mbps / 8000);
    context.plans.set_rates(bytes_per_ns);
    if (auto looked = runtime->look_at_topology(names); !looked) return looked.error();
    runtime->list_backups();
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    // Ranks that share a host but not a node are told apart by what their fabric calls them.
    const char* node = std::getenv("R2CC_NODE_NAME");
    context.host = node && *node ? node : host;
    randombytes_buf(&context.process, sizeof context.process);
    context.kick = [service = &runtime->service_] { service->kick(); };
    context.workers = std::make_unique<NicWorkers>("r2ccl-nic", names, context.kick);
    context.registrars = std::make_unique<NicWorkers>("r2ccl-reg", names, [] {});
    context.endpoint = [service = &runtime->service_] { return service->endpoint(); };
    context.load = [service = &runtime->service_](bool shared) -> const NicLoad& {
      return service->load(shared);
    };
    if (!context.config.metrics_file.empty()) {
      runtime->metrics_.emplace(context.config.metrics_file, names);
      runtime->service_.set_metrics(*runtime->metrics_);
    }
    if (auto started = runtime->service_.start(); !started) return started.error();
    if (runtime->metrics_) trace::Writer::instance().feed(*runtime->metrics_);
    R2_INFO("NET/R2CCL: mode %s, %zu NICs, strict acknowledgement %s", name(context.config.mode),
            context.devices.size(), context.strict_ack() ? "on" : "off");
    return runtime;
  }

  ~Runtime() override { stop(); }

  void stop() {
    service_.stop();
    if (context_.workers) context_.workers->stop();
    if (context_.registrars) context_.registrars->stop();
  }

  int devices() const override { return int(context_.devices.size()); }

  NicProperties properties(int device) const override {
    const verbs::Device& nic = context_.devices[size_t(device)];
    NicProperties out;
    out.name = nic.name();
    out.pci_path = topology_->pci_path(device);
    out.guid = nic.guid();
    out.address = addresses_[size_t(device)];
    out.port = nic.port();
    out.speed_mbps = speeds_mbps_[size_t(device)];
    out.max_channels = std::max(1, nic.limits().max_qp / 4);
    out.gpu_memory = context_.config.gpu_direct;
    out.dma_buf = dma_bufs_;
    return out;
  }

  double node_capacity() const override { return context_.node_capacity.load(std::memory_order_relaxed); }
  double nic_carried(int device) const override {
    return context_.nic_carried[size_t(device)].load(std::memory_order_relaxed);
  }
  double nic_capacity(int device) const override {
    return 1 - context_.nic_lacks[size_t(device)].load(std::memory_order_relaxed);
  }

  std::unique_ptr<LinkWatch> watch_links(LinksWanted wanted) override {
    if (!context_.plans_by_links()) return nullptr;
    return service_.watch_links(std::move(wanted));
  }

  Result<Listener*> listen(int device, void* memory) override {
    if (auto ok = usable(device); !ok) return ok.error();
    auto where = service_.endpoint();
    if (!where) return where.error();
    auto listener = std::make_shared<Listener>();
    randombytes_buf(&listener->id, sizeof listener->id);
    listener->nic = device;
    listener->token = control::random_token();
    wire::Handle handle{};
    handle.magic = wire::kHandleMagic;
    handle.version = wire::kWireVersion;
    handle.mode = uint8_t(context_.config.mode);
    handle.where = *where;
    handle.listener = listener->id;
    handle.token = listener->token;
    std::memset(memory, 0, kHandleBytes);
    std::memcpy(memory, &handle, sizeof handle);
    Listener* raw = listener.get();
    service_.add(listener);
    const std::lock_guard lock(mutex_);
    listeners_.push_back(std::move(listener));
    return raw;
  }

  Result<Channel*> connect(int device, void* memory) override {
    if (auto ok = usable(device); !ok) return ok.error();
    wire::Handle handle;
    std::memcpy(&handle, memory, sizeof handle);
    const auto remember = [&](uint64_t state) {
      handle.connect_state = state;
      std::memcpy(memory, &handle, sizeof handle);
    };
    if (handle.connect_state == 0) {
      auto sender = Sender::start(context_, device, handle);
      if (!sender) return sender.error();
      const std::lock_guard lock(mutex_);
      std::erase_if(connecting_, [](const auto& known) { return known.second.expired(); });
      connecting_[++connects_] = *sender;
      (*sender)->claim().wait();
      service_.adopt(std::move(*sender));
      remember(connects_);
      return nullptr;
    }
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = connecting_.find(handle.connect_state); known != connecting_.end())
        channel = known->second.lock();
      const bool given_up = !channel || !channel->claim().ask();
      if (!given_up && channel->status() == Status::kConnecting) return nullptr;
      connecting_.erase(handle.connect_state);
      remember(0);
      if (given_up || !channel->claim().take())
        return Error{ErrorCode::kSystem, "NCCL had not polled this connection for " +
                                             std::to_string(context_.config.connect_bound.count()) +
                                             " ms (R2CC_CONNECT_MS), so it was closed"};
      channels_.push_back(channel);
    }
    return settled(channel.get());
  }

  std::unique_ptr<GroupPlan> plan() override { return std::make_unique<PlanOfGroup>(context_.plans); }

  Result<Channel*> accept(Listener* listener) override {
    if (auto ok = usable(0); !ok) return ok.error();
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(listener->mutex);
      if (listener->arrived.empty()) return nullptr;
      channel = std::move(listener->arrived.front());
      listener->arrived.erase(listener->arrived.begin());
    }
    Channel* raw = channel.get();
    {
      const std::lock_guard lock(mutex_);
      channels_.push_back(std::move(channel));
    }
    return settled(raw);
  }

  Result<void> close(Listener* listener) override {
    if (g_forked.load(std::memory_order_relaxed)) return {};
    service_.remove(listener->id);
    std::vector<std::shared_ptr<Channel>> orphans;
    {
      const std::lock_guard lock(listener->mutex);
      listener->closed = true;
      orphans.swap(listener->arrived);
    }
    for (auto& channel : orphans) channel->close_and_wait();
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [listener](const auto& held) { return held.get() == listener; });
    return {};
  }

  Result<void> close(Channel* channel) override {
    if (g_forked.load(std::memory_order_relaxed)) return {};
    channel->forget_requests(this_thread());
    this_thread().closed();
    channel->close_and_wait();
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [channel](const auto& held) { return held.get() == channel; });
    return {};
  }

  Result<Registration*> reg(Channel* channel, void* data, size_t bytes, const BufferMemory& memory) override {
    if (auto ok = usable(0); !ok) return ok.error();
    if ((memory.kind == BufferMemory::Kind::kGpu && !context_.config.gpu_direct) ||
        (memory.kind == BufferMemory::Kind::kDmaBuf && !dma_bufs_))
      return Error{ErrorCode::kInvalidArgument,
                   "only host memory can be registered: R2CC_GPU_DIRECT=1 offers GPU memory, and dma-bufs "
                   "where all NICs take them"};
    return registrations_.add(data, bytes, memory, channel->home_nic());
  }
  Result<void> dereg(Channel* /*channel*/, Registration* registration) override {
    if (g_forked.load(std::memory_order_relaxed)) return {};
    return registrations_.remove(registration);
  }

  Result<Request*> isend(Channel* channel, const void* data, size_t bytes,
                         Registration* registration) override {
    if (auto ok = postable(bytes, registration); !ok) return ok.error();
    return channel->post(const_cast<void*>(data), bytes, registration, this_thread());
  }
  Result<Request*> irecv(Channel* channel, void* data, size_t bytes, Registration* registration) override {
    if (auto ok = postable(bytes, registration); !ok) return ok.error();
    return channel->post(data, bytes, registration, this_thread());
  }
  Result<TestOutcome> test(Request* request) override {
    if (g_forked.load(std::memory_order_relaxed)) return after_fork();
    ProgressThread& thread = this_thread();
    if (!thread.owes_acks()) [[likely]]
      return request->channel->test(*request, thread);
    return test_and_acknowledge(*request, thread);
  }

 private:
  [[gnu::noinline]] static Result<TestOutcome> test_and_acknowledge(Request& request,
                                                                    ProgressThread& thread) {
    auto outcome = request.channel->test(request, thread);
    if (outcome) thread.look_at_acks(outcome->done);
    return outcome;
  }
  ProgressThread& this_thread() {
    if (t_now.net != number_) [[unlikely]]
      find_this_thread();
    return *t_now.thread;
  }
  [[gnu::noinline]] void find_this_thread() {
    const bool is_new = t_now.net == 0;  // and may have the number of one that has ended
    const std::lock_guard lock(threads_mutex_);
    auto& known = threads_[std::this_thread::get_id()];
    if (!known) known = std::make_unique<ProgressThread>();
    if (is_new) known->begin();
    t_now = {number_, known.get()};
  }

  Runtime() : service_(context_), registrations_(context_) {}

  Result<void> open_devices() {
    ProcessContext& context = context_;
    auto devices = open_nics(context.config);
    if (!devices) return devices.error();
    context.devices = std::move(*devices);
    dma_bufs_ =
        context.config.gpu_direct && std::all_of(context.devices.begin(), context.devices.end(),
                                                 [](const auto& nic) { return nic.takes_dma_bufs(); });
    return {};
  }

  /// Of each NIC the others, in the order in which they stand in for it.
  void list_backups() {
    for (int nic = 0; nic < int(context_.devices.size()); ++nic) {
      context_.backups.emplace_back();
      for (const int other : topology_->backup_order(nic))
        context_.backups.back().push_back({other, int(topology_->between(nic, other)),
                                           topology_->between(nic, other) == topology::Distance::kCross});
    }
  }

  Result<void> look_at_topology(const std::vector<std::string>& names) {
    const std::string& file = context_.config.topology_file;
    auto found = file.empty() ? Result<topology::Topology>(topology::Topology::of_machine(names))
                              : topology::Topology::from_file(file, names);
    if (!found) return found.error();
    topology_.emplace(std::move(*found));
    context_.far_nics = [this](const void* memory) {
      uint8_t far = 0;
      if (!context_.balances()) return far;
      const int told = context_.config.memory_node;
      bool known = false;
      for (int nic = 0; nic < devices() && !known; ++nic) known = topology_->numa_node(nic) >= 0;
      if (!known) return far;
      const int node = told >= 0 ? told : topology::numa_node_of(memory);
      for (int nic = 0; nic < devices(); ++nic)
        if (topology_->from_memory(node, nic) == topology::Distance::kCross) far |= uint8_t(1u << nic);
      return far;
    };
    return {};
  }

  static Error after_fork() {
    return Error{ErrorCode::kAfterFork, "the plugin was initialised before this process was forked"};
  }
  Result<void> usable(int device) const {
    if (g_forked.load(std::memory_order_relaxed)) return after_fork();
    if (device < 0 || device >= devices()) return Error{ErrorCode::kInvalidArgument, "no such device"};
    return {};
  }
  static Result<void> postable(size_t bytes, const Registration* registration) {
    if (g_forked.load(std::memory_order_relaxed)) return after_fork();
    if (bytes > kMaxMessageBytes || (bytes > 0 && !registration))
      return Error{ErrorCode::kInvalidArgument, "a message needs a registered buffer of at most 1 GiB"};
    return {};
  }

  Result<Channel*> settled(Channel* channel) {
    const Status status = channel->status();
    if (status != Status::kFailed) return channel;
    const Error error = channel->error();
    (void)close(channel);
    return error;
  }

  ProcessContext context_;
  std::optional<topology::Topology> topology_;
  std::optional<trace::Metrics> metrics_;  // the trace writer knows it, too: it stays as long as the Runtime
  Service service_;
  Registrations registrations_;
  bool dma_bufs_ = false;  // offered: every NIC takes them
  // When the process began: a NIC's worker reads its port again at any time.
  std::vector<int> speeds_mbps_;
  std::vector<NicAddress> addresses_;
  std::mutex mutex_;  // guards the following
  std::vector<std::shared_ptr<Listener>> listeners_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::map<uint64_t, std::weak_ptr<Channel>> connecting_;  // the service's, until connect() hands them over
  uint64_t connects_ = 0;
  const uint64_t number_ = ++g_nets;
  std::mutex threads_mutex_;  // guards the following
  std::map<std::thread::id, std::unique_ptr<ProgressThread>> threads_;
};

/// Ends the service thread when the library goes, before libibverbs does. The Runtime itself stays: NCCL's
/// own threads may still be inside it.
struct Shutdown {
  Runtime* runtime = nullptr;
  ~Shutdown() {
    if (runtime && !g_forked.load()) runtime->stop();
  }
};

}  // namespace

Result<Net*> Net::acquire(LogSink sink) {
  static std::mutex mutex;
  static Runtime* instance = nullptr;
  static Shutdown shutdown;
  const std::lock_guard lock(mutex);
  if (sink) set_log_sink(sink);
  if (g_forked.load())
    return Error{ErrorCode::kAfterFork, "the plugin was initialised before this process was forked"};
  if (!instance) {
    auto runtime = Runtime::create();
    if (!runtime) return runtime.error();
    instance = runtime->release();
    shutdown.runtime = instance;
    pthread_atfork(nullptr, nullptr, [] {
      g_forked.store(true);
      control::close_all_in_child();
    });
  }
  return static_cast<Net*>(instance);
}

Result<std::unique_ptr<Net>> Net::make() {
  auto runtime = Runtime::create();
  if (!runtime) return runtime.error();
  return std::unique_ptr<Net>(std::move(*runtime));
}

}  // namespace r2ccl
