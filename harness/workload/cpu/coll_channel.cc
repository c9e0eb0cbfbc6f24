// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/coll_channel.h"

#include <algorithm>
#include <cstring>

#include "harness/workload/cpu/pattern.h"

namespace r2bench {

using namespace r2ccl::nccl_abi;  // NOLINT

namespace {
constexpr size_t kMostChannels = 8;  // COLLNET_GROUP_NSUBS: their chunks are one call
constexpr size_t kLeastPerChannel = 64 << 10;
}  // namespace

size_t coll_piece_bytes(size_t bytes, size_t step_bytes) {
  const size_t channels = std::clamp<size_t>(bytes / kLeastPerChannel, 1, kMostChannels);
  size_t chunk = step_bytes;
  const auto halve_below = [&](size_t chunks, size_t least) {
    while (bytes / (channels * chunk) < chunks && chunk > least) chunk /= 2;
  };
  halve_below(64, 128 << 10);
  halve_below(8, 64 << 10);
  halve_below(1, 32 << 10);
  return channels * chunk;
}

CollChannel::CollChannel(CollPlugin& plugin, const RankConfig& config, int device,
                         const std::string& device_name, Part part)
    : plugin_(plugin), config_(config), device_(device), device_name_(device_name), part_(part) {
  const size_t bytes = part.count * element_size(config.dtype);
  piece_bytes_ = coll_piece_bytes(bytes, config.buffer_bytes / 8);
  pieces_ = (bytes + piece_bytes_ - 1) / piece_bytes_;
}

void CollChannel::fail(const char* call, NetPlugin::Status status) const {
  throw ChannelError(std::string(call) + " of " + config_.label + " (CollNet, NIC " + device_name_ +
                     ") failed: " + describe(status));
}

void CollChannel::listen(void* handle) {
  const auto status = plugin_.listen(device_, handle, &listener_);
  if (status != ncclSuccess) fail("listen", status);
  if (!listener_) throw ChannelError("CollNet's listen on " + device_name_ + " gave no listen comm");
}

bool CollChannel::connect(std::vector<std::vector<unsigned char>>& handles) {
  std::vector<void*> pointers;
  for (auto& handle : handles) pointers.push_back(handle.data());
  const auto status =
      plugin_.connect(pointers.data(), int(pointers.size()), config_.rank(), listener_, &group_);
  if (status != ncclSuccess) group_ = nullptr;
  // NCCL closes the listener as soon as it is connected.
  if (status == ncclSuccess) {
    if (const auto closed = plugin_.close_listen(listener_); closed != ncclSuccess)
      fail("closeListen", closed);
    listener_ = nullptr;
  }
  return group_ != nullptr;
}

void CollChannel::register_memory() {
  send_ = Memory(piece_bytes_ * kOutstanding);
  receive_ = Memory(piece_bytes_ * kOutstanding);
  poison(send_.data(), send_.size());  // the padding: values that are not a number
  const auto reg = [&](Memory& memory, void** registration) {
    const auto status = plugin_.reg(group_, memory.data(), memory.size(), registration);
    if (status != ncclSuccess) fail("regMr", status);
  };
  reg(send_, &send_registration_);
  reg(receive_, &receive_registration_);
}

void CollChannel::close() noexcept {
  if (group_ && send_registration_) plugin_.dereg(group_, send_registration_);
  if (group_ && receive_registration_) plugin_.dereg(group_, receive_registration_);
  if (group_) plugin_.close_group(group_);
  if (listener_) plugin_.close_listen(listener_);
  group_ = listener_ = nullptr;
}

Part CollChannel::piece(size_t index) const {
  const size_t each = piece_bytes_ / element_size(config_.dtype), first = index * each;
  return {part_.first + first, std::min(each, part_.count - first)};
}

void CollChannel::start(const UserBuffers& user) {
  user_ = user;
  filled_ = begun_ = stored_ = 0;
}

bool CollChannel::progress() {
  bool moved = false;
  const size_t element = element_size(config_.dtype), count = piece_bytes_ / element;
  // One piece per round, as the GPU fills them beside the proxy: the network wants to be polled in between.
  if (filled_ < pieces_ && filled_ < stored_ + kOutstanding) {
    const Part data = piece(filled_);
    char* const to = slot(send_, filled_);
    std::memcpy(to, user_.input + data.first * element, data.count * element);
    if (data.count < count) poison(to + data.count * element, (count - data.count) * element);
    ++filled_;
    moved = true;
  }
  while (begun_ < filled_) {
    void*& request = requests_[begun_ % kOutstanding];
    const auto status =
        plugin_.all_reduce(group_, slot(send_, begun_), slot(config_.in_place ? send_ : receive_, begun_),
                           count, nccl_type(config_.dtype), nccl_operation(config_.reduction), send_registration_,
                           config_.in_place ? send_registration_ : receive_registration_, &request);
    if (status != ncclSuccess) fail("iallreduce", status);
    if (!request) break;
    ++begun_;
    moved = true;
  }
  while (stored_ < begun_) {
    bool done = false;
    size_t bytes = 0;
    const auto status = plugin_.test(requests_[stored_ % kOutstanding], &done, &bytes);
    if (status != ncclSuccess) fail("test", status);
    if (!done) break;
    const Part data = piece(stored_);
    std::memcpy(user_.output + data.first * element, slot(config_.in_place ? send_ : receive_, stored_),
                data.count * element);
    ++stored_;
    moved = true;
  }
  return moved;
}

}  // namespace r2bench
