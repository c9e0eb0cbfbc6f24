// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/channel.h"

#include <algorithm>
#include <cstring>

#include "harness/workload/cpu/capture.h"
#include "harness/workload/cpu/pattern.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {

using r2ccl::trace::EventType;
using r2ccl::trace::Writer;
using namespace r2ccl::nccl_abi;  // NOLINT

namespace {
constexpr int kSteps = 8;          // NCCL_STEPS
constexpr int kStepsPerSlice = 2;  // ring, Simple protocol
constexpr int kTag = 0x7c1;
}  // namespace

Channel::Channel(NetPlugin& plugin, const RankConfig& config, int index, int shift, int device,
                 const std::string& device_name)
    : plugin_(plugin),
      config_(config),
      index_(index),
      shift_(shift),
      device_(device),
      device_name_(device_name),
      records_messages_(!captures_operations_only()),
      check_(config, shift) {
  const size_t step = config.buffer_bytes / kSteps;
  if (!point_to_point(config.op)) {
    slot_bytes_ = step * kStepsPerSlice;
    slots_ = kSteps / kStepsPerSlice;
  } else {
    slot_bytes_ = config.registered ? step * kStepsPerSlice : std::min(step, config.p2p_chunk_bytes);
    slots_ = kSteps;
  }
}

void Channel::fail(const char* call, NetPlugin::Status status, bool sending) const {
  const uint32_t next = config_.job_rank(config_.rank() + shift_),
                 previous = config_.job_rank(config_.rank() - shift_);
  throw ChannelError(std::string(call) + " on channel " + std::to_string(index_) + " of " + config_.label +
                     " (NIC " + device_name_ + ", " +
                     (sending ? "to rank " + std::to_string(next) : "from rank " + std::to_string(previous)) +
                     ") failed: " + describe(status));
}

void Channel::listen(void* handle) {
  const auto status = plugin_.listen(device_, handle, &listener_);
  if (status != ncclSuccess) fail("listen", status, false);
  if (!listener_) throw ChannelError("listen on " + device_name_ + " gave no listen comm");
}

bool Channel::advance_connections(void* peer_handle) {
  if (!send_comm_) {
    const auto status = plugin_.connect(device_, peer_handle, &send_comm_);
    if (status != ncclSuccess) fail("connect", status, true);
  }
  if (!recv_comm_) {
    const auto status = plugin_.accept(listener_, &recv_comm_);
    if (status != ncclSuccess) fail("accept", status, false);
  }
  return send_comm_ && recv_comm_;
}

void Channel::register_memory(const UserBuffers& user, size_t bytes) {
  const auto reg = [&](void* comm, void* data, size_t size, void** registration, bool sending) {
    const auto status = plugin_.reg(comm, data, size, registration);
    if (status != ncclSuccess) fail("regMr", status, sending);
  };
  if (direct()) {
    reg(send_comm_, sends_what_it_received() ? user.output : user.input, bytes, &input_registration_, true);
    reg(recv_comm_, user.output, bytes, &output_registration_, false);
    return;
  }
  send_buffer_ = Memory(slot_bytes_ * slots_);
  recv_buffer_ = Memory(slot_bytes_ * slots_);
  reg(send_comm_, send_buffer_.data(), send_buffer_.size(), &send_registration_, true);
  reg(recv_comm_, recv_buffer_.data(), recv_buffer_.size(), &recv_registration_, false);
}

void Channel::close() noexcept {
  // NCCL deregisters, then closes; what fails here fails an ended job, so it is only passed over.
  if (send_comm_ && send_registration_) plugin_.dereg(send_comm_, send_registration_);
  if (recv_comm_ && recv_registration_) plugin_.dereg(recv_comm_, recv_registration_);
  if (send_comm_ && input_registration_) plugin_.dereg(send_comm_, input_registration_);
  if (recv_comm_ && output_registration_) plugin_.dereg(recv_comm_, output_registration_);
  if (send_comm_) plugin_.close_send(send_comm_);
  if (recv_comm_) plugin_.close_recv(recv_comm_);
  if (listener_) plugin_.close_listen(listener_);
  send_comm_ = recv_comm_ = listener_ = nullptr;
}

void Channel::start(const std::vector<Lane>& lanes, const UserBuffers& user, uint64_t number) {
  lanes_.clear();
  receive_steps_.clear();
  send_steps_ = 0;
  for (const Lane& lane : lanes) {
    lanes_.push_back({&lane, 0});
    for (const Step& step : lane) {
      if (step.receives) receive_steps_.push_back(step);
      send_steps_ += step.sends;
    }
  }
  check_.begin_operation(receive_steps_, number);
  user_ = user;
  operation_first_receive_ = posted_;
  operation_first_send_ = filled_;
}

bool Channel::finished() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const LaneState& l) { return l.next == l.steps->size(); }) &&
         completed_ == filled_;
}

bool Channel::progress() {
  bool moved = post_receives();
  moved |= test_receives();
  moved |= run_steps();
  moved |= post_sends();
  moved |= test_sends();
  return moved;
}

bool Channel::post_receives() {
  bool moved = false;
  while (posted_ - operation_first_receive_ < receive_steps_.size() && posted_ - consumed_ < slots_) {
    const Step& step = receive_steps_[posted_ - operation_first_receive_];
    Slot& slot = receives_[posted_ % slots_];
    // NCCL offers the whole slot; straight into the user's buffer only what belongs there.
    slot.data = direct() ? user_.output + step.first * element() : slot_memory(recv_buffer_, posted_);
    const size_t room = direct() ? step.count * element() : slot_bytes_;
    const auto status = plugin_.irecv(recv_comm_, slot.data, room, kTag,
                                      direct() ? output_registration_ : recv_registration_, &slot.request);
    if (status != ncclSuccess) fail("irecv", status, false);
    if (slot.request == kPresetRequest)
      throw ChannelError("irecv on " + device_name_ + " did not set its request");
    if (!slot.request) break;
    ++posted_;
    moved = true;
  }
  return moved;
}

bool Channel::test_receives() {
  bool moved = false;
  while (received_ < posted_) {
    Slot& slot = receives_[received_ % slots_];
    bool done = false;
    const auto status = plugin_.test(slot.request, &done, &slot.bytes);
    if (status != ncclSuccess) fail("test of a receive", status, false);
    if (!done) break;
    const Step& step = receive_steps_[received_ - operation_first_receive_];
    if (slot.bytes != step.count * element()) ++size_errors_;
    if (config_.verify) check_.on_message(slot.data, slot.bytes);
    if (records_messages_)
      Writer::instance().emit(EventType::kMessageReceived, uint16_t(device_), uint32_t(index_), slot.bytes,
                              received_);
    ++received_;
    moved = true;
  }
  return moved;
}

bool Channel::run_steps() {
  bool moved = false;
  for (LaneState& lane : lanes_) {
    if (lane.next == lane.steps->size()) continue;
    const Step& step = (*lane.steps)[lane.next];
    if (step.receives && consumed_ == received_) continue;
    if (step.sends && filled_ - completed_ == slots_) continue;
    // One step per round: a slice is up to 1 MiB of work, and the NIC wants to be polled in between.
    const size_t bytes = step.count * element();
    char* own = user_.input + step.first * element();
    char* out = user_.output + step.first * element();
    if (step.sends) {
      Slot& slot = sends_[filled_ % slots_];
      slot.bytes = bytes;
      slot.data = direct() ? (step.receives ? out : own) : slot_memory(send_buffer_, filled_);
      if (!direct()) {
        if (step.reduces)
          reduce(config_.data(), slot.data, receives_[consumed_ % slots_].data, own, step.count);
        else
          std::memcpy(slot.data, step.receives ? receives_[consumed_ % slots_].data : own, bytes);
        if (step.stores) std::memcpy(out, slot.data, bytes);
      }
      ++filled_;
    } else if (!direct()) {
      const char* received = receives_[consumed_ % slots_].data;
      if (step.reduces)
        reduce(config_.data(), out, received, own, step.count);
      else
        std::memcpy(out, received, bytes);
    }
    if (step.receives) ++consumed_;
    ++lane.next;
    moved = true;
  }
  return moved;
}

bool Channel::post_sends() {
  bool moved = false;
  while (sent_ < filled_) {
    Slot& slot = sends_[sent_ % slots_];
    const auto status = plugin_.isend(send_comm_, slot.data, slot.bytes, kTag,
                                      direct() ? input_registration_ : send_registration_, &slot.request);
    if (status != ncclSuccess) fail("isend", status, true);
    if (slot.request == kPresetRequest)
      throw ChannelError("isend on " + device_name_ + " did not set its request");
    if (!slot.request) break;
    ++sent_;
    moved = true;
  }
  return moved;
}

bool Channel::test_sends() {
  bool moved = false;
  while (completed_ < sent_) {
    Slot& slot = sends_[completed_ % slots_];
    bool done = false;
    size_t bytes = 0;
    const auto status = plugin_.test(slot.request, &done, &bytes);
    if (status != ncclSuccess) fail("test of a send", status, true);
    if (!done) break;
    ++completed_;
    moved = true;
  }
  return moved;
}

}  // namespace r2bench
