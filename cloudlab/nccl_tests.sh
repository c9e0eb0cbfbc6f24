#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# all_reduce_perf of nccl-tests with the plugin, in modes 0, 1 and 2. Each GPU is a node of its own
# (NCCL_HOSTID), so that one machine suffices; further hosts come in through Open MPI's own settings (a
# hostfile).
#
#   nccl_tests.sh OUT      needs GPUs, nvcc, NCCL's headers, mpirun, git, make
set -euo pipefail
repository=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
out=${1:?where the output goes}
mkdir -p "$out"
version=v2.13.10
[[ -d $out/src ]] || git clone -q --depth 1 --branch "$version" https://github.com/NVIDIA/nccl-tests "$out/src"
mpi=$(dirname -- "$(dirname -- "$(readlink -f "$(command -v mpirun)")")")
make -C "$out/src" -j "$(nproc)" MPI=1 MPI_HOME="${MPI_HOME:-$mpi}" src.build >"$out/build.log" 2>&1 ||
  make -C "$out/src" -j "$(nproc)" MPI=1 MPI_HOME="${MPI_HOME:-$mpi}" >>"$out/build.log" 2>&1
count=$(nvidia-smi -L | grep -c '^GPU')
for mode in 0 1 2; do
  # shellcheck disable=SC2016  # each rank's own number
  mpirun --allow-run-as-root -np "$count" -x NCCL_NET=R2CCL -x R2CC_MODE="$mode" \
    -x NCCL_NET_PLUGIN="$repository/build/release/lib/libnccl-net-r2ccl.so" \
    bash -c 'export NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK; exec "$0" -b 8 -e 256M -f 2 -g 1 -c 1' "$out/src/build/all_reduce_perf" \
    | tee "$out/all_reduce_perf_mode$mode.txt"
done
