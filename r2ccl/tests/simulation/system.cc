// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/system.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstring>
#include <thread>

namespace r2ccl::simulation {

/// std::thread::_State is private since GCC 13. An explicit instantiation may name it all the same.
template <typename State>
struct StateOfThread {
  friend void* taken_from(void* pointer) { return static_cast<std::unique_ptr<State>*>(pointer)->release(); }
  friend void run_thread(void* state) { static_cast<State*>(state)->_M_run(); }
  friend void end_thread(void* state) { delete static_cast<State*>(state); }
};
void* taken_from(void* pointer);
void run_thread(void* state);
void end_thread(void* state);
template struct StateOfThread<std::thread::_State>;

System g_kernel;

File* System::find(int fd) {
  const auto index = size_t(fd - kFirst);
  return fd >= kFirst && index < by_number_.size() ? by_number_[index] : nullptr;
}

int System::make(File::Kind kind) {
  const int fd = next_fd_++;
  auto file = std::make_unique<File>();
  file->kind = kind;
  file->fd = fd;
  file->process = scheduler().process();
  by_number_.push_back(file.get());
  if (kind == File::Kind::kEpoll) epolls_.push_back(fd);
  files.emplace(fd, std::move(file));
  return fd;
}

int System::open_files(int process) const {
  int count = 0;
  for (const auto& [fd, file] : files) count += file->process == process;
  return count;
}

uint32_t System::readiness(const File& file) const {
  switch (file.kind) {
    case File::Kind::kEvent:
      return file.count > 0 ? unsigned(EPOLLIN) : 0u;
    case File::Kind::kFlag:
      return (file.count > 0 ? unsigned(EPOLLIN) : 0u) | (file.error ? unsigned(EPOLLERR) : 0u);
    case File::Kind::kListener:
      return file.accepted.empty() ? 0u : unsigned(EPOLLIN);
    case File::Kind::kStream: {
      uint32_t ready = 0;
      if (file.connected) ready |= EPOLLOUT;
      if (!file.arrived.empty() || file.ended) ready |= EPOLLIN;
      if (file.ended) ready |= EPOLLRDHUP;
      if (file.failure != 0) ready |= EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT;
      return ready;
    }
    case File::Kind::kEpoll:
      break;
  }
  return 0;
}

void System::changed(int fd) {
  File* file = find(fd);
  if (!file) return;
  for (const int number : epolls_)
    if (File* other = find(number); other && other->watches(fd)) {
      other->look = true;
      if (other->waiting) scheduler().wake(other->waiting);
    }
}

void System::close(int fd) {
  File* file = find(fd);
  if (!file) return;
  for (const int number : epolls_)
    if (File* other = find(number)) other->forget(fd);
  if (file->kind == File::Kind::kListener)
    for (const int stream : std::deque<int>(file->accepted)) close(stream);
  const int peer = file->kind == File::Kind::kStream ? file->peer : -1;
  if (file->kind == File::Kind::kStream && file->process >= 0)
    closed_at[file->process].push_back(scheduler().now());
  files.erase(fd);
  by_number_[size_t(fd - kFirst)] = nullptr;
  File* const end = find(peer);
  if (!end) return;
  end->peer = -1;
  if (end->swallowed) return;  // its kernel finds out by itself
  if (weather.drops) return alone(peer, end->keep_idle);
  // Behind what was sent before.
  const Time when = std::max({end->last_arrival, scheduler().now() + weather.latency, weather.held_until});
  scheduler().at(when, [this, peer] {
    if (File* other = find(peer)) {
      other->ended = true;
      changed(peer);
    }
  });
}

void System::deliver(int to, std::string bytes) {
  File* file = find(to);
  if (!file) return;
  const Time when = std::max({file->last_arrival, scheduler().now() + weather.latency, weather.held_until});
  file->last_arrival = when;
  scheduler().at(when, [this, to, bytes = std::move(bytes)] {
    if (File* other = find(to); other && other->failure == 0) {
      other->arrived += bytes;
      changed(to);
    }
  });
}

void System::cut_connections(Random& random, int told) {
  std::vector<int> streams;
  for (auto& [fd, file] : files)
    if (file->kind == File::Kind::kStream && file->peer > fd) streams.push_back(fd);
  for (const int fd : streams) {
    if (!random.chance(70)) continue;
    File* ends[2] = {find(fd), find(find(fd)->peer)};
    for (int i = 0; i < 2; ++i) {
      if (!ends[i]) continue;
      ends[i]->peer = -1;
      if (!(told & (1 << i))) {
        alone(ends[i]->fd, ends[i]->keep_idle);
        continue;
      }
      ends[i]->failure = ECONNRESET;
      changed(ends[i]->fd);
    }
  }
}

// Whoever has no other end any more is told so when it sends, or by its kernel, which asks now and then;
// where nothing gets through, much later.
void System::alone(int fd, Time after) {
  scheduler().after(after, [this, fd] {
    File* end = find(fd);
    if (!end || end->failure != 0) return;
    if (weather.drops) return gives_up(fd, end->user_timeout, ETIMEDOUT);
    end->failure = ECONNRESET;
    changed(fd);
  });
}

void System::gives_up(int fd, Time after, int error) {
  scheduler().after(after, [this, fd, error] {
    File* end = find(fd);
    if (!end || end->failure != 0) return;
    end->failure = error;
    changed(fd);
  });
}

// A hole in the stream: nothing after it is delivered, and in the end both ends are told by their kernels.
// (One that has sent something, sooner: see send().)
void System::swallow(File& file) {
  for (const int fd : {file.fd, file.peer})
    if (File* end = find(fd)) {
      end->peer = -1;
      end->swallowed = true;
      gives_up(fd, end->idle_bound(), ETIMEDOUT);
    }
}

void System::swallow_connections(Random& random) {
  std::vector<int> streams;
  for (auto& [fd, file] : files)
    if (file->kind == File::Kind::kStream && file->peer > fd) streams.push_back(fd);
  for (const int fd : streams)
    if (random.chance(70)) swallow(*find(fd));
}

void System::set_flag(int fd, uint64_t readable, bool error) {
  File* file = find(fd);
  if (!file) return;
  file->count = readable;
  file->error = error;
  changed(fd);
}

namespace {

int failed(int error) {
  errno = error;
  return -1;
}

constexpr uint32_t kAddress = 0x0a000001;
uint64_t g_next_port = 20000;
struct Waiting {
  const void* on;
  Fiber* fiber;
};
std::vector<Waiting> g_waiting;  // for condition variables
std::map<std::thread::native_handle_type, Fiber*> g_threads;

// A simulated lock. All fibers share one thread, so it needs no atomic operation; the real one, which takes
// the same word, costs two.
int& held(pthread_mutex_t* mutex) { return *reinterpret_cast<int*>(mutex); }

void lock(pthread_mutex_t* mutex) {
  while (held(mutex) != 0) scheduler().sleep(kMicrosecond);
  held(mutex) = 1;
}

bool wait_on(const void* on, pthread_mutex_t* mutex, Time until) {
  g_waiting.push_back({on, scheduler().current()});
  held(mutex) = 0;
  const bool woken = scheduler().wait(until);
  std::erase_if(g_waiting, [](const Waiting& w) { return w.fiber == scheduler().current(); });
  lock(mutex);
  return woken;
}

void notify(const void* on, bool all) {
  for (size_t i = 0; i < g_waiting.size(); ++i) {
    if (g_waiting[i].on != on) continue;
    scheduler().wake(g_waiting[i].fiber);
    g_waiting.erase(g_waiting.begin() + std::ptrdiff_t(i--));
    if (!all) return;
  }
}

// Histories begin an hour after the machine did: 0 means 'never' in some places.

}  // namespace
}  // namespace r2ccl::simulation

using namespace r2ccl::simulation;

#define REAL(result, name, ...) result __real_##name(__VA_ARGS__)
extern "C" {

// --- clocks and threads
REAL(int, clock_gettime, clockid_t, timespec*);
int __wrap_clock_gettime(clockid_t clock, timespec* out) {
  if (!simulating()) return __real_clock_gettime(clock, out);
  const Time now = kBoot + scheduler().now();
  *out = {time_t(now / kSecond), long(now % kSecond)};
  return 0;
}
std::chrono::steady_clock::time_point __real__ZNSt6chrono3_V212steady_clock3nowEv();
std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  if (!simulating()) return __real__ZNSt6chrono3_V212steady_clock3nowEv();
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(kBoot + scheduler().now()));
}
REAL(int, nanosleep, const timespec*, timespec*);
int __wrap_nanosleep(const timespec* time, timespec* left) {
  if (!simulating()) return __real_nanosleep(time, left);
  scheduler().sleep(Time(time->tv_sec) * kSecond + Time(time->tv_nsec));
  return 0;
}
REAL(int, usleep, useconds_t);
int __wrap_usleep(useconds_t us) {
  if (!simulating()) return __real_usleep(us);
  scheduler().sleep(us * kMicrosecond);
  return 0;
}
REAL(int, pthread_mutex_lock, pthread_mutex_t*);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (!simulating() || !scheduler().current()) return __real_pthread_mutex_lock(mutex);
  lock(mutex);
  return 0;
}
REAL(int, pthread_mutex_unlock, pthread_mutex_t*);
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (!simulating() || !scheduler().current()) return __real_pthread_mutex_unlock(mutex);
  held(mutex) = 0;
  return 0;
}
REAL(int, pthread_cond_clockwait, pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
int __wrap_pthread_cond_clockwait(pthread_cond_t* on, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  if (!simulating()) return __real_pthread_cond_clockwait(on, mutex, clock, until);
  const Time at = Time(until->tv_sec) * kSecond + Time(until->tv_nsec);
  return wait_on(on, mutex, at > kBoot ? at - kBoot : 0) ? 0 : ETIMEDOUT;
}
void __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable*,
                                                                      std::unique_lock<std::mutex>*);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* on,
                                                                      std::unique_lock<std::mutex>* lock) {
  if (!simulating()) return __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(on, lock);
  wait_on(on, lock->mutex()->native_handle(), kNever);
}
void __real__ZNSt18condition_variable10notify_oneEv(std::condition_variable*);
void __wrap__ZNSt18condition_variable10notify_oneEv(std::condition_variable* on) {
  simulating() ? notify(on, false) : __real__ZNSt18condition_variable10notify_oneEv(on);
}
void __real__ZNSt18condition_variable10notify_allEv(std::condition_variable*);
void __wrap__ZNSt18condition_variable10notify_allEv(std::condition_variable* on) {
  simulating() ? notify(on, true) : __real__ZNSt18condition_variable10notify_allEv(on);
}
// std::thread::_M_start_thread(unique_ptr<_State>, void (*)()): the pointer is passed by reference.
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* thread, void* state, void (*)()) {
  std::shared_ptr<void> held(taken_from(state), end_thread);
  Fiber* fiber = scheduler().spawn(scheduler().process(), [held] { run_thread(held.get()); });
  const auto handle = std::thread::native_handle_type(uintptr_t(fiber));
  std::memcpy(static_cast<void*>(thread), &handle, sizeof handle);
  g_threads[handle] = fiber;
}
void __wrap__ZNSt6thread4joinEv(std::thread* thread) {
  Fiber* fiber = g_threads[thread->native_handle()];
  while (!fiber->ended) {
    fiber->joining.push_back(scheduler().current());
    scheduler().wait();
  }
  std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}
void __wrap__ZNSt6thread6detachEv(std::thread* thread) {
  std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}
// Neither signals nor users are simulated; those of the machine would cost a system call.
REAL(int, pthread_sigmask, int, const sigset_t*, sigset_t*);
int __wrap_pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  return simulating() ? 0 : __real_pthread_sigmask(how, set, before);
}
uid_t __wrap_geteuid() { return 0; }
REAL(int, pthread_setname_np, pthread_t, const char*);
int __wrap_pthread_setname_np(pthread_t thread, const char* name) {
  return simulating() ? 0 : __real_pthread_setname_np(thread, name);
}
REAL(int, prctl, int, unsigned long, unsigned long, unsigned long, unsigned long);
int __wrap_prctl(int, ...) { return 0; }
REAL(long, syscall, long, long, long, long, long, long, long);
long __wrap_syscall(long number, ...) {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long& value : a) value = va_arg(args, long);
  va_end(args);
  if (!simulating()) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (number == SYS_sched_getattr) return failed(ENOSYS);
  if (number == SYS_gettid) return 1000 + long(scheduler().process());
  if (number == SYS_futex) {
    if ((a[1] & 0x7f) == FUTEX_WAIT && scheduler().current()) scheduler().sleep(kMicrosecond);
    return 0;
  }
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
// Whether a worker's thread wants to run is not asked: one that is kept by its driver does not.
REAL(int, open, const char*, int, mode_t);
int __wrap_open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = mode_t(va_arg(args, int));
  va_end(args);
  if (simulating() && std::strncmp(path, "/proc/self/task/", 16) == 0) return failed(ENOENT);
  return __real_open(path, flags, mode);
}

// --- descriptors
int __wrap_eventfd(unsigned count, int) {
  const int fd = kernel().make(File::Kind::kEvent);
  kernel().find(fd)->count = count;
  return fd;
}
REAL(ssize_t, read, int, void*, size_t);
ssize_t __wrap_read(int fd, void* out, size_t bytes) {
  File* file = kernel().find(fd);
  if (!file) return __real_read(fd, out, bytes);
  if (file->count == 0) return failed(EAGAIN);
  std::memcpy(out, &file->count, sizeof file->count);
  file->count = 0;
  return sizeof file->count;
}
REAL(ssize_t, write, int, const void*, size_t);
ssize_t __wrap_write(int fd, const void* data, size_t bytes) {
  File* file = kernel().find(fd);
  if (!file) return __real_write(fd, data, bytes);
  ++file->count;
  kernel().changed(fd);
  return ssize_t(bytes);
}
REAL(int, close, int);
int __wrap_close(int fd) {
  if (!kernel().find(fd)) return fd >= System::kFirst ? 0 : __real_close(fd);
  kernel().close(fd);
  return 0;
}
REAL(int, fcntl, int, int, long);
int __wrap_fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  const long value = va_arg(args, long);
  va_end(args);
  return kernel().find(fd) ? 0 : __real_fcntl(fd, command, value);
}
int __wrap_epoll_create1(int) { return kernel().make(File::Kind::kEpoll); }
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  File* file = kernel().find(epoll);
  if (!file || !kernel().find(fd)) return failed(EBADF);
  if (operation == EPOLL_CTL_DEL) {
    file->forget(fd);
    return 0;
  }
  epoll_event* const known = file->watches(fd);
  if ((known != nullptr) != (operation == EPOLL_CTL_MOD)) return failed(known ? EEXIST : ENOENT);
  if (!known && kernel().find(fd)->kind == File::Kind::kStream && file->process == kernel().scarce &&
      ++kernel().asked_for_room % 2 == 0)
    return failed(ENOSPC);
  if (known)
    *known = *event;
  else
    file->watch(fd, *event);
  kernel().changed(fd);
  return 0;
}
int __wrap_epoll_wait(int epoll, epoll_event* out, int most, int timeout_ms) {
  const Time until = timeout_ms < 0 ? kNever : scheduler().now() + Time(timeout_ms) * kMillisecond;
  for (;;) {
    File* file = kernel().find(epoll);
    int count = 0;
    if (file->look)
      for (const auto& [fd, event] : file->watched) {
        const uint32_t ready =
            kernel().readiness(*kernel().find(fd)) & (event.events | unsigned(EPOLLERR) | unsigned(EPOLLHUP));
        if (ready == 0 || count == most) continue;
        out[count] = event;
        out[count++].events = ready;
      }
    file->look = count > 0;
    if (count > 0 || scheduler().now() >= until) return count;
    file->waiting = scheduler().current();
    scheduler().wait(until);
    kernel().find(epoll)->waiting = nullptr;
  }
}

// --- TCP; other families are refused. Both processes have one interface, whatever the machine has.
int __wrap_getifaddrs(ifaddrs** list) {
  static sockaddr_in address{}, mask{};
  static char name[] = "sim";
  static ifaddrs interface {};
  address.sin_family = mask.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kAddress);
  mask.sin_addr.s_addr = htonl(0xffffff00);
  interface.ifa_name = name;
  interface.ifa_flags = IFF_UP | IFF_RUNNING;
  interface.ifa_addr = reinterpret_cast<sockaddr*>(&address);
  interface.ifa_netmask = reinterpret_cast<sockaddr*>(&mask);
  *list = &interface;
  return 0;
}
void __wrap_freeifaddrs(ifaddrs*) {}
int __wrap_socket(int family, int, int) {
  if (family != AF_INET && family != AF_INET6) return failed(EACCES);
  return kernel().make(File::Kind::kStream);
}
int __wrap_bind(int, const sockaddr*, socklen_t) { return 0; }
int __wrap_listen(int fd, int) {
  File* file = kernel().find(fd);
  file->kind = File::Kind::kListener;
  file->port = uint16_t(g_next_port++);
  return 0;
}
int __wrap_getsockname(int fd, sockaddr* out, socklen_t* length) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kernel().find(fd)->port);
  address.sin_addr.s_addr = htonl(kAddress);
  std::memcpy(out, &address, sizeof address);
  *length = sizeof address;
  return 0;
}
int __wrap_connect(int fd, const sockaddr* to, socklen_t) {
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(to)->sin_port);
  kernel().find(fd)->connecting = true;
  scheduler().after(2 * kernel().weather.latency, [fd, port] {
    File* file = kernel().find(fd);
    if (!file || kernel().weather.drops) return;  // nobody answers
    File* listener = nullptr;
    for (auto& [number, other] : kernel().files)
      if (other->kind == File::Kind::kListener && other->port == port) listener = other.get();
    if (!listener || kernel().weather.refuses) {
      file->failure = ECONNREFUSED;
    } else {
      const int end = kernel().make(File::Kind::kStream);
      File* other = kernel().find(end);
      other->process = listener->process;
      other->connected = file->connected = true;
      other->peer = fd;
      file->peer = end;
      listener->accepted.push_back(end);
      kernel().changed(listener->fd);
    }
    kernel().changed(fd);
  });
  return failed(EINPROGRESS);
}
int __wrap_accept4(int fd, sockaddr*, socklen_t*, int) {
  File* file = kernel().find(fd);
  if (!file || file->accepted.empty()) return failed(EAGAIN);
  const int stream = file->accepted.front();
  file->accepted.pop_front();
  return stream;
}
int __wrap_getsockopt(int fd, int, int, void* value, socklen_t*) {
  File* file = kernel().find(fd);
  if (!file) return failed(EBADF);
  *static_cast<int*>(value) = file->failure;
  return 0;
}
int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t) {
  File* file = kernel().find(fd);
  if (!file || level != IPPROTO_TCP) return 0;
  const int number = *static_cast<const int*>(value);
  if (option == TCP_USER_TIMEOUT) file->user_timeout = Time(number) * kMillisecond;
  if (option == TCP_KEEPIDLE) file->keep_idle = Time(number) * kSecond;
  if (option == TCP_KEEPINTVL) file->keep_interval = Time(number) * kSecond;
  if (option == TCP_KEEPCNT) file->keep_count = number;
  return 0;
}
int __wrap_poll(pollfd* looks, nfds_t count, int) {
  int ready = 0;
  for (nfds_t i = 0; i < count; ++i) {
    const File* file = kernel().find(looks[i].fd);
    looks[i].revents =
        short(file ? kernel().readiness(*file) & (unsigned(looks[i].events) | POLLERR | POLLHUP) : POLLNVAL);
    ready += looks[i].revents != 0;
  }
  return ready;
}
ssize_t __wrap_send(int fd, const void* data, size_t bytes, int) {
  File* file = kernel().find(fd);
  if (!file) return failed(EBADF);
  if (file->failure != 0) return failed(file->failure);
  if (!file->connected) return failed(file->connecting ? EAGAIN : ENOTCONN);
  if (file->ended) return failed(EPIPE);
  // What is sent into a connection whose other end is gone meets nobody.
  if (file->peer >= 0 && !kernel().weather.drops && !kernel().weather.mutes) {
    kernel().deliver(file->peer, std::string(static_cast<const char*>(data), bytes));
    if (file->user_timeout > 0 && kernel().weather.held_until > scheduler().now() + file->user_timeout)
      kernel().gives_up(fd, file->user_timeout, ETIMEDOUT);
  } else if (file->peer >= 0)
    kernel().swallow(*file);
  if (file->swallowed)
    kernel().gives_up(fd, file->user_timeout > 0 ? file->user_timeout : 900 * kSecond, ETIMEDOUT);
  else if (file->peer < 0)
    kernel().alone(fd, 2 * kernel().weather.latency);
  return ssize_t(bytes);
}
ssize_t __wrap_recv(int fd, void* out, size_t bytes, int) {
  File* file = kernel().find(fd);
  if (!file) return failed(EBADF);
  if (!file->arrived.empty()) {
    const size_t count = std::min(bytes, file->arrived.size());
    std::memcpy(out, file->arrived.data(), count);
    file->arrived.erase(0, count);
    return ssize_t(count);
  }
  if (file->failure != 0) return failed(file->failure);
  if (file->ended) return 0;
  return failed(file->connected || file->connecting ? EAGAIN : ENOTCONN);
}

}  // extern "C"
