#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all_reduce_perf of nccl-tests with the plugin, in modes 0, 1 and 2. Each GPU counts as a separate node
# (NCCL_HOSTID), so that one machine suffices. On a machine with one GPU two nodes share it, under CUDA's MPS if
# there is one.
#
#   nccl_tests.sh OUT [--hosts A,B…] [--fabric verbs|vhca]        (--host is a synonym of --hosts)
#
#   Needs GPUs, nvcc, NCCL's headers, Open MPI with its headers (in MPI_HOME, or found by the script), git and
#   make. With --hosts, each host must have as many GPUs as this one, and this repository at the same path; the
#   program is copied to them by ssh. NCCL_* and R2CC_* variables of the environment and LD_LIBRARY_PATH reach
#   every rank, but for NCCL_DEBUG, which the script sets: its lines are in the files in OUT. nccl-tests is built
#   for the GPUs of this machine, or as NVCC_GENCODE says.
#   --fabric  the NICs of the machines (verbs; the default if this machine has RDMA devices), or two virtual
#             NICs per node (vhca), which connect processes of this machine only
#
# Exit status: 0 all results are right, 1 a mode gave wrong results, 64 wrong command line, 70 something that it
# needs is missing, a mode could not run, or its data did not pass through the plugin.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
repository=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
give_up() { printf 'nccl_tests.sh: %s\n' "$1" >&2; exit 70; }
[[ -n ${1:-} && $1 != -* ]] || { printf 'nccl_tests.sh: give the folder of the output first, not: %s\n' "${1:-nothing}" >&2; exit 64; }
usage() { printf 'nccl_tests.sh: %s\n' "$1" >&2; exit 64; }
out=$(realpath -m -- "$1") hosts=() fabric=''
shift
while (($#)); do
  case $1 in
    --hosts | --host) [[ -n ${2:-} ]] || usage '--hosts needs names'; IFS=, read -ra hosts <<<"$2"; shift ;;
    --fabric) fabric=${2:-}; [[ $fabric =~ ^(vhca|verbs)$ ]] || usage "--fabric is vhca or verbs, not '$fabric'"; shift ;;
    *) usage "unknown word $1" ;;
  esac
  shift
done
if [[ -z $fabric ]]; then
  if compgen -G "${R2CCL_SETUP_ROOT:-}/sys/class/infiniband/*" >/dev/null || ((${#hosts[@]})); then fabric=verbs; else fabric=vhca; fi
fi
[[ $fabric == verbs ]] || ((${#hosts[@]} == 0)) || usage 'virtual NICs connect processes of one machine: without --hosts, or with --fabric verbs'

installed() {  # FOLDER/NAME: of a build in this repository, or of an installation whose data this folder is
  local place
  for place in "$repository/build/release/$1" "$repository/../../$1"; do
    [[ -e $place ]] && { realpath -- "$place"; return; }
  done
  give_up "$1 is missing: build it with './r2bench build'"
}

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
plugin=$(installed lib/libnccl-net-r2ccl.so)
[[ $fabric == verbs ]] || r2bench=${R2BENCH:-$(installed bin/r2bench)}

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

ranks=$((count * (${#hosts[@]} ? ${#hosts[@]} : 1)))
words=(--allow-run-as-root --oversubscribe)
if ((ranks == 1)); then  # one rank alone would send nothing
  ranks=2
  export NCCL_TESTS_DEVICE=0
  words+=(-x NCCL_TESTS_DEVICE)
  # Not where one runs already (its own folder), nor for the GPU of another host.
  if ((${#hosts[@]} == 0)) && [[ -z ${CUDA_MPS_PIPE_DIRECTORY:-} && ! -e ${R2CCL_SETUP_ROOT:-}/tmp/nvidia-mps/control ]] &&
    command -v nvidia-cuda-mps-control >/dev/null; then
    export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps
    mkdir -p "$out/mps"
    trap 'echo quit -t 5 | nvidia-cuda-mps-control >/dev/null 2>&1 || true' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    nvidia-cuda-mps-control -d || give_up "CUDA's MPS does not start: nvidia-cuda-mps-control -d"
  fi
fi
words+=(-np "$ranks")
if ((${#hosts[@]})); then
  for host in "${hosts[@]}"; do
    # shellcheck disable=SC2029,SC2094  # our path, there; the new file is moved into place
    ssh -o BatchMode=yes "$host" "mkdir -p '$(dirname "$program")' && cat >'$program.new' && chmod +x '$program.new' && mv '$program.new' '$program'" \
      <"$program" || give_up "$host does not take the program over ssh"
  done
  words+=(--host "$(printf "%s:$count," "${hosts[@]}" | sed 's/,$//')")
fi
while read -r name; do words+=(-x "$name"); done < <(compgen -e | grep -E '^(NCCL|R2CC)_|^LD_LIBRARY_PATH$' | grep -vE '^(NCCL_(NET|NET_PLUGIN|HOSTID|DEBUG|DEBUG_SUBSYS)|R2CC_MODE)$' || true)
node=()  # of virtual NICs, that a rank is
# shellcheck disable=SC2016  # each rank's own number
[[ $fabric == verbs ]] || node=("$r2bench" exec --quiet --node 'node$OMPI_COMM_WORLD_RANK' --nodes "$ranks" --nics 2 --name "nccl-tests-$$" --)
wrong=()
for mode in 0 1 2; do
  said=$out/all_reduce_perf_mode$mode.txt status=0
  # shellcheck disable=SC2016  # each rank's own number
  mpirun "${words[@]}" -x NCCL_NET=R2CCL -x R2CC_MODE="$mode" -x NCCL_NET_PLUGIN="$plugin" -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=INIT,NET \
    bash -c 'export NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK; words=(); for word; do words+=("${word/\$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_RANK}"); done
             exec "${words[@]}" -b 8 -e 256M -f 2 -g 1 -c 1' rank "${node[@]}" "$program" 2>&1 | tee "$said" | { grep -v ' NCCL INFO ' || true; } \
    || status=${PIPESTATUS[0]}
  if grep -qE '^# *Out of bounds values *: *[0-9]+ *FAILED' "$said"; then wrong+=("$mode")
  elif ((status)); then
    plain=$(grep -vE ' NCCL INFO |^-*$' "$said" || true)
    why=$(grep -m 1 -iE 'failure|error|not enough|unable|cannot|not found' <<<"$plain" || tail -n 1 <<<"$plain")
    give_up "mode $mode: all_reduce_perf could not run (status $status): $why ($said)"
  fi
  grep -q 'via NET/R2CCL' "$said" || give_up "mode $mode: no connection of NCCL used the plugin ($said)"
done
if ((${#wrong[@]})); then printf 'nccl_tests.sh: wrong results in modes %s; see %s\n' "${wrong[*]}" "$out" >&2; exit 1; fi
