// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/connections.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "harness/workload/cpu/plugin_log.h"

namespace r2bench {

using r2ccl::nccl_abi::ncclSuccess;

Connections::Connections(const RankConfig& config, std::string plugin, uint64_t number)
    : config_(config), name_(std::move(plugin)), number_(number) {}

void Connections::open() {
  plugin_ = load_net_plugin(name_, config_.plugin_abi);
  if (const auto status = plugin_->init(plugin_logger); status != ncclSuccess) {
    std::string why;
    for (const auto& line : plugin_warnings()) why += "; " + line;
    throw PluginError("the net plugin '" + name_ + "' (" + plugin_->name() + ", v" +
                      std::to_string(plugin_->abi()) + ") refused to start: " + describe(status) + why);
  }
  int count = 0;
  if (const auto status = plugin_->devices(&count); status != ncclSuccess || count <= 0)
    throw PluginError("the net plugin offers no device: " + describe(status) + ", " + std::to_string(count) +
                      " devices");
  for (int d = 0; d < count; ++d) {
    devices_.push_back(plugin_->properties(d));
    for (int e = 0; e < d; ++e)
      if (devices_[size_t(e)].name == devices_.back().name)
        throw PluginError("two devices of the net plugin have the name " + devices_.back().name);
  }
}

void Connections::prepare() {
  make_channels();
  set_up_coll();
}

void Connections::make_channels() {
  const int count = int(devices_.size());
  const int channels = config_.channels > 0 ? config_.channels : count;
  plan_ = plan_channels(config_, channels);
  for (size_t c = 0; c < plan_.size(); ++c) {
    const int turn = int(c) % channels;
    const int device =
        config_.devices.empty() ? turn % count : config_.devices[size_t(turn) % config_.devices.size()];
    if (device >= count)
      throw PluginError("the net plugin offers " + std::to_string(count) + " devices, but channel " +
                        std::to_string(c) + " is meant for device " + std::to_string(device));
    channels_.emplace_back(*plugin_, config_, int(c), plan_[c].shift, device, devices_[size_t(device)].name);
  }
}

void Connections::set_up_coll() {
  if (config_.op != Operation::kAllReduce || config_.collnet == CollNet::kOff) return;
  coll_plugin_ = load_coll_plugin(name_, config_.plugin_abi);
  int count = 0;
  if (coll_plugin_ && coll_plugin_->init(number_, plugin_logger) != ncclSuccess) coll_plugin_.reset();
  if (coll_plugin_ && (coll_plugin_->devices(&count) != ncclSuccess || count <= 0)) {
    coll_plugin_->finalize();
    coll_plugin_.reset();
  }
  if (!coll_plugin_) {
    if (config_.collnet == CollNet::kForce)
      throw PluginError("'collnet: force', but the net plugin '" + name_ + "' offers no CollNet");
    return;
  }
  if (count != int(devices_.size()))
    throw PluginError("CollNet has " + std::to_string(count) + " devices, the net has " +
                      std::to_string(devices_.size()));
  int supported = 0;
  coll_plugin_->reduce_support(nccl_type(config_.dtype), nccl_operation(config_.reduction), &supported);
  if (!supported)
    throw PluginError("CollNet does not reduce NCCL's data type " + std::to_string(nccl_type(config_.dtype)));

  // One group, as NCCL makes one for each GPU: on the NIC of the first channel. The plugin may use more of
  // them.
  const int first = channels_.front().device();
  const NetDevice& device = devices_[size_t(first)];
  size_t longest = 0;
  if (const std::string found = coll_plugin_->properties(first, &longest); found != device.name)
    throw PluginError("CollNet calls device " + std::to_string(first) + " " + found + ", the net " +
                      device.name);
  const size_t elements = config_.bytes / element_size(config_.dtype);
  coll_channels_.emplace_back(*coll_plugin_, config_, first, device.name, Part{0, elements});
  double mbps = 0;
  std::vector<int> devices;
  for (const Channel& channel : channels_)
    if (std::find(devices.begin(), devices.end(), channel.device()) == devices.end()) {
      devices.push_back(channel.device());
      mbps += devices_[size_t(channel.device())].speed_mbps;
    }
  // NCCL's model of a network that adds by itself: each byte goes out once and comes back once.
  const double once_us = double(config_.bytes) * 8 / std::max(mbps, 1.0);
  costs_ = {once_us * 2 * (config_.ranks() - 1) / config_.ranks() + 10, once_us + 20};
}

void Connections::listen(std::vector<Handle>& handles, std::vector<int>& shifts) {
  for (size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].listen(handles.emplace_back(r2ccl::nccl_abi::NCCL_NET_HANDLE_MAXSIZE).data());
    shifts.push_back(plan_[c].shift);
  }
  for (CollChannel& channel : coll_channels_) {
    Handle handle(r2ccl::nccl_abi::NCCL_NET_HANDLE_MAXSIZE);
    channel.listen(handle.data());
    for (int shift = 0; shift < config_.ranks(); ++shift) {
      handles.push_back(handle);
      shifts.push_back(shift);
    }
  }
}

size_t Connections::take(const std::vector<Handle>& handles, size_t first) {
  const size_t middle = first + channels_.size(),
               last = middle + coll_channels_.size() * size_t(config_.ranks());
  if (handles.size() < last) throw ChannelError("a rank has sent too few handles");
  handles_.assign(handles.begin() + std::ptrdiff_t(first), handles.begin() + std::ptrdiff_t(middle));
  coll_handles_.assign(handles.begin() + std::ptrdiff_t(middle), handles.begin() + std::ptrdiff_t(last));
  return last;
}

bool Connections::advance() {
  bool all = true;
  for (size_t c = 0; c < channels_.size(); ++c)
    all = channels_[c].advance_connections(handles_[c].data()) && all;
  return all;
}

void Connections::connect_coll() {
  const size_t ranks = size_t(config_.ranks());
  bool all = true;
  for (size_t c = 0; c < coll_channels_.size(); ++c) {
    // From this rank on, as they came; by rank, as they are wanted.
    std::vector<Handle> by_rank(ranks);
    for (size_t shift = 0; shift < ranks; ++shift)
      by_rank[(size_t(config_.rank()) + shift) % ranks] = coll_handles_[c * ranks + shift];
    all = coll_channels_[c].connect(by_rank) && all;
  }
  if (coll_channels_.empty()) return;
  if (!all) {
    // NCCL's ranks tell each other; here the plugin's refusal is everybody's.
    if (config_.collnet == CollNet::kForce)
      throw PluginError("'collnet: force', but the net plugin '" + name_ + "' refuses to connect CollNet");
    for (CollChannel& channel : coll_channels_) channel.close();
    coll_channels_.clear();
    return;
  }
  tuner_ = load_tuner_plugin(name_, plugin_->abi());
  if (!tuner_) return;
  if (const auto status = tuner_->init(number_, ranks, ranks, plugin_logger); status != ncclSuccess)
    throw PluginError("the tuner refused to start, which NCCL does not take: " + describe(status));
}

void Connections::register_memory(const UserBuffers& user, size_t bytes) {
  for (Channel& channel : channels_) channel.register_memory(user, bytes);
  for (CollChannel& channel : coll_channels_) channel.register_memory();
}

bool Connections::goes_through_coll() {
  if (coll_channels_.empty()) return false;
  Algorithm algorithm = cheapest(costs_);
  if (tuner_)
    if (const auto status = tuner_->choose(config_.bytes, costs_, &algorithm); status != ncclSuccess)
      throw ChannelError("the tuner's getCollInfo failed, which ends an operation: " + describe(status));
  return config_.collnet == CollNet::kForce || algorithm == Algorithm::kCollNet;
}

void Connections::start(const UserBuffers& user, uint64_t operation) {
  polled_.clear();
  if (goes_through_coll()) {
    ++coll_operations_;
    for (CollChannel& channel : coll_channels_) {
      channel.start(user);
      polled_.push_back(&channel);
    }
    return;
  }
  for (size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].start(plan_[c].lanes, user, operation);
    polled_.push_back(&channels_[c]);
  }
}

StreamFaults Connections::stream_faults() const {
  StreamFaults faults;
  for (const Channel& channel : channels_) faults += channel.stream_faults();
  return faults;
}

void Connections::close() noexcept {
  if (!plugin_) return;
  for (CollChannel& channel : coll_channels_) channel.close();
  for (Channel& channel : channels_) channel.close();
  try {
    if (tuner_) tuner_->finalize();
    plugin_->finalize();
    if (coll_plugin_) coll_plugin_->finalize();
  } catch (const std::exception& e) {
    fprintf(stderr, "%s: %s\n", config_.label.c_str(), e.what());
  }
}

}  // namespace r2bench
