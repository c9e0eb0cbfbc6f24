#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""setup.sh on a machine that is made up: NICs are veth in a network namespace of its own, PCI devices a folder,
tools scripts that remember.

Needs root; exit status 77 without."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SETUP = os.path.join(HERE, "setup.sh")
GPU, BRIDGE, BLUEFIELD = "0000:c1:00.0", "0000:c0:00.0", "0000:81:00.0"
# Each tool keeps what it was told in $FAKES; FAIL_name makes it fail.
TOOLS = {
    "modprobe": 'mkdir -p "$R2CCL_SETUP_ROOT/sys/module/${1//-/_}"',
    "setpci": 'f=$FAKES/acs-$2; case $3 in *=*) echo "${3#*=}" >"$f" ;; *) cat "$f" 2>/dev/null || echo 001d ;; esac',
    "dcb": 'f=$FAKES/rate-$4; case $2 in set) echo "${6#all:}" >"$f" ;; *) [ ! -e "$f" ] || for i in 0 1 2 3 4 5 6 7; do printf "%s:%s " $i "$(cat "$f")"; done ;; esac',
    "mstconfig": 'echo "   INTERNAL_CPU_MODEL  EMBEDDED_CPU(1)"; echo "   INTERNAL_CPU_OFFLOAD_ENGINE  ${OFFLOAD:-ENABLED(0)}"',
    "rdma": 'f=$FAKES/links; case $2 in add) echo "link $3/1 state ACTIVE netdev $7 " >>"$f" ;; *) cat "$f" 2>/dev/null ;; esac',
    "systemctl": ":",
    "dpkg": '[ "$*" = "--configure -a" ] || exit 2; [ ! -e "$FAKES/locked" ] || { rm "$FAKES/locked"; echo "dpkg: error: dpkg frontend lock was locked by another process"; exit 2; }; rm -f "$R2CCL_SETUP_ROOT"/var/lib/dpkg/updates/[0-9]*',
    "dpkg-query": 'shift 2>/dev/null; for p in "$@"; do echo "$p installed"; done',
    "apt-get": 'echo "$*" >>"$FAKES/apt"; ! ls "$R2CCL_SETUP_ROOT"/var/lib/dpkg/updates/[0-9]* 2>/dev/null',
    "nvidia-smi": '[ -z "$NO_DRIVER" ] || { echo "NVIDIA-SMI has failed"; exit 9; }; echo "GPU 0: A"',
}


class Machine:
    """Two rails of node 1; what /etc, /var and /sys hold."""
    def __init__(self, folder):
        self.folder = folder
        self.tools = os.path.join(folder, "tools")
        self.fakes = os.path.join(folder, "fakes")
        self.root = os.path.join(folder, "root")
        for each in (self.tools, self.fakes, self.root):
            os.makedirs(each)
        for name, text in TOOLS.items():
            path = os.path.join(self.tools, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write('#!/bin/bash\n[ -z "$FAIL_%s" ] || exit 1\n%s\n' % (name.replace("-", "_"), text))
            os.chmod(path, 0o755)
        for interface in ("port0", "port1"):
            os.makedirs(os.path.join(self.root, "sys/class/net", interface, "device/infiniband", "mlx5_" + interface[-1]))

    def pci(self, address, vendor, device, kind):
        folder = os.path.join(self.root, "sys/bus/pci/devices", address)
        os.makedirs(folder)
        for name, text in (("vendor", vendor), ("device", device), ("class", kind)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text + "\n")

    def gpu_machine(self):
        self.pci(GPU, "0x10de", "0x1df6", "0x030200")
        self.pci(BRIDGE, "0x1022", "0x1483", "0x060400")

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def in_namespace(self, script, **environment):
        network = """set -e
            mount -t sysfs sysfs /sys
            ip link add port0 type veth peer name far0; ip link add port1 type veth peer name far1
            for i in 0 1; do ip link set port$i up; ip link set far$i up; ip addr add 10.10.$i.2/24 dev port$i; done
            set +e
            """
        return subprocess.run(["unshare", "-n", "-m", "bash", "-c", network + script], capture_output=True, text=True, timeout=120, check=False,
                              env=dict(os.environ, PATH=self.tools + ":" + os.environ["PATH"] + ":/usr/sbin:/sbin", FAKES=self.fakes,
                                       R2CCL_SETUP_ROOT=self.root, SETUP=SETUP, **environment))


WORDS = '--node 1 --nodes 2 --rails 2 --skip packages,build'


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)

    def lines(self, text, kind):
        return [line[9:] for line in text.splitlines() if line.startswith(kind.ljust(9))]

    def test_the_second_time_nothing_changes(self):
        self.machine.gpu_machine()
        made = self.machine.in_namespace('"$SETUP" %s --fabric verbs --rate 25 && echo ==== && "$SETUP" %s --fabric verbs --rate 25' % (WORDS, WORDS))
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        first, second = made.stdout.split("====\n")
        changed = self.lines(first, "changed")
        self.assertEqual(self.machine.read("etc/sysctl.d/91-r2ccl-rails.conf").splitlines(),
                         [f"-net/ipv4/conf/port{rail}/{setting}" for setting in ("arp_ignore=1", "arp_announce=2", "rp_filter=0") for rail in (0, 1)])
        for expected in ("/etc/sysctl.d/90-r2ccl.conf", "/etc/sysctl.d/91-r2ccl-rails.conf", "/etc/security/limits.d/90-r2ccl.conf", "module ib_uverbs loaded", "rail 0: 25Gbit in each traffic class",
                         "rail 1: 25Gbit in each traffic class", "ACS switched off on 1 of 1 bridges", "/etc/systemd/system/r2ccl-node.service"):
            self.assertIn(expected, changed)
        self.assertEqual(self.lines(second, "changed"), [])
        self.assertEqual(len(self.lines(second, "ok")), len(self.lines(first, "ok")) + len(changed), second)
        self.assertIn("rail 1: port1, 10.10.1.2/24, MTU 1500", self.lines(second, "ok"))
        self.assertTrue(os.path.exists(os.path.join(self.machine.root, "run/r2ccl-node/ready")))
        self.assertTrue(os.path.islink(os.path.join(self.machine.root, "etc/systemd/system/multi-user.target.wants/r2ccl-node.service")))

    def test_what_a_reboot_forgets_comes_back_from_the_parameters_of_the_first_time(self):
        self.machine.gpu_machine()
        made = self.machine.in_namespace("""
            "$SETUP" %s --fabric verbs --rate 25 >/dev/null || exit 9
            rm "$FAKES"/*; rm -r "$R2CCL_SETUP_ROOT"/sys/module
            echo 0 >/proc/sys/net/ipv4/conf/all/arp_ignore; ip link set port0 down
            "$SETUP" --boot
            cat /proc/sys/net/ipv4/conf/all/arp_ignore /proc/sys/net/ipv4/conf/port1/arp_announce /sys/class/net/port0/operstate "$FAKES"/rate-port1""" % WORDS)
        changed = self.lines(made.stdout, "changed")
        for expected in ("rail 0: port0 up", "rail 0: 25Gbit in each traffic class", "ACS switched off on 1 of 1 bridges", "module ib_uverbs loaded"):
            self.assertIn(expected, changed)
        self.assertEqual(self.lines(made.stdout, "missing"), [])
        self.assertEqual(made.stdout.splitlines()[-4:], ["1", "2", "up", "25Gbit"])

    def test_one_word_changes_one_parameter_and_a_boot_still_knows_the_others(self):
        made = self.machine.in_namespace("""
            "$SETUP" %s --fabric verbs --rate 25 >/dev/null || exit 9
            "$SETUP" --rate 10 --skip packages,build >/dev/null || exit 8
            rm "$FAKES"/*
            "$SETUP" --boot; cat "$FAKES"/rate-port0 "$FAKES"/rate-port1""" % WORDS)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(made.stdout.splitlines()[-2:], ["10Gbit", "10Gbit"])
        self.assertIn("rail 1: port1, 10.10.1.2/24, MTU 1500", self.lines(made.stdout, "ok"))
        for expected in ("node=1", "nodes=2", "rails=2", "fabric=verbs", "rate=10"):
            self.assertIn(expected, self.machine.read("var/lib/r2ccl-node/parameters").splitlines())

    def test_a_value_that_is_missing_is_said(self):
        for words, text in (("--type", "--type needs a value"), ("--rails", "--rails needs a value"), ("--fabric --rate 10", "--fabric needs a value"),
                            ("--rate fast", "--rate takes a number, not 'fast'"), ("--node 2 --nodes 2", "node 2 of 2")):
            made = self.machine.in_namespace('"$SETUP" ' + words)
            self.assertEqual(made.returncode, 64, made.stdout + made.stderr)
            self.assertIn(text, made.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.machine.root, "var/lib/r2ccl-node/parameters")))

    def test_an_installation_that_a_reboot_has_cut_off_is_finished(self):
        words = "--skip build --node 0 --nodes 1 --fabric vhca"
        for number in range(3):
            self.machine.write(f"var/lib/dpkg/updates/000{number}", "")
        self.machine.write("../fakes/locked", "")  # first somebody else is at it
        made = self.machine.in_namespace('"$SETUP" %s && "$SETUP" %s' % (words, words), R2CCL_WAIT_STEP="0.1")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual([line for line in self.lines(made.stdout, "changed") if "dpkg" in line], ["packages: dpkg --configure -a, after an interruption"])
        self.machine.write("var/lib/dpkg/updates/0001", "")
        made = self.machine.in_namespace('"$SETUP" %s' % words, FAIL_dpkg="1")
        self.assertEqual(made.returncode, 1, made.stdout + made.stderr)
        self.assertTrue(self.lines(made.stdout, "missing")[0].startswith("packages: dpkg --configure -a ("), made.stdout)

    def test_the_units_command_is_there(self):
        self.machine.in_namespace('"$SETUP" %s' % WORDS)
        unit = self.machine.read("etc/systemd/system/r2ccl-node.service")
        command = [line.split("=", 1)[1].split() for line in unit.splitlines() if line.startswith("ExecStart=")]
        self.assertEqual(len(command), 1)
        self.assertTrue(os.access(command[0][0], os.X_OK))
        self.assertEqual(command[0][1:], ["--boot"])

    def test_an_address_that_emulab_knows_is_given_to_its_port(self):
        made = self.machine.in_namespace("""ip addr del 10.10.1.2/24 dev port1
            mkdir -p "$R2CCL_SETUP_ROOT"/var/emulab/boot
            echo "eth9 10.10.1.2 $(tr -d : </sys/class/net/port1/address)" >"$R2CCL_SETUP_ROOT"/var/emulab/boot/ifmap
            "$SETUP" %s; ip -o -4 addr show dev port1""" % WORDS)
        self.assertIn("rail 1: 10.10.1.2/24 on port1, as Emulab's ifmap says", self.lines(made.stdout, "changed"))
        self.assertIn("10.10.1.2/24", made.stdout.splitlines()[-1])

    def test_what_is_missing_is_named_with_the_command_that_mends_it(self):
        made = self.machine.in_namespace("""ip addr del 10.10.0.2/24 dev port0; ip addr del 10.10.1.2/24 dev port1; ip addr add 10.10.1.2/16 dev port1
            "$SETUP" %s --fabric verbs --rate 25; echo $?; "$SETUP" --status; echo $?""" % WORDS, FAIL_dcb="1", FAIL_modprobe="1")
        first, _, status = made.stdout.partition("missing, ")
        missing = "\n".join(self.lines(first, "missing"))
        self.assertIn("ip addr add 10.10.0.2/24 dev INTERFACE", missing)
        self.assertIn("ip addr del 10.10.1.2/16 dev port1; ip addr add 10.10.1.2/24 dev port1", missing)
        self.assertIn("dcb maxrate set dev port1 tc-maxrate all:25Gbit", missing)
        self.assertIn("modprobe ib_uverbs", missing)
        self.assertEqual(made.stdout.splitlines()[-1], "1")
        self.assertEqual(self.lines(status, "missing"), self.lines(first, "missing"))
        self.assertFalse(os.path.exists(os.path.join(self.machine.root, "run/r2ccl-node/ready")))

    def test_a_bluefields_mode_is_told_and_its_absence_on_an_r7525(self):
        made = self.machine.in_namespace('"$SETUP" --type r7525 %s --fabric verbs' % WORDS)
        self.assertIn("this r7525 has none any more", "\n".join(self.lines(made.stdout, "missing")))
        self.assertEqual(made.returncode, 1)
        self.machine.pci(BLUEFIELD, "0x15b3", "0xa2d6", "0x020000")
        self.machine.pci(BLUEFIELD[:-1] + "1", "0x15b3", "0xa2d6", "0x020000")
        for offload, words in (("ENABLED(0)", "is in DPU mode"), ("DISABLED(1)", "is in NIC mode"), ("?", "does not tell its mode")):
            made = self.machine.in_namespace('"$SETUP" --type r7525 %s --fabric verbs' % WORDS, OFFLOAD=offload)
            self.assertEqual(made.returncode, 0, made.stdout)
            notes = [line for line in self.lines(made.stdout, "note") if "BlueField" in line]
            self.assertEqual(len(notes), 1, notes)
            self.assertIn("BlueField %s %s" % (BLUEFIELD, words), notes[0])

    def test_a_gpu_without_a_driver_is_told_and_keeps_nobody_waiting(self):
        self.machine.gpu_machine()
        made = self.machine.in_namespace('"$SETUP" %s --fabric verbs; echo $?; "$SETUP" --status >/dev/null; echo $?' % WORDS, NO_DRIVER="1")
        missing = self.lines(made.stdout, "missing")
        self.assertEqual(len(missing), 1, made.stdout + made.stderr)
        self.assertIn("driver of the GPUs: modprobe nvidia, or reboot", missing[0])
        self.assertIn("NVIDIA-SMI has failed", missing[0])
        self.assertEqual((made.stdout.splitlines()[-2:]), ["1", "1"])
        self.assertTrue(os.path.exists(os.path.join(self.machine.root, "run/r2ccl-node/ready")))
        self.assertRegex("\n".join(self.lines(made.stdout, "note")),
                         r"PyTorch is missing; .*: python3 -m venv (\S+)/build/torch && \1/build/torch/bin/pip install torch")
        os.remove(os.path.join(self.machine.tools, "nvidia-smi"))
        made = self.machine.in_namespace('"$SETUP" %s --fabric verbs' % WORDS)
        self.assertIn("ubuntu-drivers install --gpgpu", "\n".join(self.lines(made.stdout, "missing")))

    def test_acs_stays_where_no_gpu_is(self):
        self.machine.pci(BRIDGE, "0x1022", "0x1483", "0x060400")
        made = self.machine.in_namespace('"$SETUP" %s --fabric verbs; ls "$FAKES"' % WORDS)
        self.assertIn("ACS: no NVIDIA GPU", "\n".join(self.lines(made.stdout, "note")))
        self.assertNotIn("acs-", made.stdout.splitlines()[-1])

    def test_soft_roce_is_made_once_on_each_rail(self):
        made = self.machine.in_namespace('"$SETUP" %s --fabric rxe; echo ====; "$SETUP" %s --fabric rxe' % (WORDS, WORDS))
        first, second = made.stdout.split("====\n")
        self.assertEqual([line for line in self.lines(first, "changed") if "RoCE" in line], ["soft RoCE on port0", "soft RoCE on port1"])
        self.assertEqual(self.lines(second, "changed"), [])

    def test_modules_that_the_kernel_keeps_elsewhere_are_installed(self):
        for name, text in (("dpkg-query", 'shift 2; for p in "$@"; do echo "$p installed"; done'), ("apt-cache", '[[ $2 == linux-modules-extra-$(uname -r) ]]'),
                           ("apt-get", 'echo "$*" >>"$FAKES/apt"'),
                           ("modprobe", '[[ $1 != rdma_rxe || -e $FAKES/apt ]] && mkdir -p "$R2CCL_SETUP_ROOT/sys/module/$1"')):
            path = os.path.join(self.machine.tools, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/bash\n" + text + "\n")
            os.chmod(path, 0o755)
        made = self.machine.in_namespace('"$SETUP" --node 1 --nodes 2 --rails 2 --skip build --fabric rxe; cat "$FAKES/apt"')
        self.assertIn("module rdma_rxe loaded", self.lines(made.stdout, "changed"), made.stdout + made.stderr)
        self.assertIn("packages: linux-modules-extra-" + os.uname().release, self.lines(made.stdout, "changed"))
        self.assertEqual(made.stdout.splitlines()[-1].split()[-1], "linux-modules-extra-" + os.uname().release)
        # Not at boot, and not where set-up is to install nothing.
        made = self.machine.in_namespace('rm "$FAKES/apt"; rm -r "$R2CCL_SETUP_ROOT/sys/module"; "$SETUP" --boot; ls "$FAKES"')
        self.assertIn("modprobe rdma_rxe", "\n".join(self.lines(made.stdout, "missing")))
        self.assertNotIn("apt", made.stdout.splitlines()[-1])

    def test_bad_words_are_refused(self):
        for words, code, text in (("--fabric roce", 64, "verbs, rxe or vhca"), ("--nodes two", 64, "takes a number"), ("--what", 64, "unknown word"),
                                  ("--scenario 'a b'", 64, "names"), ("--boot", 70, "run setup.sh once")):
            made = self.machine.in_namespace('"$SETUP" ' + words)
            self.assertEqual(made.returncode, code, words + made.stderr)
            self.assertIn(text, made.stderr)
        made = self.machine.in_namespace('setpriv --reuid 65534 "$SETUP"')
        self.assertEqual((made.returncode, "run it as root" in made.stderr), (70, True), made.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
        print("skipped: set-up is tried in a network namespace, which needs root")
        sys.exit(77)
    unittest.main()
