// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/first_day_steps.h"

#include <sstream>

#include "harness/base/format.h"

namespace r2bench {
namespace {

using Risk = FirstDayStep::Risk;

constexpr size_t kPageColumns = 110;  // as .ci/prose wants it

constexpr const char* kGpus = "nvidia-smi -L | grep -q '^GPU'";
constexpr const char* kNoGpus = "there is no NVIDIA GPU here";
constexpr const char* kInfiniBand = "grep -qs InfiniBand /sys/class/infiniband/*/ports/*/link_layer";
constexpr const char* kNoInfiniBand = "no port here is InfiniBand";
constexpr const char* kBluefield = "cat /sys/bus/pci/devices/*/device | grep -qE '0xa2d2|0xa2d6|0xa2dc'";

std::string run(const std::string& scenario, const std::string& more = "",
                const std::string& where = "$LAUNCH") {
  return "\"$R2BENCH\" run " + scenario + " --fabric verbs --no-plot --keep-going --out \"$OUT\"" + more + " " +
         where;
}

/// A step that runs the scenario `of` (empty: the one of the step's name), which shows nothing with fewer
/// nodes or NICs than `least`.
FirstDayStep scenario(const std::string& name, const std::string& shows, NodesAndNics least,
                      const std::string& send, const std::string& of = "") {
  const std::string file = of.empty() ? name : of;
  return {name, Risk::kTraffic, shows, run(file), "", "", send, file, least};
}

FirstDayStep by_hand(const std::string& name, const std::string& shows, const std::string& command,
                     const std::string& send, const std::string& needs = "",
                     const std::string& without = "") {
  return {name, Risk::kByHand, shows, command, needs, without, send};
}

/// A person has to do something before or after; the commands run the scenario `of` on the hosts of all steps.
FirstDayStep scenario_by_hand(const std::string& name, const std::string& shows, const std::string& of,
                              const std::string& command, const std::string& send,
                              const std::string& needs = "", const std::string& without = "") {
  return {name, Risk::kByHand, shows, command, needs, without, send, of, NodesAndNics{2, 2}};
}

std::vector<FirstDayStep> steps_without_load() {
  return {
      {"preflight", Risk::kReads,
       "GIDs as a real driver sets them, MTU, limits, firmware; a transfer between every pair of ports",
       "\"$R2BENCH\" doctor --cluster --json $HOST_OPTION >\"$OUT/cluster.json\" || { \"$R2BENCH\" doctor "
       "--cluster $HOST_OPTION; exit 70; }",
       "", "", "cluster.json"},
      {"topology", Risk::kReads,
       "NUMA nodes, PCIe switches, GPUs and NICs, and their distances, as the core reads them",
       "\"$R2BENCH\" doctor --topology; command -v lstopo >/dev/null && lstopo --whole-io --of xml "
       "\"$OUT/topology.xml\"; true",
       "", "", "topology.xml"},
      {"pci", Risk::kReads,
       "that `setpci` reads ACS of each bridge, and the output formats of `mstconfig` and `dcb`",
       "for b in $(lspci -D | awk '/PCI bridge/ {print $1}'); do "
       "echo \"$b $(setpci -s $b ECAP_ACS+6.w 2>&1)\"; done; "
       "for d in $(lspci -D -d 15b3: | awk '{print $1}'); do mstconfig -d $d query; done; "
       "for i in /sys/class/infiniband/*/device/net/*; do dcb maxrate show dev \"${i##*/}\"; done; true",
       "command -v lspci && command -v setpci", "lspci or setpci is missing (pciutils)", ""},
      {"conformance", Risk::kReads,
       "each verbs call and completion that the core relies on, compared with the virtual HCA and soft RoCE",
       "\"$R2BENCH\" conformance --fabric verbs --no-faults --out \"$OUT\"", "", "", "the table", "",
       NodesAndNics{1, 2}},
  };
}

std::vector<FirstDayStep> steps_with_traffic() {
  FirstDayStep traffic_class =
      scenario("traffic_class", "NCCL_IB_TC and NCCL_IB_SL on every path, standby paths included", {2, 2},
               "result.json, the counters of priority 3 (`ethtool -S INTERFACE | grep prio3`)", "nic_down");
  traffic_class.command = "NCCL_IB_TC=106 NCCL_IB_SL=3 " + traffic_class.command;
  return {
      {"conformance_faults", Risk::kTraffic, "what a program sees of each injected fault on this driver",
       "\"$R2BENCH\" conformance --fabric verbs --out \"$OUT\"", "", "", "the table", "", NodesAndNics{1, 2}},
      scenario("no_fault",
               "that all modes run with every element right, and the cost of resilience without a fault",
               {2, 1}, "result.json"),
      scenario("qp_error", "a queue pair in error: flushes, a new path, and the time until it is used",
               {2, 2}, "result.json, events.jsonl"),
      scenario("nic_down", "an injected link loss: detection by completion, migration, failback", {2, 2},
               "result.json, events.jsonl"),
      scenario("silent_port_down", "the watchdog's probe, an RDMA READ that needs no CPU at the peer", {2, 2},
               "result.json"),
      scenario("blackhole", "silent loss, and the shortest retry time that the firmware allows", {2, 2},
               "result.json"),
      scenario("false_alarms", "that stalls and congestion of real NICs are not taken for failures", {2, 1},
               "result.json"),
      scenario("balance",
               "shares by measured rate over real ports, two of them on one card or one PCIe switch", {2, 2},
               "result.json", "gray_throttle"),
      scenario("allreduce", "mode 3: R2CCL-AllReduce compared with Balance on a node that has lost a NIC",
               {3, 2}, "result.json, events.jsonl", "allreduce_degraded"),
      traffic_class,
      {"nccl_host_memory", Risk::kTraffic,
       "unmodified NCCL on host memory and virtual NICs, five collectives under faults",
       "\"$R2BENCH\" run nccl_protocols nccl_heals nccl_no_resilience --no-plot --keep-going --out \"$OUT\"",
       kGpus, kNoGpus, "result.json"},
      {"nccl_tests", Risk::kTraffic, "bus bandwidth of all_reduce_perf in modes 0, 1 and 2",
       "\"$R2BENCH_SHARE/cloudlab/nccl_tests.sh\" \"$OUT\" $HOST_OPTION", kGpus, kNoGpus,
       "all_reduce_perf_*.txt"},
      {"gpu_memory", Risk::kTraffic,
       "R2CC_GPU_DIRECT=1: dma-buf or peer memory, relaxed ordering, the flush, LL128",
       "R2CC_GPU_DIRECT=1 \"$R2BENCH_SHARE/cloudlab/nccl_tests.sh\" \"$OUT\" $HOST_OPTION", kGpus, kNoGpus,
       "all_reduce_perf_*.txt"},
  };
}

/// Needs a person, or changes the machine.
std::vector<FirstDayStep> steps_with_care() {
  FirstDayStep link_down =
      scenario("real_link_down",
               "`ip link set down` on a real port: events, statuses, GIDs that come back at another index",
               {2, 2}, "result.json, events.jsonl");
  link_down.risk = Risk::kMachine;
  link_down.command = run("real_link_down", " --allow-real-faults");
  return {
      by_hand("pxn", "a GPU's traffic over a neighbour's NIC (PXN, NVLink), with live migration",
              "# all_reduce_perf and alltoall_perf on all GPUs of two nodes (no NCCL_HOSTID) with "
              "NCCL_NET=R2CCL, "
              "NCCL_PXN_DISABLE=0, then 1; each once more under ./r2bench exec with a port_down",
              "outputs with NCCL_DEBUG=INFO", kGpus, kNoGpus),
      scenario_by_hand("pkey", "NCCL_IB_PKEY on a fabric with a subnet manager", "nic_down",
                       "NCCL_IB_PKEY=1 " + run("nic_down") +
                           "    # 1: an index into /sys/class/infiniband/DEVICE/ports/1/pkeys",
                       "result.json, the table of keys", kInfiniBand, kNoInfiniBand),
      scenario_by_hand("two_subnets", "rails on two InfiniBand subnets, each with its own subnet manager",
                       "nic_down", "\"$R2BENCH\" doctor --cluster $HOST_OPTION && " + run("nic_down"),
                       "the preflight's output, result.json", kInfiniBand, kNoInfiniBand),
      by_hand("slurm", "srun between machines",
              "salloc -N 2 " + run("nic_down", " --launcher slurm", "--set fabric.nics_per_node=NICS") +
                  "    # on a cluster with Slurm; NICS: how many ports each node has, at most 4",
              "result.json"),
      scenario_by_hand(
          "rate_limit",
          "that `dcb maxrate` limits RDMA on this NIC, and that Balance then finds the NIC degraded: its bus "
          "bandwidth is above that of live migration, and the log says 'is degraded'",
          "no_fault_balance",
          "# on one host, on one of its ports; 10Gbit: a quarter of its rate, as of 40 Gbit/s\n"
          "dcb maxrate set dev INTERFACE tc-maxrate all:10Gbit\n" +
              run("no_fault_balance", " --set pairs=4") +
              "\ndcb maxrate set dev INTERFACE tc-maxrate all:0bit    # 0: no limit\n"
              "dcb maxrate show dev INTERFACE    # if it still has a limit: mlnx_qos -i INTERFACE -r 0,0,0,0,0,0,0,0",
          "result.json, the ranks' logs, the outputs of `dcb maxrate show dev INTERFACE`"),
      link_down,
      scenario_by_hand("real_ovs_drop",
                       "traffic that a BlueField's own switch drops, without a notice to either end",
                       "real_ovs_drop",
                       run("real_ovs_drop",
                           " --allow-real-faults --set faults.0.bridge=ovsbr1 "
                           "--set faults.0.via='ssh ubuntu@192.168.100.2 sudo'"),
                       "result.json, events.jsonl", kBluefield, "there is no BlueField here"),
      scenario_by_hand("real_switch_port", "a port that goes down at the switch", "real_switch_port",
                       run("real_switch_port",
                           " --allow-real-faults --set faults.0.cut=COMMAND --set faults.0.mend=COMMAND"),
                       "result.json, events.jsonl"),
      scenario_by_hand("real_pcie_remove",
                       "a card that is removed: EIO, the descriptors, how long the kernel takes to stop the "
                       "device, and what is needed to get the card back",
                       "real_pcie_remove",
                       run("real_pcie_remove", " --allow-real-faults") +
                           "    # the last host needs a console",
                       "result.json, events.jsonl, dmesg"),
      by_hand("portal",
              "that CloudLab's portal accepts the profile and finds the ports, and that root may log in from "
              "node0",
              "cloudlab/setup.sh --status; sudo ssh node1 true    # on node0, after instantiating profile.py "
              "in the "
              "portal",
              "the request and the manifest, both outputs"),
      by_hand("reboot", "that systemd applies set-up again at boot, the rate limit of `--rate` included",
              "cloudlab/setup.sh --status; systemctl status r2ccl-node; ./r2bench doctor --cluster; "
              "dcb maxrate show dev INTERFACE    # after a reboot",
              "all outputs"),
  };
}

std::string in_words(Risk risk) {
  switch (risk) {
    case Risk::kReads:
      return "changes nothing; makes small transfers at most";
    case Risk::kTraffic:
      return "loads the network; faults affect the processes of the job only";
    case Risk::kMachine:
      return "changes the machine and reverts the change; needs `--allow-real-faults`";
    case Risk::kByHand:
      return "by hand";
  }
  return "";
}

std::string item(const std::string& text) { return "* " + wrap(text + ".", kPageColumns - 2, 2) + "\n"; }

}  // namespace

const std::vector<FirstDayStep>& first_day_steps() {
  static const std::vector<FirstDayStep> steps = [] {
    std::vector<FirstDayStep> all = steps_without_load();
    for (const auto& more : {steps_with_traffic(), steps_with_care()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return steps;
}

std::string sent_back(const FirstDayStep& step) {
  if (step.risk == Risk::kByHand) return step.send;
  return step.send.empty() ? "its log" : step.send + ", and its log";
}

std::string first_day_page() {
  std::ostringstream page;
  page << R"(# First day on hardware

Nothing of this project has run on a real NIC yet. These steps test what neither the virtual HCA nor soft
RoCE can show, least risky first. `./r2bench doctor --first-day --markdown` prints this page.

```sh
./r2bench doctor --first-day --run --hosts node0,node1    # runs the next steps; the same command continues
./r2bench doctor --first-day                              # lists what is done and what is left
./r2bench doctor --first-day --done NAME                  # or --skip NAME, --again NAME
tar czf first_day.tar.gz first_day                        # to send back, even if not all steps are done
```

A verdict of fail or unknown is a finding, and the run goes on. If a step cannot be carried out, the run ends;
the log of that step says why, and the next run tries the step again. The run also ends before a step that
changes the machine, unless `--allow-real-faults` is given, and before a step marked *by hand*: a person
carries it out, and then marks it with `--done`. A step for which there are too few hosts or NICs is skipped.

`--run` sets the variables of the commands, and prints the commands of a step *by hand* with their values.
R2BENCH is the program, and R2BENCH_SHARE the folder of its data (here the repository). OUT is the step's
folder below `first_day/`, beside its log. HOST_OPTION names the hosts. LAUNCH has the options that match the
number of hosts, nodes and NICs. Real faults and `dcb` need root: become root
before the step real_link_down, or from the beginning.
)";
  int number = 0;
  for (const FirstDayStep& step : first_day_steps()) {
    page << "\n## " << ++number << ". " << step.name << "\n\n"
         << item("Shows: " + step.shows) << item("Risk: " + in_words(step.risk))
         << item("Send back: " + sent_back(step));
    if (!step.without.empty()) page << item("Skipped if " + step.without);
    page << "\n```sh\n" << step.command << "\n```\n";
  }
  return page.str();
}

}  // namespace r2bench
