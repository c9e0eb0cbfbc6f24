#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_tests.sh with a made-up git, nvcc, nvidia-smi, mpirun and ssh; make is the real one.

R2CCL_NCCL_TESTS_SOURCE: a folder with the source of nccl-tests. Where it is set, the script also builds that with the real nvcc, NCCL
and Open MPI, and runs it with the real mpirun; only nvidia-smi and git are made up. Without a GPU the program cannot get far, and the
script has to say so."""
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nccl_tests.sh")
# As nccl-tests': what MPI=1 adds.
MAKEFILE = """build/all_reduce_perf:
\tmkdir -p build && $(CUDA_HOME)/bin/nvcc $(NVCC_GENCODE) -DMPI_SUPPORT -I$(MPI_HOME)/include -L$(MPI_HOME)/lib -lmpi -o $@
"""
TOOLS = {
    "git": 'for last; do :; done; mkdir -p "$last"; cp "$MADE/Makefile" "$last"',
    "nvcc": '''for w; do case $w in -I*) [ -e "${w#-I}/mpi.h" ] || { echo "error: mpi.h"; exit 1; } ;; esac; done
               echo "$*" >>"$MADE/nvcc.log"; [ -z "$FAIL_nvcc" ] || { echo "fatal error: nccl.h: No such file"; exit 1; }; echo perf >"${@: -1}"''',
    "nvidia-smi": '''[ -z "$FAIL_smi" ] || exit 9
                     case $* in -L) echo "GPU 0: A"; [ -n "$ONE_GPU" ] || echo "GPU 1: A" ;; *compute_cap*) [ -z "$FAIL_cap" ] || { echo "Field is not a valid field"; exit 2; }; printf "8.0\\n8.0\\n" ;; esac''',
    "mpicc": "exit 1",
    "mpirun": '''echo "mpirun $*"; echo "$SAYS"; [ -n "$NO_NET" ] || echo "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/R2CCL/0"
                 exit "${STATUS:-0}"''',
    "nvidia-cuda-mps-control": 'if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY"; else cat; fi >>"$MADE/mps.log"',
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
        for name in ("lib/libnccl-net-r2ccl.so", "bin/r2bench"):
            path = os.path.join(self.made, "build/release", name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8"):
                pass
        os.makedirs(os.path.join(self.made, "cloudlab"))
        self.script = shutil.copy(SCRIPT, os.path.join(self.made, "cloudlab"))
        with open(os.path.join(self.made, "Makefile"), "w", encoding="utf-8") as file:
            file.write(MAKEFILE)

    def log(self):
        return self.read("out/build.log")

    def headers(self, home):
        os.makedirs(os.path.join(self.made, home, "include"))
        with open(os.path.join(self.made, home, "include/mpi.h"), "w", encoding="utf-8"):
            pass

    def run_it(self, *words, **environment):
        environment = {**{k: v for k, v in os.environ.items() if k not in ("MPI_HOME", "CUDA_HOME", "NVCC_GENCODE")}, "MADE": self.made,
                       "R2CCL_SETUP_ROOT": self.made, "PATH": os.path.join(self.made, "bin") + ":" + os.environ["PATH"], **environment}
        return subprocess.run([self.script, os.path.join(self.made, "out"), *words], capture_output=True, text=True, timeout=900, check=False, env=environment)

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

    def test_without_rdma_devices_each_rank_is_a_node_with_virtual_nics(self):
        self.headers("mpi")
        home = os.path.join(self.made, "mpi")
        self.assertEqual(self.run_it(MPI_HOME=home).returncode, 0)
        ran = self.read("out/all_reduce_perf_mode2.txt")
        self.assertRegex(ran, r"%s/build/release/bin/r2bench exec --quiet --node node\$OMPI_COMM_WORLD_RANK --nodes 2 --nics 2 --name nccl-tests-\d+ -- " % self.made)
        self.assertEqual(self.run_it("--fabric", "verbs", MPI_HOME=home).returncode, 0)
        self.assertNotIn("r2bench", self.read("out/all_reduce_perf_mode2.txt"))
        os.makedirs(os.path.join(self.made, "sys/class/infiniband/mlx5_0"))
        self.assertEqual(self.run_it(MPI_HOME=home).returncode, 0)
        self.assertNotIn("r2bench", self.read("out/all_reduce_perf_mode2.txt"))
        for words in (("--fabric", "vhca", "--hosts", "a,b"), ("--fabric", "rxe"), ("--fabric",), ("--hosts",)):
            self.assertEqual(self.run_it(*words, MPI_HOME=home).returncode, 64, words)

    def test_each_rank_is_its_own_node(self):
        self.headers("mpi")
        made = self.run_it(MPI_HOME=os.path.join(self.made, "mpi"), R2BENCH="echo")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        words = self.read("out/all_reduce_perf_mode1.txt")
        begin = words[words.index("bash -c ") + len("bash -c "):words.index(" rank echo exec")]
        ran = subprocess.run(["bash", "-c", begin, "rank", "echo", "$OMPI_COMM_WORLD_RANK", "node$OMPI_COMM_WORLD_RANK"], capture_output=True, text=True,
                             check=True, env={**os.environ, "OMPI_COMM_WORLD_RANK": "3"})
        self.assertEqual(ran.stdout.split()[:3], ["3", "node3", "-b"])

    def test_two_nodes_share_a_single_gpu(self):
        self.headers("mpi")
        home = os.path.join(self.made, "mpi")
        made = self.run_it(MPI_HOME=home, ONE_GPU="1")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        ran = self.read("out/all_reduce_perf_mode0.txt")
        self.assertIn("-x NCCL_TESTS_DEVICE ", ran)
        self.assertIn("-np 2 ", ran)
        self.assertEqual(self.read("mps.log").split("\n"), ["start %s/out/mps" % self.made, "quit -t 5", ""])
        os.makedirs(os.path.join(self.made, "tmp/nvidia-mps/control"))  # one runs already
        self.assertEqual(self.run_it(MPI_HOME=home, ONE_GPU="1").returncode, 0)
        os.rmdir(os.path.join(self.made, "tmp/nvidia-mps/control"))
        self.assertEqual(self.run_it("--hosts", "a", MPI_HOME=home, ONE_GPU="1").returncode, 0)  # it is a's GPU
        self.assertIn("-x NCCL_TESTS_DEVICE ", self.read("out/all_reduce_perf_mode0.txt"))
        self.assertEqual(self.read("mps.log").count("start"), 1)
        self.assertEqual(self.run_it("--hosts", "a,b", MPI_HOME=home, ONE_GPU="1").returncode, 0)  # two GPUs: nothing is shared
        self.assertNotIn("NCCL_TESTS_DEVICE", self.read("out/all_reduce_perf_mode0.txt"))

    def test_a_run_that_does_not_use_the_plugin_is_no_verdict(self):
        self.headers("mpi")
        made = self.run_it(MPI_HOME=os.path.join(self.made, "mpi"), NO_NET="1")
        self.assertEqual(made.returncode, 70, made.stdout + made.stderr)
        self.assertIn("mode 0: no connection of NCCL used the plugin", made.stderr)

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

    def test_it_is_built_for_the_gpus_of_this_machine(self):
        self.headers("mpi")
        home = os.path.join(self.made, "mpi")
        for environment, wanted in (({}, "-gencode=arch=compute_80,code=[sm_80,compute_80] -DMPI_SUPPORT"),
                                    ({"NVCC_GENCODE": "-arch=sm_70"}, "-arch=sm_70 -DMPI_SUPPORT"),
                                    ({"FAIL_cap": "1"}, "-DMPI_SUPPORT")):  # an old driver: nccl-tests' own list
            shutil.rmtree(os.path.join(self.made, "out"), ignore_errors=True)
            made = self.run_it(MPI_HOME=home, **environment)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            self.assertTrue(self.read("nvcc.log").splitlines()[-1].startswith(wanted), self.read("nvcc.log"))

    def test_a_run_that_breaks_off_is_no_verdict_and_wrong_results_are(self):
        self.headers("mpi")
        home = os.path.join(self.made, "mpi")
        made = self.run_it(MPI_HOME=home, STATUS="2", SAYS="h: Test CUDA failure common.cu:936 'no CUDA-capable device is detected'\n .. pid 7: Test failure common.cu:886")
        self.assertEqual(made.returncode, 70, made.stdout + made.stderr)
        self.assertIn("nccl_tests.sh: mode 0: all_reduce_perf could not run (status 2): h: Test CUDA failure common.cu:936 'no CUDA-capable device is detected' (",
                      made.stderr.splitlines()[-1])
        made = self.run_it(MPI_HOME=home, STATUS="1", SAYS="# Out of bounds values : 3 FAILED")
        self.assertEqual(made.returncode, 1, made.stdout + made.stderr)
        self.assertIn("nccl_tests.sh: wrong results in modes 0 1 2", made.stderr)

    @unittest.skipUnless(os.environ.get("R2CCL_NCCL_TESTS_SOURCE"), "R2CCL_NCCL_TESTS_SOURCE is not set")
    def test_the_real_one_is_built_and_says_what_it_lacks(self):
        for name in ("nvcc", "mpicc", "mpirun"):
            os.remove(os.path.join(self.made, "bin", name))
        with open(os.path.join(self.made, "bin", "git"), "w", encoding="utf-8") as file:
            file.write('#!/bin/bash\nfor last; do :; done; cp -r "$R2CCL_NCCL_TESTS_SOURCE" "$last"\n')
        made = self.run_it("--fabric", "verbs", R2CCL_SETUP_ROOT="")
        program = os.path.join(self.made, "out/src/build/all_reduce_perf")
        self.assertTrue(os.access(program, os.X_OK), made.stderr + self.log())
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in ("libmpi.so", "libnccl.so", "libcudart.so"):
            self.assertIn(library, linked)
        if made.returncode != 0:  # no GPU here
            self.assertEqual(made.returncode, 70, made.stdout + made.stderr)
            self.assertRegex(made.stderr.splitlines()[-1], r"^nccl_tests\.sh: mode 0: all_reduce_perf could not run \(status \d+\): .*Test CUDA failure .*'.*CUDA.*'")


if __name__ == "__main__":
    unittest.main()
