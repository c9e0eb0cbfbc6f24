// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/topology_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>

namespace r2bench {
namespace {

// Bus numbers that no real device of the GPU's domain has taken so far: those of devices begin low.
constexpr int kBridgeBus = 0xf0, kFirstNicBus = 0xf1;
constexpr const char* kLink = R"(link_speed="32.0 GT/s PCIe" link_width="16")";

std::string bus_id(int domain, int bus, int device) {
  char text[32];
  snprintf(text, sizeof(text), "%04x:%02x:%02x.0", unsigned(domain), unsigned(bus), unsigned(device));
  return text;
}

/// The first value of this key in /proc/cpuinfo's text.
std::string field(const std::string& cpu, const std::string& key, const std::string& otherwise) {
  std::istringstream lines(cpu);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    while (!name.empty() && (name.back() == '\t' || name.back() == ' ')) name.pop_back();
    if (name == key && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return otherwise;
}

}  // namespace

std::string topology_text(const cuda::PciPlace& gpu, const std::vector<std::string>& nics,
                          const std::string& cpu) {
  std::ostringstream text;
  text << "<system version=\"1\">\n  <cpu numaid=\"0\" arch=\"x86_64\" vendor=\""
       << field(cpu, "vendor_id", "GenuineIntel") << "\" familyid=\"" << field(cpu, "cpu family", "6")
       << "\" modelid=\"" << field(cpu, "model", "143") << "\">\n"
       << "    <pci busid=\"" << bus_id(gpu.domain, kBridgeBus, 0)
       << "\" class=\"0x060400\" vendor=\"0x104c\" device=\"0x8232\" subsystem_vendor=\"0x0000\" "
          "subsystem_device=\"0x0000\" "
       << kLink << ">\n"
       << "      <pci busid=\"" << bus_id(gpu.domain, gpu.bus, gpu.device) << "\" class=\"0x030200\" "
       << kLink << "/>\n";
  int bus = kFirstNicBus;
  for (const std::string& nic : nics)
    text << "      <pci busid=\"" << bus_id(gpu.domain, bus++, 0)
         << "\" class=\"0x020700\" vendor=\"0x15b3\" device=\"0x101b\" subsystem_vendor=\"0x15b3\" "
            "subsystem_device=\"0x0007\" "
         << kLink << ">\n        <nic>\n          <net name=\"" << nic
         << "\"/>\n        </nic>\n      </pci>\n";
  text << "    </pci>\n  </cpu>\n</system>\n";
  return text.str();
}

std::string write_topology_file(const cuda::PciPlace& gpu, const std::vector<std::string>& nics) {
  std::ifstream info("/proc/cpuinfo");
  std::ostringstream cpu;
  cpu << info.rdbuf();
  const std::string text = topology_text(gpu, nics, cpu.str());
  const int fd = memfd_create("nccl-topology.xml", 0);
  if (fd < 0 || write(fd, text.data(), text.size()) != ssize_t(text.size()))
    throw std::system_error(errno, std::generic_category(), "the topology file for NCCL");
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace r2bench
