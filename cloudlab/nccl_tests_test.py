#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_tests.sh with a made-up git, nvcc, nvidia-smi, mpirun and ssh; make is the real one."""
import os
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_tests.sh")
# As nccl-tests': what MPI=1 adds.
MAKEFILE = """build/all_reduce_perf:
\tmkdir -p build && $(CUDA_HOME)/bin/nvcc -DMPI_SUPPORT -I$(MPI_HOME)/include -L$(MPI_HOME)/lib -lmpi -o $@
"""
TOOLS = {
    "git": 'for last; do :; done; mkdir -p "$last"; cp "$MADE/Makefile" "$last"',
    "nvcc": '''for w; do case $w in -I*) [ -e "${w#-I}/mpi.h" ] || { echo "error: mpi.h"; exit 1; } ;; esac; done
               echo "$*" >>"$MADE/nvcc.log"; [ -z "$FAIL_nvcc" ] || { echo "fatal error: nccl.h: No such file"; exit 1; }; echo perf >"${@: -1}"''',
    "nvidia-smi": '[ -z "$FAIL_smi" ] || exit 9; echo "GPU 0: A"; echo "GPU 1: A"',
    "mpicc": "exit 1",
    "mpirun": 'echo "mpirun $*"',
    "ssh": 'echo "$3" >>"$MADE/ssh.log"; sh -c "$4"',
}


class NcclTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.made = folder.name
        os.makedirs(os.path.join(self.made, "bin"))
        for name, text in TOOLS.items():
            path = os.path.join(self.made, "bin", name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/bash\n" + text + "\n")
            os.chmod(path, 0o755)
        with open(os.path.join(self.made, "Makefile"), "w", encoding="utf-8") as file:
            file.write(MAKEFILE)

    def log(self):
        return self.read("out/build.log")

    def headers(self, home):
        os.makedirs(os.path.join(self.made, home, "include"))
        with open(os.path.join(self.made, home, "include/mpi.h"), "w", encoding="utf-8"):
            pass

    def run_it(self, *words, **environment):
        environment = dict({k: v for k, v in os.environ.items() if k not in ("MPI_HOME", "CUDA_HOME")}, MADE=self.made, R2CCL_SETUP_ROOT=self.made,
                           PATH=os.path.join(self.made, "bin") + ":" + os.environ["PATH"], **environment)
        return subprocess.run([SCRIPT, os.path.join(self.made, "out"), *words], capture_output=True, text=True, timeout=60, check=False, env=environment)

    def read(self, name):
        with open(os.path.join(self.made, name), encoding="utf-8") as file:
            return file.read()

    def test_debians_headers_are_found_and_each_mode_runs_on_all_gpus(self):
        self.headers("usr/lib/x86_64-linux-gnu/openmpi")
        made = self.run_it()
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr + self.log())
        self.assertIn("-I%s/usr/lib/x86_64-linux-gnu/openmpi/include" % self.made, self.read("nvcc.log"))
        for mode in (0, 1, 2):
            ran = self.read("out/all_reduce_perf_mode%d.txt" % mode)
            self.assertIn("-np 2 ", ran)
            self.assertIn("-x R2CC_MODE=%d " % mode, ran)
            self.assertNotIn("--host", ran)

    def test_every_host_gets_the_program_and_the_settings(self):
        self.headers("mpi")
        made = self.run_it("--hosts", "node0,node1", MPI_HOME=os.path.join(self.made, "mpi"), R2CC_GPU_DIRECT="1", NCCL_IB_TC="106")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr + self.log())
        ran = self.read("out/all_reduce_perf_mode1.txt")
        for words in ("-np 4 ", "--host node0:2,node1:2", "-x R2CC_GPU_DIRECT ", "-x NCCL_IB_TC "):
            self.assertIn(words, ran)
        self.assertEqual(self.read("ssh.log").split(), ["node0", "node1"])
        self.assertEqual(self.read("out/src/build/all_reduce_perf"), "perf\n")

    def test_what_is_missing_is_said(self):
        self.headers("mpi")
        home = os.path.join(self.made, "mpi")
        for environment, text in (({"MPI_HOME": home, "FAIL_smi": "1"}, "is its driver loaded?"),
                                  ({"MPI_HOME": home, "FAIL_nvcc": "1"}, "does not build: fatal error: nccl.h")):
            made = self.run_it(**environment)
            self.assertEqual(made.returncode, 70, made.stdout + made.stderr)
            self.assertIn(text, made.stderr)
        self.assertEqual(self.run_it("--node").returncode, 64)


if __name__ == "__main__":
    unittest.main()
