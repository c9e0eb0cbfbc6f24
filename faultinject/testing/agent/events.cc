// SPDX-License-Identifier: Apache-2.0
// Asynchronous events, and descriptors in an epoll set.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include "faultinject/testing/agent/agent.h"

namespace agent {
namespace {

std::string wait_event(std::istringstream& in) {
  int ms = 0;
  in >> ms;
  pollfd p{context->async_fd, POLLIN, 0};
  if (::poll(&p, 1, ms) <= 0) return "none";
  ibv_async_event event{};
  if (V(ibv_get_async_event)(context, &event) != 0) return "error get_async_event";
  std::string text = "event " + std::to_string(event.event_type);
  if (event.event_type == IBV_EVENT_QP_FATAL) text += " " + std::to_string(event.element.qp->qp_num);
  V(ibv_ack_async_event)(&event);
  return text;
}

std::string try_event(std::istringstream&) {
  ibv_async_event event{};
  return V(ibv_get_async_event)(context, &event) == 0 ? "event" : "errno " + std::to_string(errno);
}

// watch [ID]: puts the async descriptor, or the completion channel, into an epoll set, once. watched MS: what
// that set, and poll(), say of it: "ok EVENTS REVENTS", both 0 when nothing comes within MS.
int epoll_set = -1, watched_fd = -1;

std::string watch(std::istringstream& in) {
  size_t id = 0;
  watched_fd = in >> id ? pairs.at(id).channel->fd : context->async_fd;
  epoll_set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.u64 = 0x1234567890abcdef;
  return epoll_ctl(epoll_set, EPOLL_CTL_ADD, watched_fd, &interest) == 0 ? "ok" : "error epoll_ctl";
}

std::string watched(std::istringstream& in) {
  int ms = 0;
  in >> ms;
  epoll_event event{};
  if (epoll_wait(epoll_set, &event, 1, ms) > 0 && event.data.u64 != 0x1234567890abcdef) return "error data";
  pollfd p{watched_fd, POLLIN, 0};
  ::poll(&p, 1, 0);
  return "ok " + std::to_string(event.events) + " " + std::to_string(p.revents);
}

}  // namespace

Commands event_commands() {
  using In = std::istringstream;
  return {
      {"event", wait_event},
      {"watch", watch},
      {"watched", watched},
      {"try_event", try_event},
      {"nonblock",
       [](In&) { return std::string(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0 ? "ok" : "error"); }},
  };
}

}  // namespace agent
