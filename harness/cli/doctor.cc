// SPDX-License-Identifier: Apache-2.0
// `r2bench doctor`: what this machine has, what the core is set to, and what would keep a run from working.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <thread>

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/cli/topology_view.h"
#include "harness/fabric/readiness.h"
#include "harness/real/undo_list.h"
#include "r2ccl/base/config.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

enum class Health { kGood, kNote, kBad };

class Doctor {
 public:
  explicit Doctor(const Console& console) : console_(console) {}

  void section(const std::string& title) {
    console_.out << (console_.colour ? "\033[1m" + title + "\033[0m" : title) << "\n";
  }
  void line(Health health, const std::string& what, const std::string& value) {
    const char* mark = health == Health::kGood ? "✓" : health == Health::kNote ? "·" : "✗";
    const char* colour = health == Health::kGood ? "32" : health == Health::kNote ? "2" : "1;31";
    const std::string lead = "  " + left(what, 21) + " ";
    console_.out << "  " << (console_.colour ? std::string("\033[") + colour + "m" + mark + "\033[0m" : mark)
                 << lead.substr(1) << wrap(value, console_.columns - 2 - width(lead), 2 + width(lead))
                 << "\n";
    bad_ = bad_ || health == Health::kBad;
  }
  bool bad() const { return bad_; }

 private:
  const Console& console_;
  bool bad_ = false;
};

void machine(Doctor& doctor) {
  utsname system{};
  ::uname(&system);
  doctor.line(Health::kNote, "kernel",
              std::string(system.sysname) + " " + system.release + " " + system.machine);
  const unsigned cores = std::thread::hardware_concurrency();
  doctor.line(
      cores >= 2 ? Health::kGood : Health::kNote, "cores",
      std::to_string(cores) + (cores < 4 ? ": ranks share them; times are noisier than on more" : ""));
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  doctor.line(Health::kNote, "locked memory",
              limit.rlim_cur == RLIM_INFINITY
                  ? "unlimited"
                  : faultinject::format_bytes(limit.rlim_cur) +
                        ": enough for the virtual HCA; real NICs need more (ulimit -l unlimited)");
  std::ifstream scope("/proc/sys/kernel/yama/ptrace_scope");
  int value = 0;
  if (scope >> value) {
    doctor.line(
        Health::kNote, "ptrace_scope",
        std::to_string(value) +
            (value == 0 ? ""
                        : ": cross-memory writes between ranks may be refused; shared memory is used then"));
  }
}

/// Real faults of a guard that was killed: put back now.
void left_behind(Doctor& doctor) {
  if (!has_undo_lists()) return;
  if (geteuid() != 0) {
    doctor.line(Health::kNote, "real faults",
                std::string(kUndoFolder) +
                    " exists: a run with real faults is in progress, or was killed before "
                    "it reverted its changes; in that case `sudo r2bench doctor` reverts them");
    return;
  }
  std::vector<std::string> told;
  const size_t failed = put_back_what_is_left([&](const std::string& text) { told.push_back(text); });
  for (const std::string& text : told)
    doctor.line(failed == 0 ? Health::kGood : Health::kBad, "real faults", text);
}

/// What the engine nccl binds at run time, as a rank would find it.
void gpu_libraries(Doctor& doctor) {
  const auto place = [](void* symbol) {
    Dl_info info{};
    return std::string(symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "found");
  };
  void* cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  doctor.line(cuda ? Health::kGood : Health::kNote, "CUDA driver",
              cuda ? place(dlsym(cuda, "cuInit"))
                   : "no libcuda.so.1: scenarios of the engine nccl need a GPU with its driver");
  void* nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  void* version = nccl ? dlsym(nccl, "ncclGetVersion") : nullptr;
  int code = 0;
  if (version) reinterpret_cast<int (*)(int*)>(version)(&code);
  doctor.line(version ? Health::kGood : Health::kNote, "NCCL",
              version ? place(version) + ", version " + std::to_string(code / 10000) + "." +
                            std::to_string(code % 10000 / 100) + "." + std::to_string(code % 100)
                      : "no libnccl.so.2 where the loader looks; name one as 'workload.library'");
}

/// Each fabric with what it has and lacks; whether the wanted one (empty: any) can run.
bool fabrics(Doctor& doctor, const std::string& wanted) {
  const auto python = find_python();
  bool ready = false;
  for (const Readiness& fabric :
       {vhca_readiness((program_prefix() / "lib").string()),
        rxe_readiness(python ? python->string() : std::string()), verbs_readiness()}) {
    const bool matters = wanted.empty() ? fabric.fabric == "vhca" : fabric.fabric == wanted;
    if (fabric.ready()) doctor.line(Health::kGood, fabric.fabric, "scenarios can run on it");
    for (const std::string& missing : fabric.missing)
      doctor.line(matters ? Health::kBad : Health::kNote, fabric.fabric, "cannot run: " + missing);
    for (const std::string& fact : fabric.has) doctor.line(Health::kNote, "", fact);
    ready = ready || (matters && fabric.ready());
  }
  const std::vector<std::string> all_gpus = gpus();
  for (const std::string& gpu : all_gpus) doctor.line(Health::kNote, "GPU", gpu);
  if (all_gpus.empty()) doctor.line(Health::kNote, "GPU", "none");
  doctor.line(Health::kNote, "GPUDirect", gpu_direct());
  gpu_libraries(doctor);
  return ready;
}

void parts(Doctor& doctor) {
  const fs::path prefix = program_prefix();
  struct Part {
    const char* what;
    fs::path path;
    const char* without;
  };
  for (const Part& part :
       {Part{"rank program", prefix / "bin" / "r2bench-cpu-rank", "build the target r2bench-cpu-rank"},
        Part{"GPU rank program", prefix / "bin" / "r2bench-nccl-rank", "build the target r2bench-nccl-rank"},
        Part{"NCCL plugin", prefix / "lib" / "libnccl-net-r2ccl.so", "build the target nccl-net-r2ccl"},
        Part{"fault injector", prefix / "lib" / "libfaultinject.so", "build the target faultinject"},
        Part{"virtual HCA", prefix / "lib" / "vhca" / "libibverbs.so.1", "build the target vhca"}}) {
    const bool there = fs::exists(part.path);
    doctor.line(there ? Health::kGood : Health::kBad, part.what,
                there ? part.path.string() : part.path.string() + " is missing; " + part.without);
  }
  const auto share = share_folder();
  doctor.line(share ? Health::kGood : Health::kBad, "scenarios",
              share ? (*share / "scenarios").string() : "not found; set R2BENCH_SHARE");
  const auto python = find_python();
  if (!python) {
    doctor.line(Health::kNote, "pictures", "no python3; install python3-matplotlib");
    return;
  }
  const ScriptResult check =
      run_python(*python, {"-c", "import matplotlib; print(matplotlib.__version__)"}, 60);
  doctor.line(check.exit_code == 0 ? Health::kGood : Health::kNote, "pictures",
              check.exit_code == 0
                  ? python->string() + ", matplotlib " + check.output.substr(0, check.output.find('\n'))
                  : python->string() + " has no matplotlib; install python3-matplotlib");
}

void settings(Doctor& doctor) {
  const auto config = r2ccl::Config::from_environment();
  if (!config) {
    doctor.line(Health::kBad, "environment", config.error().message);
    return;
  }
  for (const auto& entry : config.value().entries()) {
    doctor.line(Health::kNote, entry.variable,
                (entry.value.empty() ? "(empty)" : entry.value) + " — " + entry.meaning);
  }
}

}  // namespace

int topology_command(const TopologyArguments& arguments, const Console& console) {
  const TopologySource source = !arguments.xml.empty()        ? topology_of_file(arguments.xml)
                                : !arguments.scenario.empty() ? topology_of_scenario(arguments.scenario)
                                                              : topology_of_machine();
  if (draw_topology(source, console.columns, console.out) > 0) return 0;
  console.out << "No RDMA NIC"
              << (arguments.xml.empty()
                      ? " on this machine. Load its driver (ls /sys/class/infiniband), or draw another "
                        "one: --xml FILE, as `lstopo --of xml FILE` writes it there, or --scenario FILE "
                        "(scenarios/numa_far.yaml).\n"
                      : " in this file. Was it written where the NICs are, and with I/O devices "
                        "(lstopo --whole-io --of xml)?\n");
  return 0;
}

int doctor_command(const std::string& fabric, const Console& console) {
  Doctor doctor(console);
  doctor.section("Machine");
  machine(doctor);
  left_behind(doctor);
  doctor.section("Fabrics");
  const bool ready = fabrics(doctor, fabric);
  doctor.section("Parts of this build");
  parts(doctor);
  doctor.section("Settings of the core, as this environment gives them");
  settings(doctor);
  const bool good = ready && !doctor.bad();
  console.out << (good ? "Ready to run.\n" : "Something is missing: see the lines with ✗.\n");
  return good ? 0 : 1;
}

}  // namespace r2bench
