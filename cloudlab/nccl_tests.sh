#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all_reduce_perf of nccl-tests with the plugin, in modes 0, 1 and 2. Each GPU counts as a separate node
# (NCCL_HOSTID), so that one machine suffices.
#
#   nccl_tests.sh OUT [--hosts A,B…]        (--host is a synonym)
#
#   Needs GPUs, nvcc, NCCL's headers, Open MPI with its headers (in MPI_HOME, or found by the script), git and
#   make. With --hosts, each host must have as many GPUs as this one, and this repository at the same path; the
#   program is copied to them by ssh. NCCL_* and R2CC_* variables of the environment and LD_LIBRARY_PATH reach
#   every rank. nccl-tests is built for the GPUs of this machine, or as NVCC_GENCODE says.
#
# Exit status: 0 all results are right, 1 a mode gave wrong results, 64 wrong command line, 70 something that it
# needs is missing, or a mode could not run.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
repository=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
give_up() { printf 'nccl_tests.sh: %s\n' "$1" >&2; exit 70; }
[[ -n ${1:-} && $1 != -* ]] || { printf 'nccl_tests.sh: give the folder of the output first, not: %s\n' "${1:-nothing}" >&2; exit 64; }
out=$(realpath -m -- "$1") hosts=()
shift
while (($#)); do
  case $1 in
    --hosts | --host) IFS=, read -ra hosts <<<"${2:?--hosts needs names}"; shift ;;
    *) printf 'nccl_tests.sh: unknown word %s\n' "$1" >&2; exit 64 ;;
  esac
  shift
done

mpi_home() {  # the folder that has include/mpi.h: Debian keeps it apart from mpirun
  local folder
  for folder in "${MPI_HOME:-}" "$(mpicc --showme:incdirs 2>/dev/null | sed 's/ .*//; s,/include$,,')" \
    "${R2CCL_SETUP_ROOT:-}"/usr/lib/*/openmpi "$(dirname -- "$(dirname -- "$(readlink -f "$(command -v mpirun)")")")"; do
    [[ -n $folder && -e $folder/include/mpi.h ]] && { printf '%s\n' "$folder"; return; }
  done
  return 1
}
for tool in nvcc mpirun git make; do command -v "$tool" >/dev/null || give_up "$tool is missing"; done
mpi=$(mpi_home) || give_up "there is no mpi.h: apt-get install libopenmpi-dev, or set MPI_HOME"
count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || give_up "nvidia-smi shows no GPU: is its driver loaded?"
cuda=$(dirname -- "$(dirname -- "$(readlink -f "$(command -v nvcc)")")")

# nccl-tests' own list names GPUs that a newer nvcc does not know. An old driver does not say what its GPUs are.
if [[ -z ${NVCC_GENCODE:-} ]]; then
  while IFS=. read -r major minor; do
    [[ $major$minor =~ ^[0-9]+$ ]] && NVCC_GENCODE+="${NVCC_GENCODE:+ }-gencode=arch=compute_$major$minor,code=[sm_$major$minor,compute_$major$minor]"
  done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u)
  [[ -z ${NVCC_GENCODE:-} ]] || export NVCC_GENCODE
fi

mkdir -p "$out"
version=v2.13.10
[[ -d $out/src ]] || git clone -q --depth 1 --branch "$version" https://github.com/NVIDIA/nccl-tests "$out/src"
make -C "$out/src" -j "$(nproc)" MPI=1 MPI_HOME="$mpi" CUDA_HOME="${CUDA_HOME:-$cuda}" >"$out/build.log" 2>&1 ||
  give_up "nccl-tests does not build: $(grep -m 1 -iE 'fatal|error:|no such' "$out/build.log" || tail -n 1 "$out/build.log") ($out/build.log)"
program=$out/src/build/all_reduce_perf

words=(--allow-run-as-root -np "$((count * (${#hosts[@]} ? ${#hosts[@]} : 1)))")
if ((${#hosts[@]})); then
  for host in "${hosts[@]}"; do
    # shellcheck disable=SC2029,SC2094  # our path, there; the new file is moved into place
    ssh -o BatchMode=yes "$host" "mkdir -p '$(dirname "$program")' && cat >'$program.new' && chmod +x '$program.new' && mv '$program.new' '$program'" \
      <"$program" || give_up "$host does not take the program over ssh"
  done
  words+=(--host "$(printf "%s:$count," "${hosts[@]}" | sed 's/,$//')")
fi
while read -r name; do words+=(-x "$name"); done < <(compgen -e | grep -E '^(NCCL|R2CC)_|^LD_LIBRARY_PATH$' | grep -vE '^(NCCL_NET|NCCL_NET_PLUGIN|NCCL_HOSTID|R2CC_MODE)$' || true)
wrong=()
for mode in 0 1 2; do
  said=$out/all_reduce_perf_mode$mode.txt status=0
  # shellcheck disable=SC2016  # each rank's own number
  mpirun "${words[@]}" -x NCCL_NET=R2CCL -x R2CC_MODE="$mode" \
    -x NCCL_NET_PLUGIN="$repository/build/release/lib/libnccl-net-r2ccl.so" \
    bash -c 'export NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK; exec "$0" -b 8 -e 256M -f 2 -g 1 -c 1' "$program" 2>&1 \
    | tee "$said" || status=${PIPESTATUS[0]}
  if grep -qE '^# *Out of bounds values *: *[0-9]+ *FAILED' "$said"; then wrong+=("$mode")
  elif ((status)); then
    why=$(grep -m 1 -iE 'failure|error|not enough|unable|cannot|not found' "$said" || grep -vE '^-*$' "$said" | tail -n 1 || true)
    give_up "mode $mode: all_reduce_perf could not run (status $status): $why ($said)"
  fi
done
if ((${#wrong[@]})); then printf 'nccl_tests.sh: wrong results in modes %s; see %s\n' "${wrong[*]}" "$out" >&2; exit 1; fi
