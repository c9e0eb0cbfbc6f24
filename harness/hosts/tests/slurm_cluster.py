# SPDX-License-Identifier: Apache-2.0
"""A throw-away Slurm cluster: real munged, slurmctld and slurmd on the hosts of namespaces.py, in a temporary folder.

    with Hosts(2) as hosts, SlurmCluster(hosts) as slurm: subprocess.run([*hosts.enter("h0"), "srun", …], env=slurm.environment())
"""

import os
import subprocess

from namespaces import die_with_parent, fail, wait_for

CONFIGURATION = """
ClusterName=r2bench
SlurmctldHost=h0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=FORCE:4
"""

# slurmstepd opens a session, and a kernel with autogroup shares the CPUs out between sessions: without more weight, ranks get no more
# than one compiler of another session, however nice that is, and their rates fall where those of the other launchers do not.
MORE_WEIGHT = "[ ! -w /proc/self/autogroup ] || echo -10 >/proc/self/autogroup"
# Before the runner's command: it strikes the faults, so it must not fall behind the ranks.
WITH_MORE_WEIGHT = ["setsid", "-w", "sh", "-c", MORE_WEIGHT + '; exec "$@"', "sh"]


class SlurmCluster:
    def __init__(self, hosts):
        self.hosts = hosts
        self.folder = hosts.folder / "slurm"
        self.daemons = []

    def environment(self):
        return dict(self.hosts.environment(), SLURM_CONF=str(self.folder / "slurm.conf"))

    def start(self, *command, host=None):
        words = [*(self.hosts.enter(host) if host else []), *command]
        with open(self.folder / "daemons.log", "a") as log:
            self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment(), preexec_fn=die_with_parent))

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        (self.folder / "state").mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        nodes = "".join(f"NodeName={name} NodeHostname={name} CPUs=1 State=UNKNOWN\n" for name in self.hosts.names)
        prolog = self.folder / "task-prolog"
        prolog.write_text(f"#!/bin/sh\n{MORE_WEIGHT}\n")
        prolog.chmod(0o755)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, nodes=nodes) + f"TaskProlog={prolog}\n")
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                   f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed")
        wait_for(lambda: (self.folder / "munge.socket").exists(), "munged listens")
        self.start("slurmctld", "-D", host="h0")
        for name in self.hosts.names:
            (self.folder / f"spool-{name}").mkdir()
            self.start("slurmd", "-D", "-N", name, host=name)
        wait_for(self.all_idle, "the nodes are idle")

    def all_idle(self):
        for daemon in self.daemons:
            if daemon.poll() is not None:
                fail(f"{daemon.args} ended with {daemon.returncode}:\n{self.logs()}")
        shown = subprocess.run([*self.hosts.enter("h0"), "sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, env=self.environment())
        return shown.stdout.split() == ["idle"] * len(self.hosts.names)

    def logs(self):
        return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # What slurmd started and nobody ended; the namespaces' holders stay.
        for pid in self.hosts.processes():
            try:
                os.kill(pid, 9)
            except OSError:
                pass
