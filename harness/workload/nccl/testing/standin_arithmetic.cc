// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/testing/standin_arithmetic.h"

#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "harness/workload/nccl/gpu/gpu_pattern.h"

namespace r2bench::standin {

DataType type_of(int number) {
  for (int t = 0; t <= int(DataType::kFloat8e5m2); ++t)
    if (nccl_type(DataType(t)) == number) return DataType(t);
  return DataType::kFloat32;
}

bool send_all(int fd, const void* data, size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    bytes -= size_t(n);
  }
  return true;
}
bool receive_all(int fd, void* data, size_t bytes) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= size_t(n);
  }
  return true;
}

namespace {

using Bytes = std::vector<char>;

struct Request {
  Header header;
  std::vector<Message> sends, receives;
  Bytes data;
};

bool read_request(int fd, Request& request) {
  if (!receive_all(fd, &request.header, sizeof(Header))) return false;
  request.sends.resize(size_t(request.header.sends));
  request.receives.resize(size_t(request.header.receives));
  request.data.resize(request.header.bytes);
  return receive_all(fd, request.sends.data(), request.sends.size() * sizeof(Message)) &&
         receive_all(fd, request.receives.data(), request.receives.size() * sizeof(Message)) &&
         receive_all(fd, request.data.data(), request.data.size());
}

/// The reduction of all ranks' data, as NCCL does it: averages and premultiplied sums scale what was put in.
Bytes reduced(std::vector<Request>& requests) {
  const Header& header = requests[0].header;
  const DataType type = type_of(header.type);
  Reduction reduction = Reduction::kSum;
  for (const Reduction known : {Reduction::kProd, Reduction::kMin, Reduction::kMax, Reduction::kAvg})
    if (header.operation == (known == Reduction::kProd  ? 1
                             : known == Reduction::kMax ? 2
                             : known == Reduction::kMin ? 3
                                                        : 4))
      reduction = known;
  const gpu::Pattern form = make_pattern({type}, 0, false, false);
  const size_t element = element_size(type), count = header.bytes / element;
  const auto each = [&](Bytes& data, auto change) {
    for (size_t k = 0; k < count; ++k) {
      gpu::Number n = gpu::loaded(form, gpu::load(form, data.data(), k));
      change(n);
      gpu::store(form, data.data(), k, gpu::stored(form, n));
    }
  };
  const uint32_t ranks = uint32_t(requests.size());
  for (Request& request : requests) {
    if (header.operation == kPremulSum)
      each(request.data, [&](gpu::Number& n) { is_whole(form) ? void(n.whole *= 3) : void(n.real *= 0.5); });
    if (reduction == Reduction::kAvg && !is_whole(form))
      each(request.data, [&](gpu::Number& n) { n.real /= ranks; });
  }
  const Data data{type, reduction == Reduction::kAvg ? Reduction::kSum : reduction, ranks};
  Bytes total = requests[0].data;
  for (size_t r = 1; r < requests.size(); ++r)
    reduce(data, total.data(), total.data(), requests[r].data.data(), count);
  if (reduction == Reduction::kAvg && is_whole(form)) each(total, [&](gpu::Number& n) { n.whole /= ranks; });
  return total;
}

std::vector<Bytes> answers(std::vector<Request>& requests) {
  const size_t ranks = requests.size();
  std::vector<Bytes> result(ranks);
  const Header& header = requests[0].header;
  if (header.what == kAllReduce || header.what == kReduceScatter) {
    const Bytes total = reduced(requests);
    const size_t share = header.what == kAllReduce ? total.size() : total.size() / ranks;
    for (size_t r = 0; r < ranks; ++r) {
      const auto from = total.begin() + std::ptrdiff_t(header.what == kAllReduce ? 0 : r * share);
      result[r].assign(from, from + std::ptrdiff_t(share));
    }
  } else if (header.what == kAllGather) {
    Bytes all;
    for (const Request& request : requests) all.insert(all.end(), request.data.begin(), request.data.end());
    result.assign(ranks, all);
  } else if (header.what == kBroadcast) {
    result.assign(ranks, requests[size_t(header.root)].data);
  } else {
    std::map<std::pair<size_t, size_t>, std::deque<Bytes>> messages;  // from, to
    for (size_t r = 0; r < ranks; ++r) {
      size_t at = 0;
      for (const Message& sent : requests[r].sends) {
        const auto from = requests[r].data.begin() + std::ptrdiff_t(at);
        messages[{r, size_t(sent.peer)}].emplace_back(from, from + std::ptrdiff_t(sent.bytes));
        at += sent.bytes;
      }
    }
    for (size_t r = 0; r < ranks; ++r)
      for (const Message& wanted : requests[r].receives) {
        auto& waiting = messages[{size_t(wanted.peer), r}];
        if (waiting.empty() || waiting.front().size() != wanted.bytes) return {};
        result[r].insert(result[r].end(), waiting.front().begin(), waiting.front().end());
        waiting.pop_front();
      }
  }
  return result;
}

/// One communicator's arithmetic, until a rank leaves.
void serve_one(int listener) {
  std::vector<int> ranks;
  int expected = 1, known = 0;
  while (known < expected) {
    const int fd = accept(listener, nullptr, nullptr);
    int hello[2] = {0, 0};
    if (fd < 0 || !receive_all(fd, hello, sizeof(hello))) return;
    expected = hello[0];
    ranks.resize(size_t(expected), -1);
    ranks[size_t(hello[1])] = fd;
    ++known;
  }
  for (const int fd : ranks) send_all(fd, "", 1);
  while (true) {
    std::vector<Request> requests(ranks.size());
    bool whole = true;
    for (size_t r = 0; r < ranks.size() && whole; ++r) whole = read_request(ranks[r], requests[r]);
    std::vector<Bytes> replies = whole ? answers(requests) : std::vector<Bytes>();
    for (size_t r = 0; r < replies.size(); ++r) send_all(ranks[r], replies[r].data(), replies[r].size());
    if (!replies.empty()) continue;
    for (const int fd : ranks) close(fd);
    return;
  }
}

}  // namespace

void serve(int listener) {
  while (true) serve_one(listener);
}

}  // namespace r2bench::standin
