// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/testing/fake_net.h"

#include <cstring>

namespace r2ccl {

const Error* g_acquire_error = nullptr;

FakeNet& FakeNet::instance() {
  static FakeNet net;
  return net;
}

Result<Net*> Net::acquire(LogSink) {
  if (g_acquire_error) return *g_acquire_error;
  return static_cast<Net*>(&FakeNet::instance());
}

NicProperties FakeNet::properties(int device) const {
  NicProperties properties;
  properties.name = "fake" + std::to_string(device);
  properties.pci_path = device == 0 ? "/sys/devices/pci0000:00/0000:00:01.0" : "";
  properties.guid = 0x1111u + static_cast<uint64_t>(device);
  properties.port = 1;
  properties.speed_mbps = 100000;
  properties.latency_us = 1.5f;
  properties.max_channels = 4096;
  return properties;
}

Result<Listener*> FakeNet::listen(int device, void* handle) {
  enter();
  if (fail_) return *fail_;
  std::memset(handle, 0x5a, kHandleBytes);
  listener.device = device;
  return &listener;
}

Result<Channel*> FakeNet::connect(int device, void*) {
  enter();
  if (fail_) return *fail_;
  if (!ready) return nullptr;
  channel.device = device;
  return &channel;
}

Result<Channel*> FakeNet::accept(Listener*) {
  enter();
  if (fail_) return *fail_;
  return ready ? &channel : nullptr;
}

Result<Registration*> FakeNet::reg(Channel*, void* data, size_t bytes, const BufferMemory& memory) {
  enter();
  if (fail_) return *fail_;
  last_memory = memory;
  registration = Registration();
  registration.data = data;
  registration.bytes = bytes;
  return &registration;
}

Result<Request*> FakeNet::isend(Channel*, const void*, size_t bytes, Registration*) {
  enter();
  if (fail_) return *fail_;
  if (!ready) return nullptr;
  ++posted;
  last_bytes = bytes;
  return &request;
}

Result<Request*> FakeNet::irecv(Channel*, void*, size_t bytes, Registration*) {
  enter();
  if (fail_) return *fail_;
  if (!ready) return nullptr;
  ++posted;
  last_bytes = bytes;
  return &request;
}

Result<TestOutcome> FakeNet::test(Request* asked) {
  enter();
  if (fail_) return *fail_;
  return asked->outcome;
}

}  // namespace r2ccl
