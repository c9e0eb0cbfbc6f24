// SPDX-License-Identifier: Apache-2.0
// What NCCL has for one communicator of a rank: the net plugin, the channels over it, CollNet and the tuner.
// The calls are in the order of NCCL's: open, listen, connect, register; then operations, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/workload/cpu/coll_channel.h"
#include "harness/workload/cpu/rank_config.h"

namespace r2bench {

class Connections {
 public:
  using Handle = std::vector<unsigned char>;

  /// `plugin` as in NCCL_NET_PLUGIN; `number`: NCCL's of the communicator, the same on all its ranks.
  Connections(const RankConfig& config, std::string plugin, uint64_t number);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Set-up and tear-down. They throw PluginError or ChannelError. From listen() on, on the service thread.
  /// Loads and starts the plugin.
  void open();
  /// Plans the channels and looks for CollNet, as NCCL does at a communicator's init.
  void prepare();
  /// Adds a handle for each rank that this one is to be reached from, and how many places back in the ring
  /// that rank is: for each channel one, for CollNet one for every rank.
  void listen(std::vector<Handle>& handles, std::vector<int>& shifts);
  /// Takes this rank's part of what all ranks' listen() gave, from `first` on. Returns the place after it.
  size_t take(const std::vector<Handle>& handles, size_t first);
  /// One round of connect and accept. true: all channels are there.
  bool advance();
  /// Blocks until all ranks are there. CollNet that the plugin refuses is left out, unless it is forced.
  void connect_coll();
  void register_memory(const UserBuffers& user, size_t bytes);
  void close() noexcept;
  /// How many calls that may take long close() makes.
  size_t closes() const { return channels_.size() + coll_channels_.size(); }

  const NetPlugin& plugin() const { return *plugin_; }
  const std::vector<NetDevice>& devices() const { return devices_; }

  // One operation; on the progress thread.
  /// Of operation `operation`, warm-ups included; polled() is then what runs it.
  void start(const UserBuffers& user, uint64_t operation);
  const std::vector<Polled*>& polled() const { return polled_; }
  uint64_t coll_operations() const { return coll_operations_; }
  StreamFaults stream_faults() const;

 private:
  void make_channels();
  void set_up_coll();
  /// Ring or CollNet.
  bool goes_through_coll();

  const RankConfig config_;
  const std::string name_;
  const uint64_t number_;
  std::unique_ptr<NetPlugin> plugin_;
  std::vector<NetDevice> devices_;
  std::vector<ChannelPlan> plan_;  ///< per channel
  std::vector<Channel> channels_;
  std::unique_ptr<CollPlugin> coll_plugin_;
  std::unique_ptr<TunerPlugin> tuner_;
  std::vector<CollChannel> coll_channels_;
  std::vector<Handle> handles_, coll_handles_;  ///< of the peers
  CostTable costs_;
  uint64_t coll_operations_ = 0;
  std::vector<Polled*> polled_;
};

}  // namespace r2bench
