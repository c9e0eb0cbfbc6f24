// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/nic.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "r2ccl/tests/simulation/system.h"

namespace r2ccl::simulation {

Fabric* g_fabric = nullptr;

Nic& Fabric::add(int process, int index, double bytes_per_ns) {
  auto nic = std::make_unique<Nic>();
  nic->number = int(nics.size());
  nic->process = process;
  nic->index = index;
  nic->name = "sim" + std::to_string(index);
  nic->bytes_per_ns = bytes_per_ns;
  std::strncpy(nic->device.name, nic->name.c_str(), sizeof nic->device.name - 1);
  nics.push_back(std::move(nic));
  return *nics.back();
}

Pair& Fabric::add_pair(Nic& nic) {
  auto pair = std::make_unique<Pair>();
  pair->nic = &nic;
  pair->handle.qp_num = kFirstNumber + uint32_t(pairs_.size());
  pairs_.push_back(std::move(pair));
  return *pairs_.back();
}

void Fabric::say(Nic& nic, ibv_event_type type, ibv_qp* pair) {
  ibv_async_event event{};
  event.event_type = type;
  if (pair)
    event.element.qp = pair;
  else
    event.element.port_num = 1;
  nic.events.push_back(event);
  kernel().set_flag(nic.context.async_fd, nic.events.size(), nic.gone);
}

void Fabric::port(Nic& nic, bool up, bool told) {
  if (nic.port_up == up || nic.gone) return;
  nic.port_up = up;
  if (told) say(nic, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

bool Fabric::pair_error(Nic& nic, bool told) {
  std::vector<Pair*> ready;
  for (const auto& pair : pairs_)
    if (!pair->gone && pair->nic == &nic && pair->state == IBV_QPS_RTS) ready.push_back(pair.get());
  return !ready.empty() && pair_error(ready[random.below(ready.size())]->handle.qp_num, told);
}

bool Fabric::pair_error(uint32_t number, bool told) {
  Pair* const pair = find(number);
  if (!pair || pair->state != IBV_QPS_RTS) return false;
  pair->state = IBV_QPS_ERR;
  flush(*pair);
  if (told) say(*pair->nic, IBV_EVENT_QP_FATAL, &pair->handle);
  return true;
}

bool Fabric::in_flight(int nic, int other) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& pair) {
    const std::pair rail(pair->nic->number, pair->remote_nic);
    return (rail == std::pair(nic, other) || rail == std::pair(other, nic)) && !pair->sending.empty() &&
           !pair->gone;
  });
}

void Fabric::remove(Nic& nic, Time kernel_after) {
  nic.refuses = true;
  say(nic, IBV_EVENT_DEVICE_FATAL);
  scheduler().after(kernel_after, [this, &nic] { stop(nic); });
}

void Fabric::stop(Nic& nic) {
  if (nic.driver_returns > scheduler().now())  // the kernel waits for commands that are under way
    return scheduler().at(nic.driver_returns, [this, &nic] { stop(nic); });
  nic.gone = true;
  for (const auto& pair : pairs_)
    if (pair->nic == &nic) pair->state = IBV_QPS_RESET;
  kernel().set_flag(nic.removal.fd, 0, true);
  kernel().set_flag(nic.context.async_fd, nic.events.size(), true);
}

int Fabric::left(int process) const {
  int count = 0;
  for (const auto& pair : pairs_)
    count += !pair->gone && pair->nic->process == process && !pair->nic->ever_faulty;
  for (const auto& nic : nics)
    if (nic->process == process && !nic->ever_faulty) count += int(nic->regions.size());
  return count;
}

void Fabric::complete(Pair& pair, const ibv_wc& entry) {
  if (pair.queue) pair.queue->entries.push_back(entry);
}

// Everything that is posted is reported, behind what has been taken in.
void Fabric::flush(Pair& pair) {
  if (pair.flush_begun) return;
  pair.flush_begun = true;
  pair.deadline = 0;
  const uint32_t number = pair.handle.qp_num;
  const Time begins = unfrozen(*pair.nic), ends = begins + random.between(1, 20) * kMicrosecond;
  for (uint32_t i = pair.first; stops_late && i < pair.first + std::min<size_t>(pair.sending.size(), 4); ++i)
    scheduler().at(begins + random.below(ends - begins), [this, number, i] { send_packet(number, i, true); });
  scheduler().at(ends, [this, number] {
    Pair* const found = find(number);
    if (!found) return;
    Pair& pair = *found;
    pair.flush_begun = false;
    if (pair.nic->frozen_until > scheduler().now() || pair.taken_in > 0) return flush(pair);
    if (pair.state != IBV_QPS_ERR) return;
    for (size_t i = 0; i < pair.sending.size(); ++i) {
      ibv_wc entry{};
      entry.wr_id = pair.sending[i].id;
      entry.status = IBV_WC_WR_FLUSH_ERR;
      entry.qp_num = number;
      complete(pair, entry);
    }
    pair.first += uint32_t(pair.sending.size());
    pair.sending.clear();
    for (size_t i = 0; i < pair.receiving.size(); ++i) {
      ibv_wc entry{};
      entry.wr_id = pair.receiving[i];
      entry.status = IBV_WC_WR_FLUSH_ERR;
      entry.qp_num = number;
      complete(pair, entry);
    }
    pair.receiving.clear();
  });
}

void Fabric::fail(Pair& pair, ibv_wc_status status) {
  if (pair.state != IBV_QPS_RTS || pair.sending.empty()) return;
  pair.state = IBV_QPS_ERR;
  ibv_wc entry{};
  entry.wr_id = pair.sending.front().id;
  entry.status = status;
  entry.qp_num = pair.handle.qp_num;
  pair.sending.pop_front();
  ++pair.first;
  complete(pair, entry);
  flush(pair);
}

void Fabric::arm(Pair& pair) {
  if (pair.timeout == 0) return;
  pair.deadline = scheduler().now() + (Time(4096) << pair.timeout);
  pair.timed = pair.first;
  if (!pair.timer_set) set_timer(pair);
}

// One event at a time: when the deadline has moved meanwhile, it looks once more.
void Fabric::set_timer(Pair& pair) {
  pair.timer_set = true;
  scheduler().at(pair.deadline, [this, number = pair.handle.qp_num] {
    Pair* const found = find(number);
    if (!found) return;
    Pair& pair = *found;
    pair.timer_set = false;
    if (pair.deadline == 0 || pair.state != IBV_QPS_RTS || pair.sending.empty()) return;
    if (pair.deadline > scheduler().now()) return set_timer(pair);
    pair.attempt = pair.first == pair.timed ? pair.attempt + 1 : 0;
    if (pair.nic->frozen_until > scheduler().now()) pair.attempt = 0;
    if (pair.attempt > pair.retries) return fail(pair, IBV_WC_RETRY_EXC_ERR);
    transmit(pair, pair.first);
  });
}

void Fabric::transmit(Pair& pair, uint32_t from) {
  const uint32_t number = pair.handle.qp_num;
  Nic& nic = *pair.nic;
  Time at = std::max(unfrozen(nic), nic.busy_until);
  for (uint32_t i = from; i < pair.first + pair.sending.size(); ++i) {
    const Work& work = pair.sending[i - pair.first];
    scheduler().at(at, [this, number, i] { send_packet(number, i); });
    at += 200 + Time(double(work.opcode == IBV_WR_RDMA_READ ? 16 : work.bytes) / nic.bytes_per_ns);
  }
  nic.busy_until = at;
  arm(pair);
}

Fabric::PacketPtr Fabric::new_packet() {
  if (spare_packets_.empty()) return std::make_unique<Packet>();
  PacketPtr packet = std::move(spare_packets_.back());
  spare_packets_.pop_back();
  return packet;
}

void Fabric::send_packet(uint32_t number, uint32_t index, bool begun) {
  Pair* const found = find(number);
  if (!found) return;
  Pair& pair = *found;
  Nic& nic = *pair.nic;
  // A device that refuses commands goes on until the kernel has stopped it.
  if (pair.state != IBV_QPS_RTS && !(begun && pair.state == IBV_QPS_ERR && !nic.gone)) return;
  if (index < pair.first || index >= pair.first + pair.sending.size()) return;
  if (nic.frozen_until > scheduler().now()) {
    scheduler().at(nic.frozen_until, [this, number, index, begun] { send_packet(number, index, begun); });
    return;
  }
  const Work& work = pair.sending[index - pair.first];
  PacketPtr packet = new_packet();
  packet->from = number;
  packet->index = index;
  packet->work = work;
  packet->payload.clear();
  if (work.opcode != IBV_WR_RDMA_READ && work.bytes > 0) {
    const uint8_t* from = work.has_inline ? work.inlined : work.data;
    if (!work.has_inline) {
      const auto region = nic.regions.find(work.lkey);
      if (region == nic.regions.end()) {
        // One that nobody could stop finds this out by itself.
        if (!nic.pretends && !nic.unstoppable)
          watch->broken("a NIC reads memory that is not registered any more");
        return fail(pair, IBV_WC_LOC_PROT_ERR);
      }
      watch->read(nic, from, work.bytes);
    }
    packet->payload.assign(from, from + work.bytes);
  }
  Nic& other = *nics[size_t(pair.remote_nic)];
  if (!nic.port_up || nic.deaf || other.deaf || !other.port_up || is_cut(nic, other)) return;
  Time delay = latency + random.below(2 * kMicrosecond);
  if (const Time late = std::max(nic.late, other.late); late > 0)
    delay += random.below(std::min(late, lifetime - latency - 3 * kMicrosecond));
  // The network keeps the order of a connection's packets.
  pair.last_arrival = std::max(pair.last_arrival + 1, scheduler().now() + delay);
  scheduler().at(pair.last_arrival,
                 [this, packet = std::move(packet)]() mutable { arrive(std::move(packet)); });
}

// Its NIC takes it in, if the queue pair that it is for is one that does.
void Fabric::arrive(PacketPtr packet) {
  const uint32_t from = packet->from, index = packet->index;
  const Work& work = packet->work;
  // Its sender may be gone by now; the packet is on its way all the same.
  Pair* const found = find(ever_made(from)->remote_number);
  if (!found) return;
  Pair& to = *found;
  Nic& nic = *to.nic;
  if (!nic.port_up || nic.deaf || nic.gone || (to.state != IBV_QPS_RTR && to.state != IBV_QPS_RTS)) return;
  if (nic.frozen_until > scheduler().now()) {  // it lies in the NIC, which goes on later
    ++to.taken_in;
    const uint32_t number = to.handle.qp_num;
    scheduler().at(nic.frozen_until, [this, number, packet = std::move(packet)]() mutable {
      Pair* const to = find(number);
      if (!to) return;
      --to->taken_in;
      if (packet->index != to->next_expected) return;
      ++to->next_expected;
      place(std::move(packet), number);
    });
    return;
  }
  if (index != to.next_expected) {
    if (int32_t(index - to.next_expected) < 0 && to.state == IBV_QPS_RTS && work.opcode != IBV_WR_RDMA_READ)
      scheduler().after(latency, [this, from, index] { acknowledge(from, index, nullptr); });
    if (int32_t(index - to.next_expected) > 0 && !std::exchange(to.asked_again, true))  // out of sequence
      scheduler().after(latency, [this, from] {
        Pair* const pair = find(from);
        if (pair && pair->state == IBV_QPS_RTS && !pair->sending.empty() &&
            carries(*pair->nic, *nics[size_t(pair->remote_nic)]))
          transmit(*pair, pair->first);
      });
    if (int32_t(index - to.next_expected) >= 0 || work.opcode != IBV_WR_RDMA_READ) return;
  }
  ++to.taken_in;
  to.asked_again = false;
  if (index == to.next_expected) ++to.next_expected;
  const uint32_t number = to.handle.qp_num;
  scheduler().after(100 + random.below(kMicrosecond), [this, number, packet = std::move(packet)]() mutable {
    Pair* const to = find(number);
    if (!to) return;
    --to->taken_in;
    place(std::move(packet), number);
  });
}

void Fabric::place(PacketPtr packet, uint32_t to) {
  const uint32_t from = packet->from, index = packet->index;
  const Work& work = packet->work;
  Pair& pair = *find(to);
  Nic& nic = *pair.nic;
  if (nic.gone) return;
  if (nic.frozen_until > scheduler().now()) {
    ++pair.taken_in;
    scheduler().at(nic.frozen_until, [this, to, packet = std::move(packet)]() mutable {
      Pair* const pair = find(to);
      if (!pair) return;
      --pair->taken_in;
      place(std::move(packet), to);
    });
    return;
  }
  Answer answer;
  if (work.bytes > 0) {
    const auto region = nic.regions.find(work.rkey);
    const auto* at = reinterpret_cast<const uint8_t*>(work.remote);
    if (region == nic.regions.end() || at < region->second->addr ||
        at + work.bytes > static_cast<uint8_t*>(region->second->addr) + region->second->length) {
      scheduler().after(latency, [this, from] {
        if (Pair* const pair = find(from)) fail(*pair, IBV_WC_REM_ACCESS_ERR);
      });
      return;
    }
    if (work.opcode == IBV_WR_RDMA_READ) {
      answer = std::make_unique<const std::vector<uint8_t>>(at, at + work.bytes);
    } else if (work.opcode == IBV_WR_RDMA_WRITE && nic.lose_lines > 0) {
      --nic.lose_lines;
    } else {
      watch->written(nic, at, work.bytes);
      std::memcpy(const_cast<uint8_t*>(at), packet->payload.data(), work.bytes);
    }
  }
  if (work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    if (nic.lose_immediates > 0) {
      --nic.lose_immediates;
    } else if (pair.receiving.empty()) {
      if (pair.state == IBV_QPS_RTS || pair.state == IBV_QPS_RTR)
        watch->broken("a receive queue has run dry");
      return;
    } else {
      ibv_wc entry{};
      entry.wr_id = pair.receiving.front();
      pair.receiving.pop_front();
      entry.status = IBV_WC_SUCCESS;
      entry.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
      entry.byte_len = work.bytes;
      entry.imm_data = work.immediate;
      entry.wc_flags = IBV_WC_WITH_IMM;
      entry.qp_num = to;
      complete(pair, entry);
    }
  }
  spare_packets_.push_back(std::move(packet));
  if (pair.state == IBV_QPS_ERR) return;  // it acknowledges nothing any more
  scheduler().after(latency + random.below(kMicrosecond),
                    [this, from, index, answer = std::move(answer)]() mutable {
                      acknowledge(from, index, std::move(answer));
                    });
}

void Fabric::acknowledge(uint32_t from, uint32_t index, Answer answer) {
  Pair* const found = find(from);
  if (!found) return;
  Pair& pair = *found;
  Nic& nic = *pair.nic;
  if (pair.state != IBV_QPS_RTS || nic.deaf || !nic.port_up || nic.gone || nic.refuses) return;
  if (!carries(nic, *nics[size_t(pair.remote_nic)])) return;
  if (nic.frozen_until > scheduler().now()) {
    scheduler().at(nic.frozen_until, [this, from, index, answer = std::move(answer)]() mutable {
      acknowledge(from, index, std::move(answer));
    });
    return;
  }
  bool some = false;
  while (!pair.sending.empty() && int32_t(index - pair.first) >= 0) {
    const Work& work = pair.sending.front();
    if (work.opcode == IBV_WR_RDMA_READ) {
      if (!answer || index != pair.first) break;  // only its own answer completes a READ
      std::memcpy(work.data, answer->data(), work.bytes);
    }
    pair.sending.pop_front();  // where it lay it stays until something else is posted
    ++pair.first;
    some = true;
    if (!work.signaled) continue;
    if (work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && nic.lose_completions > 0) {
      --nic.lose_completions;
      continue;
    }
    ibv_wc entry{};
    entry.wr_id = work.id;
    entry.status = IBV_WC_SUCCESS;
    entry.qp_num = from;
    entry.byte_len = work.bytes;
    complete(pair, entry);
  }
  if (some) {
    pair.attempt = 0;
    if (pair.sending.empty())
      pair.deadline = 0;
    else
      arm(pair);
  }
}

namespace {

Nic& nic_of(ibv_context* context) {
  for (auto& nic : g_fabric->nics)
    if (&nic->context == context) return *nic;
  std::abort();
}

// Driver calls take their time, and a device that is being removed refuses them.
int command(Nic& nic) {
  ++nic.commands;
  if (scheduler().current()) {
    const Time since = scheduler().now();
    nic.under_way.push_back(since);
    scheduler().sleep(nic.command_time / 2 + g_fabric->random.below(nic.command_time));
    while (nic.driver_returns > scheduler().now() && !nic.gone) scheduler().wait(nic.driver_returns);
    nic.under_way.erase(std::find(nic.under_way.begin(), nic.under_way.end(), since));
  }
  return nic.refuses ? EIO : 0;
}

int post_send(ibv_qp* handle, ibv_send_wr* request, ibv_send_wr**) {
  Pair& pair = *reinterpret_cast<Pair*>(handle);
  if (pair.sending.size() >= 2048) return g_fabric->told.error(handle->qp_num), ENOMEM;
  if (request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && pair.nic->refuse_posts > 0) {
    --pair.nic->refuse_posts;
    g_fabric->told.error(handle->qp_num);
    return ENOMEM;
  }
  Work& work = pair.sending.grow();
  work = {};
  work.opcode = request->opcode;
  work.id = request->wr_id;
  work.signaled = request->send_flags & IBV_SEND_SIGNALED;
  if (request->num_sge > 0) {
    work.data = reinterpret_cast<uint8_t*>(request->sg_list[0].addr);
    work.bytes = request->sg_list[0].length;
    work.lkey = request->sg_list[0].lkey;
  }
  if ((request->send_flags & IBV_SEND_INLINE) && work.bytes <= sizeof work.inlined) {
    work.has_inline = true;
    std::memcpy(work.inlined, work.data, work.bytes);
  }
  work.remote = request->wr.rdma.remote_addr;
  work.rkey = request->wr.rdma.rkey;
  work.immediate = request->imm_data;
  if (pair.state == IBV_QPS_RTS)
    g_fabric->transmit(pair, pair.first + uint32_t(pair.sending.size()) - 1);
  else if (pair.state == IBV_QPS_ERR)
    g_fabric->flush(pair);
  return 0;
}

int post_receive(ibv_qp* handle, ibv_recv_wr* request, ibv_recv_wr**) {
  Pair& pair = *reinterpret_cast<Pair*>(handle);
  for (; request; request = request->next) pair.receiving.push_back(request->wr_id);
  if (pair.state == IBV_QPS_ERR) g_fabric->flush(pair);
  return 0;
}

int poll_queue(ibv_cq* handle, int most, ibv_wc* out) {
  Queue& queue = *reinterpret_cast<Queue*>(handle);
  if (queue.nic->frozen_until > scheduler().now()) return 0;
  int count = 0;
  while (count < most && !queue.entries.empty()) {
    const ibv_wc& entry = out[count++] = queue.entries.front();
    if (entry.status != IBV_WC_SUCCESS) g_fabric->told.error(entry.qp_num);
    queue.entries.pop_front();
  }
  return count;
}

}  // namespace
}  // namespace r2ccl::simulation

using namespace r2ccl::simulation;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const int process = scheduler().process();
  auto** list = static_cast<ibv_device**>(std::calloc(g_fabric->nics.size() + 1, sizeof(ibv_device*)));
  int found = 0;
  for (auto& nic : g_fabric->nics)
    if (nic->process == process) list[found++] = &nic->device;
  if (count) *count = found;
  return list;
}
void ibv_free_device_list(ibv_device** list) { std::free(list); }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
__be64 ibv_get_device_guid(ibv_device* device) {
  for (auto& nic : g_fabric->nics)
    if (&nic->device == device) return __be64(0x1000 + nic->number);
  return 0;
}
ibv_context* ibv_open_device(ibv_device* device) {
  for (auto& nic : g_fabric->nics) {
    if (&nic->device != device) continue;
    nic->context.device = device;
    nic->context.async_fd = kernel().make(File::Kind::kFlag);
    nic->context.ops.poll_cq = poll_queue;
    nic->context.ops.post_send = post_send;
    nic->context.ops.post_recv = post_receive;
    return &nic->context;
  }
  return nullptr;
}
int ibv_close_device(ibv_context* context) {
  kernel().close(context->async_fd);
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* out) {
  *out = {};
  out->max_qp = 4096;
  out->max_qp_wr = 4096;
  out->max_cq = 4096;
  out->max_cqe = 65536;
  out->max_mr = 65536;
  out->phys_port_cnt = 1;
  return 0;
}
#undef ibv_query_port
int ibv_query_port(ibv_context* context, uint8_t, _compat_ibv_port_attr* compat) {
  Nic& nic = nic_of(context);
  if (scheduler().current() && nic.commands > 0 && command(nic) != 0) return EIO;
  auto* out = reinterpret_cast<ibv_port_attr*>(compat);
  std::memset(out, 0, offsetof(ibv_port_attr, link_layer) + 1);
  out->state = nic.port_up && !nic.refuses ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  if (out->state == IBV_PORT_ACTIVE) g_fabric->told.down.erase(nic.number);
  out->gid_tbl_len = 1;
  out->pkey_tbl_len = 1;
  out->active_mtu = IBV_MTU_4096;
  out->active_speed = 32;
  out->active_width = 2;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
int ibv_query_gid(ibv_context* context, uint8_t, int, ibv_gid* gid) {
  *gid = {};
  gid->raw[10] = gid->raw[11] = 0xff;
  gid->raw[12] = 10;
  gid->raw[15] = uint8_t(nic_of(context).number);
  return 0;
}
int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t,
                      size_t) {
  *entry = {};
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return ibv_query_gid(context, uint8_t(port), int(index), &entry->gid);
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Nic& nic = nic_of(context);
  nic.removal.context = context;
  nic.removal.fd = kernel().make(File::Kind::kFlag);
  return &nic.removal;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  kernel().close(channel->fd);
  return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Nic& nic = nic_of(context);
  nic.domain.context = context;
  return &nic.domain;
}
int ibv_dealloc_pd(ibv_pd*) { return 0; }
#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* data, size_t bytes, int) {
  Nic& nic = nic_of(domain->context);
  if (const int error = command(nic); error != 0) {
    errno = error;
    return nullptr;
  }
  auto region = std::make_unique<ibv_mr>();
  *region = {};
  region->context = domain->context;
  region->pd = domain;
  region->addr = data;
  region->length = bytes;
  region->lkey = region->rkey = ++g_fabric->next_key;
  ibv_mr* out = region.get();
  nic.regions.emplace(out->lkey, std::move(region));
  return out;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* data, size_t bytes, uint64_t, unsigned) {
  return ibv_reg_mr(domain, data, bytes, 0);
}
int ibv_dereg_mr(ibv_mr* region) {
  Nic& nic = nic_of(region->context);
  if (const int error = command(nic); error != 0 && !nic.gone) return error;
  if (!nic.pretends) nic.regions.erase(region->lkey);
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) {
  Nic& nic = nic_of(context);
  if (const int error = command(nic); error != 0) {
    errno = error;
    return nullptr;
  }
  auto* queue = new Queue;
  queue->nic = &nic;
  queue->handle.context = context;
  return &queue->handle;
}
int ibv_destroy_cq(ibv_cq* handle) {
  Nic& nic = nic_of(handle->context);
  if (const int error = command(nic); error != 0 && !nic.gone) return error;  // its queue pairs still use it
  delete reinterpret_cast<Queue*>(handle);
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  Nic& nic = nic_of(domain->context);
  if (const int error = command(nic); error != 0) {
    errno = error;
    return nullptr;
  }
  Pair& pair = g_fabric->add_pair(nic);
  pair.queue = reinterpret_cast<Queue*>(attributes->send_cq);
  pair.handle.context = domain->context;
  pair.handle.pd = domain;
  attributes->cap.max_inline_data = 64;
  return &pair.handle;
}
int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  Pair& pair = *reinterpret_cast<Pair*>(handle);
  if (const int error = command(*pair.nic); error != 0) return error;
  if (pair.nic->pretends) return 0;
  if (mask & IBV_QP_STATE) {
    if (pair.state == IBV_QPS_ERR && attributes->qp_state != IBV_QPS_ERR) return EINVAL;
    pair.state = attributes->qp_state;
  }
  if (mask & IBV_QP_DEST_QPN) pair.remote_number = attributes->dest_qp_num;
  if (mask & IBV_QP_AV) pair.remote_nic = attributes->ah_attr.grh.dgid.raw[15];
  if (mask & IBV_QP_TIMEOUT) pair.timeout = attributes->timeout;
  if (mask & IBV_QP_RETRY_CNT) pair.retries = attributes->retry_cnt;
  if (pair.state == IBV_QPS_ERR) {
    pair.deadline = 0;
    g_fabric->flush(pair);
  }
  return 0;
}
// When it returns, the NIC has done with the queue pair.
int ibv_destroy_qp(ibv_qp* handle) {
  Pair& pair = *reinterpret_cast<Pair*>(handle);
  Nic& nic = *pair.nic;
  if (const int error = command(nic); error != 0 && !nic.gone) return error;
  if (nic.pretends) {  // it says so
    pair.queue = nullptr;
    return 0;
  }
  pair.queue->entries.erase_if([&](const ibv_wc& entry) { return entry.qp_num == handle->qp_num; });
  pair.gone = true;
  pair.sending.clear();
  pair.receiving.clear();
  return 0;
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* out) {
  Nic& nic = nic_of(context);
  if (nic.events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *out = nic.events.front();
  g_fabric->told.events.insert(nic.number);
  if (out->event_type == IBV_EVENT_PORT_ERR) g_fabric->told.down.insert(nic.number);
  if (out->event_type == IBV_EVENT_PORT_ACTIVE) g_fabric->told.down.erase(nic.number);
  nic.events.pop_front();
  kernel().set_flag(context->async_fd, nic.events.size(), nic.gone);
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}
int ibv_fork_init() { return 0; }
}
