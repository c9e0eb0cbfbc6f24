#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reproduce.sh and autorun.sh with an r2bench that is made up: what runs, what is not run again, what is
skipped and why. R2CCL_TORCH: a virtual environment with PyTorch, with which the step exec_torchrun is run by the
real r2bench as far as it goes without a GPU."""
import contextlib
import csv
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
REPRODUCE = os.path.join(HERE, "reproduce.sh")
SAMPLE = os.path.join(HERE, "..", "results", "reference", "nic_down", "result.json")
R2BENCH = r"""#!/bin/bash
echo "$*" >>"$CALLS"
echo "$2 $PWD" >>"$CALLS.places"
if [[ $1 == plot ]]; then mkdir -p "${@: -1}"; echo '1 of 8 figures made'; touch "${@: -1}/timeline.png"; exit 0; fi
scenario=$2; out=$4
var=STATUS_$scenario; status=${!var:-0}
hosts='' nodes=2  # as in the files of the steps
for word in "$@"; do
  [[ $before != --hosts ]] || IFS=, read -ra hosts <<<"$word"
  [[ $word != fabric.nodes=* ]] || nodes=${word#*=}
  before=$word
done
((${#hosts[@]} <= nodes)) || { echo "--hosts names ${#hosts[@]} hosts, but a scenario has $nodes nodes"; exit 64; }
if [[ $scenario == "$SLEEPS" ]]; then sleep 60; fi
if ((status <= 2)); then mkdir -p "$out"; cp "$SAMPLE" "$out/result.json"; else printf '%0300d\nno such NIC\n' 0; fi
exit "$status"
"""


def who_has_open(path):
    found = set()
    for link in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link) == os.path.realpath(path):
                found.add(int(link.split("/")[2]))
        except OSError:  # it has ended
            pass
    return found


class ReproduceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # what was started may still write its last words
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "paper")
        self.calls = os.path.join(self.folder, "calls")
        self.tools = os.path.join(self.folder, "tools")
        os.makedirs(self.tools)
        self.tool("r2bench", R2BENCH)

    def tool(self, name, text):
        path = os.path.join(self.tools, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def environment(self, **more):
        ours = {"R2BENCH": os.path.join(self.tools, "r2bench"), "CALLS": self.calls, "SAMPLE": SAMPLE, "R2BENCH_PYTHON": sys.executable,
                "PATH": self.tools + ":/usr/bin:/bin:/usr/sbin:/sbin"}
        return {**os.environ, **ours, **more}

    def reproduce(self, *words, **more):
        if os.path.exists(self.calls):
            os.remove(self.calls)
        return subprocess.run([REPRODUCE, "--out", self.out, *words], capture_output=True, text=True, timeout=300, check=False, env=self.environment(**more))

    def called(self):
        if not os.path.exists(self.calls):
            return []
        with open(self.calls, encoding="utf-8") as file:
            return [line.split() for line in file]

    def steps(self):
        with open(os.path.join(self.out, "steps.jsonl"), encoding="utf-8") as file:
            return [(each["step"], each["status"]) for each in map(json.loads, file)]

    def test_every_scenario_of_the_list_is_one_of_ours(self):
        made = self.reproduce("--list")
        self.assertEqual(made.returncode, 0, made.stderr)
        names = [line.split()[0] for line in made.stdout.splitlines()]
        self.assertIn("nic_down", names)
        self.assertEqual(len(names), len(set(names)))
        with open(REPRODUCE, encoding="utf-8") as file:
            table = file.read().split("scenarios=(")[1].split(")\n")[0]
        for line in table.strip().splitlines():
            name, _, _, scenario, needs = line.strip().strip("'").split()
            self.assertRegex(needs, r"^[1-8](/[1-8])?$")
            self.assertIn(name, names)
            self.assertTrue(os.path.exists(os.path.join(HERE, "../scenarios", scenario + ".yaml")), scenario)
        self.assertEqual(self.called(), [])

    def test_results_lie_where_the_figures_look_for_them(self):
        made = self.reproduce("--only", "nic_down")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(self.called()[0][:3], ["run", "nic_down", "--out"])
        self.assertTrue(os.path.exists(os.path.join(self.out, "reference/nic_down/result.json")))
        self.assertEqual(self.called()[-1], ["plot", "--all", "--results", self.out, "--out", self.out + "/figures"])
        self.assertIn("1 of 8 figures made", made.stdout)
        with open(os.path.join(self.out, "tables", "runs.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual([(row["set"], row["run"], row["mode"]) for row in csv.DictReader(file)], [("recovery", "nic_down", "baseline"), ("recovery", "nic_down", "migrate")])

    def test_sets_are_made_of_steps_and_are_those_that_the_figures_read(self):
        with open(REPRODUCE, encoding="utf-8") as file:
            text = file.read()
        steps = {line.split()[0].strip("'") for line in text.split("scenarios=(")[1].split("\n)\n")[0].strip().splitlines()}
        sets = {line.split()[0].strip("'"): line.strip().strip("'").split()[1:] for line in text.split("\nsets=(")[1].split("\n)\n")[0].strip().splitlines()}
        steps |= {one.split()[0] for one in text.split("on_virtual_nics=(")[1].split(")")[0].split("'")[1::2]}
        self.assertEqual(sorted(name for names in sets.values() for name in names), sorted(steps))
        self.assertLessEqual({"recovery", "ten_faults", "device_removed", "speed", "k_of_8_nics", "busbw_sizes", "recovery_channels", "mode3_scenarios", "nccl_scenarios"}, set(sets))

    def test_what_is_done_is_not_done_again_unless_it_is_asked_for(self):
        self.reproduce("--only", "nic_*", STATUS_nic_flap="1")
        made = self.reproduce("--only", "nic_*")
        self.assertEqual(made.returncode, 1, made.stdout)  # the verdict of then still stands
        self.assertIn(f"nic_flap: fail ({self.out}/logs/nic_flap.log)\n", made.stdout)
        self.assertEqual([call[:2] for call in self.called()], [["plot", "--all"]])
        made = self.reproduce("--only", "nic_*", "--again")
        self.assertEqual((made.returncode, [call[1] for call in self.called()]), (0, ["nic_down", "nic_flap", "--all"]))

    def test_what_could_not_run_says_why_and_is_tried_again(self):
        made = self.reproduce("--only", "nic_*", STATUS_nic_flap="64")
        self.assertEqual(made.returncode, 2, made.stdout)
        self.assertIn(f"could not run: no such NIC ({self.out}/logs/nic_flap.log)\n", made.stdout)
        self.assertIn(("nic_flap", 64), self.steps())
        self.assertFalse(os.path.exists(os.path.join(self.out, "reference/nic_flap")))
        made = self.reproduce("--only", "nic_*")
        self.assertEqual((made.returncode, [call[1] for call in self.called()]), (0, ["nic_flap", "--all"]))

    def test_a_call_that_was_cut_off_goes_on_where_it_was(self):
        with subprocess.Popen([REPRODUCE, "--out", self.out, "--only", "nic_*"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                              env=self.environment(SLEEPS="nic_flap")) as running:
            deadline = time.monotonic() + 60
            while ["run", "nic_flap"] not in [call[:2] for call in self.called()]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(timeout=60)
        made = self.reproduce("--only", "nic_*")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual([call[1] for call in self.called()], ["nic_flap", "--all"])

    def test_further_words_and_the_fabric_reach_each_run(self):
        self.reproduce("--fabric", "verbs", "--only", "nic_down", "--short", "--", "--slow-motion", "4")
        self.assertEqual(self.called()[0][4:], ["--no-plot", "--keep-going", "--fabric", "verbs", "--shorter", "10", "--slow-motion", "4"])
        made = self.reproduce("--only", "nic_down")
        self.assertEqual(made.returncode, 64)
        self.assertIn("has results of the fabric verbs", made.stderr)

    def test_what_is_skipped_says_why(self):
        made = self.reproduce("--fabric", "verbs", "--only", "device_removed")
        self.assertIn("only the virtual NICs can lose a device", made.stdout)
        self.assertEqual(made.returncode, 2)
        made = self.reproduce("--fabric", "verbs", "--only", "nccl_tests")
        self.assertEqual(made.stdout.count("no NVIDIA GPU"), 1, made.stdout)
        self.tool("nvidia-smi", "#!/bin/sh\necho 'GPU 0: A100'\n")
        made = self.reproduce("--fabric", "verbs", "--only", "nccl_tests")
        self.assertIn("there is no nvcc here", made.stdout)

    def test_what_has_virtual_nics_is_left_out_on_real_ones_and_without_gpus(self):
        gpu_steps = ["nccl_port_down", "nccl_qp_error", "nccl_blackhole", "nccl_flap", "nccl_heals", "nccl_one_of_four_lost", "nccl_one_of_four_slow",
                     "nccl_no_fault", "nccl_no_resilience", "exec_torchrun", "head_to_head"]
        wanted = [word for name in ["mode3_*", *gpu_steps] for word in ("--only", name)]
        made = self.reproduce("--fabric", "verbs", *wanted)
        self.assertEqual(made.returncode, 2, made.stdout)
        for name, why in [("mode3_allreduce_degraded", "its four nodes are virtual"), ("mode3_algorithms", "its nodes are virtual"),
                          *[(name, "its NICs are virtual") for name in gpu_steps]]:
            self.assertRegex(made.stdout, f"{name} +skipped because {why}")
        self.assertEqual([call for call in self.called() if call[0] == "run"], [])
        self.out += "-vhca"
        made = self.reproduce(*wanted, "--short")
        self.assertEqual(made.stdout.count("no NVIDIA GPU"), len(gpu_steps), made.stdout)
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["allreduce_degraded"])
        self.tool("nvidia-smi", "#!/bin/sh\necho 'GPU 0: H100'\n")
        made = self.reproduce("--only", "nccl_port_down", "--only", "nccl_blackhole")
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["nccl_port_down", "nccl_blackhole"])
        with open(os.path.join(self.out, "tables", "runs.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual({row["set"] for row in csv.DictReader(file)}, {"mode3_scenarios", "nccl_scenarios"})

    def test_pytorch_runs_where_it_is_and_where_it_is_not_the_command_that_installs_it_is_said(self):
        self.tool("nvidia-smi", "#!/bin/sh\necho 'GPU 0: H100'\n")
        made = self.reproduce("--only", "exec_torchrun", R2CCL_TORCH=os.path.join(self.folder, "torch"))
        self.assertEqual(made.returncode, 2, made.stdout)
        self.assertIn(f"exec_torchrun                skipped because there is no torchrun: python3 -m venv {self.folder}/torch && "
                      f"{self.folder}/torch/bin/pip install torch\n", made.stdout)
        self.assertEqual([call for call in self.called() if call[0] == "run"], [])
        os.makedirs(os.path.join(self.folder, "torch/bin"))
        self.tool("../torch/bin/torchrun", "#!/bin/sh\n")
        os.chdir(self.folder)
        self.addCleanup(os.chdir, HERE)
        self.out = "paper"  # a relative folder, while the command of the scenario is relative to the repository
        made = self.reproduce("--only", "exec_torchrun", R2CCL_TORCH=os.path.join(self.folder, "torch"))
        self.assertEqual(made.returncode, 0, made.stdout)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "paper/reference/exec_torchrun/result.json")))
        with open(self.calls + ".places", encoding="utf-8") as file:
            self.assertIn("exec_torchrun " + os.path.realpath(os.path.join(HERE, "..")) + "\n", file.readlines())

    @unittest.skipUnless(os.environ.get("R2CCL_TORCH"), "R2CCL_TORCH is not set")
    def test_the_real_pytorch_says_that_it_finds_no_gpu(self):
        self.tool("nvidia-smi", "#!/bin/sh\necho 'GPU 0: H100'\n")
        self.tool("nvidia-cuda-mps-control", "#!/bin/sh\n[ \"$1\" = -d ] || cat >/dev/null\n")
        made = self.reproduce("--only", "exec_torchrun", R2BENCH=os.path.join(HERE, "../build/release/bin/r2bench"))
        with open(os.path.join(self.out, "reference/exec_torchrun/result.json"), encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        if any(run["outcome"] != "ok" for run in runs):  # no GPU here
            self.assertIn(f"exec_torchrun: unknown ({self.out}/logs/exec_torchrun.log)\n", made.stdout)
            for run in runs:
                self.assertRegex(run["error"], "ended with exit code 1; its last error: RuntimeError: PyTorch .* finds no GPU")

    def test_what_a_step_needs_and_the_machine_lacks_is_said(self):
        words = ["--fabric", "verbs", "--only", "k_of_8_nics", "--only", "two_nics_down", "--only", "fault_during_migration", "--only", "nic_down"]
        made = self.reproduce(*words, "--nics", "2")
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["nic_down"])
        for name, why in (("k_of_8_nics", "it needs 8 NICs per node, and 2 take part"), ("fault_during_migration", "it needs 3 NICs per node, and 2 take part"),
                          ("two_nics_down", "it needs 3 NICs per node, and 2 take part; 2 are enough if rails reach each other (--cross-rails)")):
            self.assertIn("%-28s skipped because %s\n" % (name, why), made.stdout)
        self.assertEqual(made.returncode, 2)  # they were asked for by name
        self.assertIn("1 steps passed, 3 skipped;", made.stdout)
        made = self.reproduce(*words, "--nics", "2", "--cross-rails", "--again")
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["nic_down", "two_nics_down"])
        made = self.reproduce(*words, "--again", "--", "--set", "fabric.nics_per_node=3")
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["nic_down", "two_nics_down", "fault_during_migration"])
        for rail in range(2):
            os.makedirs(os.path.join(self.folder, "root/sys/class/infiniband/mlx5_%d" % rail))
        made = self.reproduce(*words, "--again", R2CCL_SETUP_ROOT=os.path.join(self.folder, "root"))
        self.assertIn("and 2 take part", made.stdout)
        self.out += "-vhca"
        self.reproduce("--only", "k_of_8_nics", "--nics", "2")
        self.assertEqual(self.called()[0][:2], ["run", "k_of_8_nics"], "virtual nodes have what the file says")

    def test_only_what_measures_counts_as_passed(self):
        made = self.reproduce("--only", "nic_down")
        self.assertIn("1 steps passed, 0 skipped;", made.stdout)
        self.assertIn(("figures", 0), self.steps())

    def test_bad_words_are_refused(self):
        for words, text in ((["--only", "nic_up"], "no step is named nic_up"), (["--fabric", "roce"], "vhca or verbs"), (["--what"], "unknown word"),
                            (["--out"], "--out needs a folder"), (["--only"], "--only needs a pattern"), (["--fabric"], "--fabric is vhca or verbs, not ''"),
                            (["--nics"], "--nics takes a number, not ''")):
            made = self.reproduce(*words)
            self.assertEqual(made.returncode, 64, made.stdout)
            self.assertIn(text, made.stderr)

    def test_autorun_without_values_says_what_it_takes(self):
        for words in ([], ["2"], ["2", "verbs"], ["two", "verbs", "paper"], ["2", "roce", "paper"], ["2", "verbs", "paper", "all"]):
            made = subprocess.run([os.path.join(HERE, "autorun.sh"), *words], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(made.returncode, 64, made.stderr)
            self.assertIn("autorun.sh NODES vhca|verbs|rxe SCENARIO|paper [RAILS]", made.stderr)

    def test_autorun_waits_for_the_other_nodes(self):
        autorun = os.path.join(HERE, "autorun.sh")
        root = os.path.join(self.folder, "root")
        os.makedirs(os.path.join(root, "var/lib/r2ccl-node"))
        self.tool("ssh", '#!/bin/bash\nn=$(($(cat "$CALLS.n" 2>/dev/null || echo 0) + 1)); echo $n >"$CALLS.n"; echo "$*" >>"$CALLS.ssh"; ((n > 2)) || { echo refused >&2; exit 255; }\n')
        environment = self.environment(R2CCL_SETUP_ROOT=root, R2CCL_WAIT_STEP="0.05")
        made = subprocess.run([autorun, "3", "vhca", "nic_down"], capture_output=True, text=True, timeout=120, check=False, env=environment)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.calls + ".ssh", encoding="utf-8") as file:
            self.assertEqual([line.split()[-4] for line in file], ["node1", "node2"] * 2)
        deadline = time.monotonic() + 60
        while ["plot", "--all"] not in [call[:2] for call in self.called()]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual([call[1] for call in self.called() if call[0] == "run"], ["nic_down", "nic_down"])  # the scenario, and its repeats
        os.remove(self.calls + ".n")
        os.remove(self.calls)
        os.makedirs(root + "2/var/lib/r2ccl-node")
        subprocess.run([autorun, "3", "verbs", "qp_error", "2"], timeout=120, check=True, stdout=subprocess.DEVNULL,
                       env=dict(environment, R2CCL_SETUP_ROOT=root + "2"))
        deadline = time.monotonic() + 60
        while ["plot", "--all"] not in [call[:2] for call in self.called()]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        run = [call for call in self.called() if call[:2] == ["run", "qp_error"]][0]
        with open(root + "2/var/lib/r2ccl-node/paper/steps.jsonl", encoding="utf-8") as file:
            self.assertEqual({step["step"]: (step["status"], step["text"]) for step in map(json.loads, file)}["qp_error"], (0, ""))
        self.assertEqual(run[-8:], ["--launcher", "mpi", "--hosts", "node0,node1,node2", "--set", "fabric.nodes=3", "--set", "fabric.nics_per_node=2"])
        os.remove(self.calls + ".n")
        os.remove(self.calls)
        os.makedirs(root + "3/var/lib/r2ccl-node")
        subprocess.run([autorun, "2", "rxe", "paper", "2"], timeout=120, check=True, stdout=subprocess.DEVNULL, env=dict(
            environment, R2CCL_SETUP_ROOT=root + "3", R2CCL_AUTORUN_STEPS="--only nic_down --short", R2CCL_AUTORUN_WORDS="--slow-motion 16"))
        deadline = time.monotonic() + 60
        while ["plot", "--all"] not in [call[:2] for call in self.called()]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        runs = [call for call in self.called() if call[:2] == ["run", "nic_down"]]
        self.assertEqual([run[4:] for run in runs], [["--no-plot", "--keep-going", "--fabric", "verbs", "--shorter", "10", "--slow-motion", "16", "--launcher", "mpi",
                                                      "--hosts", "node0,node1", "--set", "fabric.nics_per_node=2"]])
        os.remove(self.calls + ".n")
        self.tool("ssh", "#!/bin/sh\necho 'Permission denied' >&2\nexit 255\n")
        environment["R2CCL_WAIT_SECONDS"] = "0"
        made = subprocess.run([autorun, "2", "vhca", "nic_down"], capture_output=True, text=True, timeout=120, check=False, env=environment)
        self.assertEqual(made.returncode, 1)
        self.assertIn("node1 is not ready", made.stderr)
        self.assertIn("Permission denied", made.stderr)
        self.assertEqual(made.stderr.splitlines()[-1], f"autorun.sh: when all are: sudo {autorun} 2 vhca nic_down")
        self.tool("ssh", "#!/bin/sh\n[ $5 = test ] || shift\nexit $([ $6 = node3 ] && echo 0 || echo 1)\n")
        made = subprocess.run([autorun, "5", "vhca", "nic_down"], capture_output=True, text=True, timeout=120, check=False, env=environment)
        self.assertEqual([line.split()[1] for line in made.stderr.splitlines()], ["node1", "node2", "node4", "when"], made.stderr)
        self.assertIn(f"node1 is not ready after 0 s: its set-up has not ended, or lacks something (node1: sudo {HERE}/setup.sh --status)", made.stderr)

    def test_autorun_begins_once(self):
        root = os.path.join(self.folder, "root")
        self.out = os.path.join(root, "var/lib/r2ccl-node/paper")
        os.makedirs(self.out)
        words = [os.path.join(HERE, "autorun.sh"), "1", "vhca", "nic_down"]
        environment = self.environment(R2CCL_SETUP_ROOT=root, R2CCL_AUTORUN_STEPS="--only nic_down", SLEEPS="nic_down")
        made = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        self.assertIn("reproduce.sh runs: tail -f", made.stdout)
        deadline = time.monotonic() + 60
        while not self.called():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        made = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        self.assertEqual((made.returncode, made.stdout), (0, f"reproduce.sh runs already, with results in {self.out}\n"), made.stderr)
        while pids := who_has_open(os.path.join(self.out, "lock")):  # a process that is killed ends a moment later
            self.assertLess(time.monotonic(), deadline)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.assertEqual(len([call for call in self.called() if call[0] == "run"]), 1)
        made = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=dict(environment, SLEEPS=""))
        self.assertIn("reproduce.sh runs: tail -f", made.stdout)
        while ["plot", "--all"] not in [call[:2] for call in self.called()]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
