// SPDX-License-Identifier: Apache-2.0
// Completion queues and completion channels.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "faultinject/testing/agent/agent.h"
#include "faultinject/testing/agent/interface.h"

namespace agent {
namespace {

// poll ID QUEUE COUNT MS: "wr_id:status:at_ns" for each completion, until COUNT are there or MS have passed.
std::string poll_queue(std::istringstream& in) {
  size_t id = 0;
  std::string queue;
  int wanted = 0;
  uint64_t ms = 0;
  in >> id >> queue >> wanted >> ms;
  ibv_cq* cq = queue == "recv" ? pairs.at(id).recv_cq : pairs.at(id).send_cq;
  const uint64_t end = now_ns() + ms * 1000000;
  std::ostringstream out;
  out << "ok";
  int seen = 0;
  do {
    ibv_wc wcs[4];
    const int count = poll_cq(cq, std::min(4, wanted - seen), wcs);
    if (count < 0) return "error poll";
    for (int i = 0; i < count; i++) {
      if (wcs[i].qp_num != 0 && wcs[i].qp_num != pairs.at(id).qp->qp_num) continue;
      seen++;
      out << " " << wcs[i].wr_id << ":" << int(wcs[i].status) << ":" << now_ns();
    }
    if (count == 0) std::this_thread::yield();
  } while (seen < wanted && now_ns() < end);
  return out.str();
}

std::string poll_once(std::istringstream& in) {
  ibv_wc wc{};
  return "ok " + std::to_string(poll_cq(pair_of(in).send_cq, 1, &wc));
}

// Sleeps on the completion channel, as a program does that does not spin.
std::string sleep_queue(std::istringstream& in) {
  size_t id = 0;
  std::string queue;
  int wanted = 0, ms = 0;
  in >> id >> queue >> wanted >> ms;
  Pair& pair = pairs.at(id);
  ibv_cq* cq = queue == "recv" ? pair.recv_cq : pair.send_cq;
  const uint64_t end = now_ns() + uint64_t(ms) * 1000000;
  std::ostringstream out;
  out << "ok";
  int seen = 0;
  for (;;) {
    ibv_req_notify_cq(cq, 0);
    ibv_wc wc;
    while (seen < wanted && poll_cq(cq, 1, &wc) > 0) {
      seen++;
      out << " " << wc.wr_id << ":" << int(wc.status) << ":" << now_ns();
    }
    if (seen >= wanted) return out.str();
    const int64_t left = int64_t(end - now_ns()) / 1000000;
    pollfd p{pair.channel->fd, POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, int(left)) <= 0) return out.str();
    ibv_cq* which = nullptr;
    void* cookie = nullptr;
    if (V(ibv_get_cq_event)(pair.channel, &which, &cookie) == 0) V(ibv_ack_cq_events)(which, 1);
  }
}

// create_cq [ENTRIES ID]: of 16 entries; or of so many, on the completion channel of that pair.
std::string try_to_create_cq(std::istringstream& in) {
  int entries = 16;
  size_t id = 0;
  errno = 0;
  ibv_cq* cq = in >> entries >> id ? create_cq(entries, pairs.at(id).channel) : create_cq(16, nullptr);
  if (cq == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_destroy_cq)(cq) == 0 ? "ok" : "error destroy_cq";
}

// signalled ID: whether an event of its completion queues waits for it.
std::string signalled(std::istringstream& in) {
  pollfd channel{pair_of(in).channel->fd, POLLIN, 0};
  return "ok " + std::to_string(::poll(&channel, 1, 0));
}

// cq_event ID [COUNT]: COUNT threads (1) sleep in ibv_get_cq_event; what each was told, the failures first.
std::string sleep_in_get(std::istringstream& in) {
  size_t id = 0, count = 1;
  in >> id >> count;
  std::vector<std::string> told(in ? count : 1);
  std::vector<std::thread> threads;
  for (std::string& answer : told)
    threads.emplace_back([&answer, channel = pairs.at(id).channel] {
      ibv_cq* which = nullptr;
      void* cookie = nullptr;
      const bool came = V(ibv_get_cq_event)(channel, &which, &cookie) == 0;
      answer = came ? "event" : "errno " + std::to_string(errno);
      if (came) V(ibv_ack_cq_events)(which, 1);
    });
  for (std::thread& thread : threads) thread.join();
  std::sort(told.begin(), told.end());
  std::string all;
  for (const std::string& answer : told) all += (all.empty() ? "" : ", ") + answer;
  return all;
}

std::string try_to_make_channel() {
  ibv_comp_channel* channel = V(ibv_create_comp_channel)(context);
  if (channel == nullptr) return "errno " + std::to_string(errno);
  return V(ibv_destroy_comp_channel)(channel) == 0 ? "ok" : "error destroy_comp_channel";
}

// poll_channel ID MS: sleeps in poll() on its completion channel. "ok REVENTS", 0 when nothing comes.
std::string poll_channel(std::istringstream& in) {
  size_t id = 0;
  int ms = 0;
  in >> id >> ms;
  pollfd channel{pairs.at(id).channel->fd, POLLIN, 0};
  ::poll(&channel, 1, ms);
  return "ok " + std::to_string(channel.revents);
}

std::string destroy_channel(std::istringstream& in) {
  size_t id = 0;
  in >> id;
  const int descriptor = pairs.at(id).channel->fd;
  const int rc = V(ibv_destroy_comp_channel)(pairs.at(id).channel);
  if (rc != 0) return "errno " + std::to_string(rc);
  pairs.at(id).channel = nullptr;
  return fcntl(descriptor, F_GETFD) < 0 ? "ok" : "error it is still open";
}

}  // namespace

Commands completion_commands() {
  using In = std::istringstream;
  return {
      {"create_cq", try_to_create_cq},
      {"destroy_cq", [](In& in) { return ok_or_errno(V(ibv_destroy_cq)(pair_of(in).send_cq)); }},
      {"resize_cq",  // ID ENTRIES
       [](In& in) {
         Pair& pair = pair_of(in);
         int entries = 0;
         in >> entries;
         return ok_or_errno(V(ibv_resize_cq)(pair.send_cq, entries));
       }},
      {"poll", poll_queue},
      {"poll_once", poll_once},
      {"sleep", sleep_queue},
      {"arm",
       [](In& in) {
         return std::string(ibv_req_notify_cq(pair_of(in).send_cq, 0) == 0 ? "ok" : "error req_notify_cq");
       }},
      {"signalled", signalled},
      {"cq_event", sleep_in_get},
      {"channel", [](In&) { return try_to_make_channel(); }},
      {"poll_channel", poll_channel},
      {"destroy_channel", destroy_channel},
  };
}

}  // namespace agent
