// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/suite.h"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "faultinject/control/board_host.h"
#include "harness/base/json_text.h"
#include "harness/conformance/strike.h"
#include "harness/fabric/device_fabric.h"
#include "harness/fabric/rxe_fabric.h"
#include "harness/fabric/scripts.h"
#include "harness/launch/injection.h"
#include "harness/launch/process.h"

namespace r2bench::conformance {
namespace {

constexpr std::chrono::minutes kProgramBound{
    45};  ///< the slowest fabric, on a machine that is busy with other things

constexpr int kCarryMs = 2000;

/// A fault as the injector makes it, and as a network does. Device A is node0/nic0, device B node0/nic1.
struct Fault {
  const char* name;
  const char* injected;           ///< without its trigger
  std::vector<std::string> real;  ///< arguments of rxe_net.sh, one call each; 'sleep N' waits between two
  enum { kBreaks, kSlows, kPasses } what = kBreaks;
  unsigned slowed_ms = 0;  ///< kSlows: the least time of what is timed
};

constexpr unsigned kRateMs = unsigned(8'000 * kMessageBytes * kSlowedCompletions / 16'000'000);
constexpr unsigned kDelayMs = 40 * kSlowedCompletions / kInFlight;

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"port_down", "target: node0/nic0, kind: port_down", {"link n0k0 down"}},
      {"peer_port_down", "target: node0/nic1, kind: port_down", {"link n0k1 down"}},
      {"blackhole", "target: node0/nic0, kind: blackhole", {"shape n0k0 loss 100%", "shape s0k0 loss 100%"}},
      {"peer_blackhole",
       "target: node0/nic1, kind: blackhole",
       {"shape n0k1 loss 100%", "shape s0k1 loss 100%"}},
      {"blackhole_in", "target: node0/nic0, kind: blackhole, direction: in", {"shape s0k0 loss 100%"}},
      {"blackhole_out", "target: node0/nic0, kind: blackhole, direction: out", {"shape n0k0 loss 100%"}},
      {"peer_port_flap",
       "target: node0/nic1, kind: port_flap, down: 300 ms, count: 1",
       {"link n0k1 down", "sleep 0.3", "link n0k1 up"},
       Fault::kPasses},
      {"rate",
       "target: node0/nic0, kind: throttle, rate: 16 Mbit/s",
       {"shape n0k0 rate 16mbit"},
       Fault::kSlows,
       kRateMs},
      {"delay",
       "target: node0/nic0, kind: delay, delay: 40 ms",
       {"shape n0k0 delay 40ms"},
       Fault::kSlows,
       kDelayMs},
  };
  return all;
}

class Suite {
 public:
  Suite(const SuiteOptions& options, const std::atomic<bool>& cancel) : options_(options), cancel_(cancel) {}

  nlohmann::json cases() {
    const auto fabric = make();
    std::vector<std::string> arguments;
    for (const std::string& prefix : options_.cases) arguments.insert(arguments.end(), {"--case", prefix});
    return run(*fabric, arguments, nullptr);
  }

  nlohmann::json injected(const Fault& fault) {
    const auto fabric = make();
    faultinject::BoardHost board =
        faultinject::BoardHost::create(std::vector<faultinject::NodeShape>{{node_name(0), 2u}}, 1);
    board.arm(faultinject::parse_fault(YAML::Load("{on: strike, " + std::string(fault.injected) + "}"),
                                       "conformance"));
    nlohmann::json seen = run(*fabric, arguments_of(fault, "event"), &board);
    seen["witnesses"] = board.witnesses().size();
    if (board.witnesses().empty() && !seen.contains("broken")) seen["broken"] = "the fault left no witness";
    return seen;
  }

  nlohmann::json real(const Fault& fault) {
    const auto fabric = make();
    std::string command;
    for (const std::string& words : fault.real)
      command += (command.empty() ? "" : " && ") +
                 (words.starts_with("sleep") ? words : "'" + fabric_script("rxe_net.sh") + "' " + words);
    // What passes must find traffic while it lasts.
    if (fault.what == Fault::kPasses) command = "{ " + command + "; } </dev/null >/dev/null 2>&1 &";
    return run(*fabric, arguments_of(fault, command), nullptr);
  }

  double carried() {
    const auto fabric = make();
    const nlohmann::json seen = run(*fabric, {"--carry", std::to_string(kCarryMs)}, nullptr);
    if (!seen.contains("bits_per_s"))
      throw FabricError("what the fabric " + options_.fabric +
                        " carries cannot be measured: " + seen.value("broken", seen.dump()));
    return seen.at("bits_per_s").get<double>();
  }

 private:
  std::unique_ptr<DeviceFabric> make() const {
    Fabric shape;
    shape.nodes = 1;
    shape.nics_per_node = 2;
    return make_fabric(options_.fabric, shape, options_.lib_dir);
  }

  static std::vector<std::string> arguments_of(const Fault& fault, const std::string& strike) {
    std::vector<std::string> arguments = {"--strike", strike};
    if (fault.what == Fault::kSlows)
      arguments.insert(arguments.end(), {"--slowed-to", std::to_string(fault.slowed_ms)});
    if (fault.what == Fault::kPasses) arguments.push_back("--passes");
    return arguments;
  }

  /// The names of A and B: those that the fabric deals to its node.
  std::vector<std::string> devices(const DeviceFabric& fabric) const {
    if (options_.fabric == "vhca") return {"vhca0", "vhca1"};
    const std::string list = fabric.environment(0).at("FAULTINJECT_NICS");
    const size_t comma = list.find(',');
    return {list.substr(0, comma), list.substr(comma + 1)};
  }

  nlohmann::json run(const DeviceFabric& fabric, const std::vector<std::string>& arguments,
                     faultinject::BoardHost* board) {
    const auto memory = [](const char* name) {
      const int fd = memfd_create(name, MFD_CLOEXEC);
      if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
      return fd;
    };
    struct Close {
      int fd;
      ~Close() { close(fd); }
    } const said{memory("conformance-output")}, json{memory("conformance-json")};
    ProcessSpec spec;
    spec.program = options_.bin_dir + "/r2bench-conformance";
    const auto names = devices(fabric);
    spec.arguments = {"--a", names[0], "--b", names[1], "--json-fd", std::to_string(Process::kControlFd)};
    spec.arguments.insert(spec.arguments.end(), arguments.begin(), arguments.end());
    spec.environment = current_environment();
    for (const auto& [name, value] : fabric.environment(0)) spec.environment[name] = value;
    if (board != nullptr) {
      add_injection(spec.environment,
                    {options_.lib_dir, fabric.library_folders(), board->path(), node_name(0), "conformance"});
    } else {
      std::string folders;
      for (const std::string& folder : fabric.library_folders()) folders += folder + ":";
      if (!folders.empty())
        spec.environment["LD_LIBRARY_PATH"] = folders + spec.environment["LD_LIBRARY_PATH"];
    }
    spec.output_fd = said.fd;
    spec.control_fd = json.fd;
    Process process(spec);
    const auto deadline = std::chrono::steady_clock::now() + kProgramBound;
    while (!process.ended() && !cancel_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto status = process.ended();
    const std::string text = content(json.fd);
    if (!status) return {{"broken", cancel_ ? "cancelled" : "it did not end"}};
    try {
      return json_from(text);
    } catch (const nlohmann::json::exception&) {
      const std::string output = content(said.fd);
      return {{"broken",
               "no result; it said: " + output.substr(output.size() - std::min<size_t>(output.size(), 400))}};
    }
  }

  static std::string content(int fd) {
    std::string text(size_t(lseek(fd, 0, SEEK_END)), '\0');
    const ssize_t n = pread(fd, text.data(), text.size(), 0);
    text.resize(n > 0 ? size_t(n) : 0);
    return text;
  }

  const SuiteOptions& options_;
  const std::atomic<bool>& cancel_;
};

nlohmann::json environment() {
  utsname system{};
  uname(&system);
  return {{"kernel", std::string(system.sysname) + " " + system.release},
          {"machine", system.machine},
          {"cores", std::thread::hardware_concurrency()}};
}

}  // namespace

std::string why_not_run(const nlohmann::json& cases, const std::vector<std::string>& prefixes) {
  if (!cases.is_array()) return "";
  for (const std::string& prefix : prefixes)
    if (std::none_of(cases.begin(), cases.end(),
                     [&](const nlohmann::json& one) { return one.value("case", "").starts_with(prefix); }))
      return "--case " + prefix +
             ": the name of no case begins with that; r2bench-conformance --a x --b x --list prints all "
             "names";
  return "";
}

nlohmann::json run_suite(const SuiteOptions& options, const std::atomic<bool>& cancel) {
  Suite suite(options, cancel);
  const auto say = [&](const std::string& line) {
    if (options.progress) options.progress(options.fabric + ": " + line);
  };
  nlohmann::json result = {{"fabric", options.fabric}, {"environment", environment()}};
  say("cases");
  result["cases"] = suite.cases();
  if (const std::string why = why_not_run(result["cases"], options.cases); !why.empty() && !cancel)
    throw FabricError(why);
  result["faults"] = nlohmann::json::array();
  for (const Fault& fault : faults()) {
    if (!options.faults || cancel) break;
    say(std::string(fault.name) + ", injected");
    result["faults"].push_back(
        {{"fault", fault.name}, {"source", "injected"}, {"seen", suite.injected(fault)}});
    if (options.fabric != "rxe" || cancel) continue;
    say(std::string(fault.name) + ", real");
    result["faults"].push_back({{"fault", fault.name}, {"source", "real"}, {"seen", suite.real(fault)}});
  }
  return result;
}

double measure_carried(const SuiteOptions& options, const std::atomic<bool>& cancel) {
  return Suite(options, cancel).carried();
}

}  // namespace r2bench::conformance
