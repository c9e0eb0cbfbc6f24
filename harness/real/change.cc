// SPDX-License-Identifier: Apache-2.0
#include "harness/real/change.h"

#include <chrono>
#include <filesystem>
#include <sstream>

#include "harness/real/shell.h"

namespace r2bench {
namespace {

constexpr const char* kLinkDown = "real_link_down";
constexpr const char* kTc = "real_tc";
constexpr const char* kOvsDrop = "real_ovs_drop";
constexpr const char* kPcieRemove = "real_pcie_remove";
constexpr const char* kSwitchPort = "real_switch_port";

using faultinject::Effect;
using faultinject::FaultSpec;

constexpr const char* kQdiscHandle = "7232:";
constexpr const char* kRule = "priority=65535,udp,tp_dst=4791";  // RoCE v2, whatever its direction
constexpr const char* kCookie = "cookie=0x7232";
constexpr int kComesBackSeconds = 30;  // a device after a rescan

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

[[noreturn]] void refuse(const FaultSpec& fault, const NicPlace& place, const std::string& why) {
  throw RealFaultError(std::string(fault.kind->name) + " cannot be made on " + place.in_words() + ": " + why);
}

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void link_down(Change& change, const NicPlace& place, const Kept& kept, const std::string& sys) {
  const std::string state = sys + "/class/net/" + place.interface + "/operstate";
  change.apply = {"ip link set dev " + place.interface + " down"};
  change.undo = {"ip link set dev " + place.interface + " up"};
  add(change.undo, kept.addresses);
  add(change.undo, kept.routes);
  change.cut = {Probe::Kind::kFileSays, state, "down"};
  change.back = {Probe::Kind::kFileSays, state, "up"};
  change.effect = Effect::kKernelLinkDown;
}

void traffic_control(Change& change, const FaultSpec& fault, const NicPlace& place) {
  std::ostringstream netem;
  netem << "netem limit 100000";
  if (fault.real.loss > 0) netem << " loss " << fault.real.loss * 100 << "%";
  if (fault.delay.count() > 0) netem << " delay " << (fault.delay.count() + 999) / 1000 << "us";
  if (fault.rate_bits_per_s > 0) netem << " rate " << fault.rate_bits_per_s << "bit";
  const std::string on = " dev " + place.interface + " root handle " + kQdiscHandle;
  const std::string show = "tc qdisc show dev " + place.interface;
  change.apply = {"tc qdisc replace" + on + " " + netem.str()};
  change.undo = {"tc qdisc del" + on};
  change.cut = {Probe::Kind::kOutputHas, show, std::string("qdisc netem ") + kQdiscHandle};
  change.back = {Probe::Kind::kOutputLacks, show, std::string("qdisc netem ") + kQdiscHandle};
  change.effect = Effect::kQdiscSet;
}

void ovs_drop(Change& change, const FaultSpec& fault) {
  const auto ofctl = [&](const std::string& words) {
    return (fault.real.via.empty() ? "" : fault.real.via + " ") + "ovs-ofctl " + words;
  };
  const std::string& bridge = fault.real.bridge;
  const std::string ours = std::string(kCookie) + "/-1";
  const std::string show = ofctl("dump-flows " + bridge + " " + ours);
  change.apply = {ofctl("add-flow " + bridge + " " + kCookie + "," + kRule + ",actions=drop")};
  change.undo = {ofctl("del-flows " + bridge + " " + ours)};
  // A rule that is there and meets no packet has cut nothing.
  change.cut = {Probe::Kind::kOutputHas, show + " | grep actions=drop | grep -v n_packets=0,",
                "actions=drop"};
  change.back = {Probe::Kind::kOutputLacks, show, "actions=drop"};
  change.effect = Effect::kFlowRuleSet;
}

void pcie_remove(Change& change, const NicPlace& place, const Kept& kept, const std::string& sys) {
  const std::string device = sys + "/bus/pci/devices/" + place.pci;
  change.apply = {"echo 1 >" + device + "/remove"};
  change.undo = {"echo 1 >" + sys + "/bus/pci/rescan"};
  if (!place.interface.empty()) {
    // The interface is made anew: without a link, without its addresses.
    change.undo.push_back("for i in $(seq " + std::to_string(10 * kComesBackSeconds) + "); do [ ! -e " + sys +
                          "/class/net/" + place.interface + " ] || break; sleep 0.1; done");
    change.undo.push_back("ip link set dev " + place.interface + " up");
    add(change.undo, kept.addresses);
    add(change.undo, kept.routes);
  }
  change.cut = {Probe::Kind::kPathGone, device, ""};
  change.back = {Probe::Kind::kPathThere, device, ""};
  change.effect = Effect::kPciDeviceGone;
}

void switch_port(Change& change, const FaultSpec& fault, const NicPlace& place, const std::string& sys) {
  const auto filled = [&](std::string command) {
    command = replaced(std::move(command), "{device}", place.device);
    command = replaced(std::move(command), "{interface}", place.interface);
    command = replaced(std::move(command), "{node}", std::to_string(place.node));
    return replaced(std::move(command), "{nic}", std::to_string(place.nic));
  };
  change.apply = {filled(fault.real.cut)};
  change.undo = {filled(fault.real.mend)};
  if (fault.real.check.empty()) {
    const std::string carrier = sys + "/class/net/" + place.interface + "/carrier";
    change.cut = {Probe::Kind::kFileSays, carrier, "0"};
    change.back = {Probe::Kind::kFileSays, carrier, "1"};
    change.effect = Effect::kKernelLinkDown;
  } else {
    change.cut = {Probe::Kind::kSucceeds, filled(fault.real.check), ""};
    change.back = {Probe::Kind::kFails, filled(fault.real.check), ""};
    change.effect = Effect::kCommandChecked;
  }
}

/// How each real fault is made. The kinds themselves are declared in faultinject/faults/real.cc.
struct Maker {
  const char* kind;
  void (*make)(Change&, const FaultSpec&, const NicPlace&, const Kept&, const std::string& sys);
  bool needs_interface = false;
};
constexpr Maker kMakers[] = {
    {kLinkDown,
     [](Change& change, const FaultSpec&, const NicPlace& place, const Kept& kept, const std::string& sys) {
       link_down(change, place, kept, sys);
     },
     true},
    {kTc,
     [](Change& change, const FaultSpec& fault, const NicPlace& place, const Kept&, const std::string&) {
       traffic_control(change, fault, place);
     },
     true},
    {kOvsDrop, [](Change& change, const FaultSpec& fault, const NicPlace&, const Kept&,
                  const std::string&) { ovs_drop(change, fault); }},
    {kPcieRemove, [](Change& change, const FaultSpec&, const NicPlace& place, const Kept& kept,
                     const std::string& sys) { pcie_remove(change, place, kept, sys); }},
    {kSwitchPort, [](Change& change, const FaultSpec& fault, const NicPlace& place, const Kept&,
                     const std::string& sys) { switch_port(change, fault, place, sys); }},
};

const Maker& maker_of(const FaultSpec& fault) {
  for (const Maker& maker : kMakers)
    if (fault.kind->name == std::string_view(maker.kind)) return maker;
  throw RealFaultError(std::string(fault.kind->name) + " is no real fault");
}

Change commands_for(const FaultSpec& fault, const NicPlace& place, const Kept& kept, const std::string& sys) {
  Change change;
  change.where = place.in_words();
  maker_of(fault).make(change, fault, place, kept, sys);
  return change;
}

std::string joined(const std::vector<std::string>& commands) {
  std::string text;
  for (const std::string& command : commands) text += (text.empty() ? "`" : "; ") + command;
  return text + "`";
}

/// Each line of `ip -o route`, as the command that sets it again.
void keep_routes(const std::string& interface, const std::string& text, const std::string& family,
                 std::vector<std::string>& commands) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Those of the kernel itself come back with the address and the link.
    if (line.empty() || line.find("table local") != std::string::npos ||
        line.find("proto kernel") != std::string::npos)
      continue;
    std::istringstream words(line);
    std::string command = "ip " + family + " route replace";
    size_t index = 0;
    bool typed = false;
    for (std::string word; words >> word; ++index) {
      if (word == "linkdown" || word == "dead" || word == "\\") continue;
      if (word == "dev") {  // the filter leaves it out where it is the only one
        words >> word;
        continue;
      }
      command += " " + word;
      if (index == 0 && (word == "unicast" || word == "multicast")) typed = true;
      if (index == (typed ? 1u : 0u)) command += " dev " + interface;
    }
    commands.push_back(command);
  }
}

}  // namespace

std::string Change::in_words() const {
  return where + ": " + joined(apply) + "; put back with " + joined(undo);
}

Kept keep_from(const std::string& interface, const std::string& routes4, const std::string& routes6,
               const std::string& addresses) {
  Kept kept;
  keep_routes(interface, routes4, "-4", kept.routes);
  keep_routes(interface, routes6, "-6", kept.routes);
  std::istringstream lines(addresses);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, name, family, address, word;
    words >> number >> name >> family >> address;
    bool link = false;
    while (words >> word) link = link || word == "link";
    if ((family != "inet" && family != "inet6") || (family == "inet6" && link)) continue;
    kept.addresses.push_back("ip addr replace " + address + " dev " + interface +
                             (family == "inet6" ? " nodad" : ""));
  }
  return kept;
}

Kept keep(const std::string& interface, const std::string& proc) {
  const auto ask = [&](const std::string& words) {
    const ShellResult result = run_shell("ip -o " + words + " dev " + interface, std::chrono::seconds(10));
    if (result.exit_code != 0 || result.cut)
      throw RealFaultError(
          "the routes and addresses of " + interface +
          " cannot be read, so they could not be restored: `ip -o " + words + " dev " + interface + "` " +
          (result.cut ? "prints too much"
                      : "ended with " + std::to_string(result.exit_code) + ": " + result.output));
    return result.output;
  };
  // A kernel without IPv6 (ipv6.disable=1) has no such file, and `ip -6` fails there.
  // If that cannot be told, it is asked, and the fault refused where it fails.
  std::error_code error;
  const std::string addresses = ask("addr show");
  const bool six = std::filesystem::status(proc + "/net/if_inet6", error).type() !=
                       std::filesystem::file_type::not_found ||
                   addresses.find(" inet6 ") != std::string::npos;
  return keep_from(interface, ask("-4 route show table all"), six ? ask("-6 route show table all") : "",
                   addresses);
}

Change change_for(const FaultSpec& fault, const NicPlace& place, const Kept& kept, const std::string& sys) {
  const std::string_view kind = fault.kind->name;
  const bool blind = kind == kSwitchPort && fault.real.check.empty();
  const bool needs_interface = maker_of(fault).needs_interface || blind;
  if (needs_interface && place.interface.empty())
    refuse(fault, place,
           "it has no network interface" + std::string(blind ? "; say how to see it: check: COMMAND" : ""));
  if (kind == kTc && !place.soft)
    refuse(fault, place, "host tc does not affect the RDMA traffic of a real NIC; it is for soft RoCE only");
  if (kind == kPcieRemove && place.pci.empty()) refuse(fault, place, "it is no PCI device");
  return commands_for(fault, place, kept, sys);
}

Change sample_change(const FaultSpec& fault) {
  NicPlace place;
  place.device = "DEVICE";
  place.interface = "INTERFACE";
  place.pci = "ADDRESS";
  Change change = commands_for(fault, place, {}, "/sys");
  change.where = fault.target.text;
  return change;
}

NLOHMANN_JSON_SERIALIZE_ENUM(Probe::Kind, {{Probe::Kind::kFileSays, "file_says"},
                                           {Probe::Kind::kPathGone, "path_gone"},
                                           {Probe::Kind::kPathThere, "path_there"},
                                           {Probe::Kind::kOutputHas, "output_has"},
                                           {Probe::Kind::kOutputLacks, "output_lacks"},
                                           {Probe::Kind::kSucceeds, "succeeds"},
                                           {Probe::Kind::kFails, "fails"}})

void to_json(nlohmann::json& json, const Probe& probe) {
  json = {{"kind", probe.kind}, {"of", probe.of}, {"wanted", probe.wanted}};
}
void from_json(const nlohmann::json& json, Probe& probe) {
  json.at("kind").get_to(probe.kind);
  json.at("of").get_to(probe.of);
  json.at("wanted").get_to(probe.wanted);
}
void to_json(nlohmann::json& json, const Change& change) {
  json = {{"where", change.where}, {"apply", change.apply}, {"undo", change.undo},
          {"cut", change.cut},     {"back", change.back},   {"effect", uint32_t(change.effect)}};
}
void from_json(const nlohmann::json& json, Change& change) {
  json.at("where").get_to(change.where);
  json.at("apply").get_to(change.apply);
  json.at("undo").get_to(change.undo);
  json.at("cut").get_to(change.cut);
  json.at("back").get_to(change.back);
  change.effect = Effect(json.at("effect").get<uint32_t>());
}

}  // namespace r2bench
