#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds all_reduce_perf of nccl-tests (https://github.com/NVIDIA/nccl-tests) with the mpi.h beside this file, so that the copies
# that the engine exec starts find each other without mpirun.
#
#   build.sh SOURCE OUT [NCCL]     SOURCE: nccl-tests; OUT: a folder; NCCL: a folder with include/ and lib/ (CUDA's own)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[[ $# -ge 2 ]] || { sed -n 2,5p "$0" >&2; exit 64; }
here=$(cd "$(dirname "$0")" && pwd) source=$(cd "$1" && pwd) nccl=${3:-${CUDA_HOME:-/usr/local/cuda}}
mkdir -p "$2"
cd "$2"
flags=(-std=c++17 -O2 --extended-lambda -arch="${CUDA_ARCH:-native}" -DMPI_SUPPORT -DNCCL_OS_LINUX -I"$here" -I"$nccl/include" -I"$source/src"
  -I"$source/os" -I"$source/verifiable" -I"$source" -Xcompiler -fPIC)
nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
objects=()
for file in src/common.cu src/util.cu src/all_reduce.cu src/timer.cc verifiable/verifiable.cu os/linux.cc; do
  object=$(basename "${file%.*}").o
  objects+=("$object")
  "$nvcc" "${flags[@]}" -c "$source/$file" -o "$object" &
done
for job in $(jobs -p); do wait "$job"; done
"$nvcc" -o all_reduce_perf "${objects[@]}" -L"$nccl/lib" -Xlinker -l:libnccl.so.2
echo "$PWD/all_reduce_perf"
