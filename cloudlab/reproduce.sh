#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a fixed list of scenarios and makes their figures. Each step writes its result below OUT/reference and
# a line into OUT/steps.jsonl. A step that is done is not run again, so after an interruption the same command
# continues. At the end the results are put into the tables in OUT/tables, and figures are made from these.
#
#   reproduce.sh [--out DIR] [--fabric vhca|verbs] [--only PATTERN…] [--list] [--again] [--short]
#                [--nics N] [--cross-rails] [-- additional options of each 'r2bench run']
#
#   --out     folder of the results (default: results/paper); use a separate folder for each fabric
#   --fabric  vhca (the default: virtual NICs), or verbs (the NICs of this machine)
#   --only    runs only steps whose names match one of these shell patterns
#   --list    prints the names of the steps, and how long each takes on 2 cores
#   --again   runs steps again that are done
#   --nics    with verbs: number of NICs per node that take part (default: what the additional options set,
#             else the number of NICs of this machine). Steps that need more are skipped
#   --cross-rails  NICs of different rails reach each other (one switch, one network)
#   --short   a tenth of the iterations and two repeats, to check that every step works
#
# Exit status: 0 every step ran and passed, 1 a verdict was fail or unknown, 2 a step could not run, or a step
# that --only names was skipped, 64 wrong command line.
set -uo pipefail

repository=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd)
out=$repository/results/paper fabric='' again=no short=no list=no nics='' cross=no only=() further=()

explain() { sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
usage() { sed -n '/^#   reproduce.sh/,/^set /{s/^# \{0,1\}//p}' "$0" >&2; printf 'reproduce.sh: %s\n' "$1" >&2; exit 64; }
while (($#)); do
  case $1 in
    --out) out=${2:-}; [[ -n $out ]] || usage '--out needs a folder'; shift ;;
    --fabric) fabric=${2:-}; [[ $fabric =~ ^(vhca|verbs)$ ]] || usage "--fabric is vhca or verbs, not '$fabric'"; shift ;;
    --only) [[ -n ${2:-} ]] || usage '--only needs a pattern'; only+=("$2"); shift ;;
    --list) list=yes ;;
    --again) again=yes ;;
    --short) short=yes ;;
    --nics) nics=${2:-}; [[ $nics =~ ^[1-9][0-9]?$ ]] || usage "--nics takes a number, not '$nics'"; shift ;;
    --cross-rails) cross=yes ;;
    --) shift; further=("$@"); break ;;
    -h | --help) explain ;;
    *) usage "unknown word '$1'" ;;
  esac
  shift
done
[[ $fabric == vhca ]] && fabric=''
out=$(realpath -m -- "$out")

r2bench=${R2BENCH:-$repository/r2bench}
python=${R2BENCH_PYTHON:-$(command -v python3)}

# --- steps --------------------------------------------------------------------------------------------

# NAME MINUTES REPEATS SCENARIO NICS: REPEATS 0 leaves it to the file. NAME is the folder below reference/.
# NICS: how many a node needs so that the faults leave a path; 3/2: three, or two if rails reach each other.
scenarios=(
  'nic_down 1 0 nic_down 2'
  'qp_error 1 0 qp_error 2'
  'two_nics_down 1 0 two_nics_down 3/2'
  'all_nics_down 1 0 all_nics_down 1'
  'fault_during_migration 1 0 fault_during_migration 3'
  'nic_flap 2 0 nic_flap 2'
  'device_removed 3 4 device_removed 2'
  'silent_port_down_10_faults 3 10 silent_port_down 2'
  'ack_lost_10_faults 3 10 ack_lost 2'
  'blackhole_10_faults 3 10 blackhole 2'
  'speed_nic_down 3 20 nic_down 2'
  'speed_qp_error 3 20 qp_error 2'
  'no_fault 8 0 no_fault 1'
  'k_of_8_nics 12 0 k_of_8_nics 8'
  'busbw_sizes 10 0 busbw_sizes 1'
  'recovery_channels 15 0 recovery_channels 2'
  'mode3_allreduce_degraded 5 0 allreduce_degraded 4'
)
# What only the virtual NICs can show is left out on real ones: STEP REASON.
declare -A only_vhca=(
  [device_removed]='because only the virtual NICs can lose a device by injection'
  [mode3_allreduce_degraded]='because its four nodes are virtual; on three machines or more: r2bench run allreduce_degraded --launcher mpi --set fabric.nodes=…'
)
# Unmodified NCCL on GPUs, over virtual NICs of this machine, and PyTorch with it: NAME MINUTES SCENARIO.
on_virtual_nics=('nccl_port_down 5 nccl_port_down' 'nccl_qp_error 5 nccl_qp_error' 'nccl_blackhole 5 nccl_blackhole'
  'nccl_flap 5 nccl_flap' 'nccl_heals 10 nccl_heals' 'nccl_one_of_four_lost 5 nccl_one_of_four_lost' 'nccl_one_of_four_slow 5 nccl_one_of_four_slow'
  'nccl_no_fault 5 nccl_no_fault' 'nccl_no_resilience 5 nccl_no_resilience' 'exec_torchrun 5 exec_torchrun')

origin() { "$python" -B "$repository/harness/base/origin.py" "$@"; }
record() {  # STEP STATUS TEXT
  printf '{"step": "%s", "status": %s, "fabric": "%s", "commit": "%s", "ended": "%s", "text": "%s"}\n' "$1" "$2" "${fabric:-vhca}" \
    "$(origin of_checkout "$repository")" "$(origin now)" "${3//\"/\'}" >>"$out/steps.jsonl"
}
status_of() {  # the last one of that step; nothing when it has not been done to its end
  [[ -r $out/steps.jsonl ]] || return 0
  sed -n "s/^{\"step\": \"$1\", \"status\": \([0-9-]*\),.*/\1/p" "$out/steps.jsonl" | tail -n 1
}
is_wanted() {
  local pattern
  ((${#only[@]})) || return 0
  # shellcheck disable=SC2053  # a pattern it is
  for pattern in "${only[@]}"; do [[ $1 == $pattern ]] && return 0; done
  return 1
}

nics_here() {  # that take part on real ones; 0: nobody says
  local word sys=${R2CCL_SETUP_ROOT:-}/sys/class/infiniband
  if [[ -n $nics ]]; then printf '%s\n' "$nics"; return; fi
  for word in "${further[@]}"; do
    [[ $word == fabric.nics_per_node=* ]] && { printf '%s\n' "${word#*=}"; return; }
  done
  find "$sys" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l
}
lacking() {  # NICS: what this machine has too little of, in words; nothing when it has all of it
  local enough=${1%/*} there
  [[ $fabric == verbs ]] || return 0  # the virtual nodes have what a scenario's file says
  [[ $cross == no ]] || enough=${1#*/}
  there=$(nics_here)
  ((there < enough && there > 0)) || return 0
  printf 'because it needs %d NICs per node, and %d take part' "$enough" "$there"
  [[ $1 != */* || $cross == yes ]] || printf '; %d are enough if rails reach each other (--cross-rails)' "${1#*/}"
}

passed=0 skipped=0 verdicts=() unable=() matched=0
skip() {  # STEP REASON
  printf '    %-28s skipped %s\n' "$1" "$2"
  skipped=$((skipped + 1))
  ((${#only[@]})) && unable+=("$1 (skipped)")
  return 0
}
judge() {  # STEP STATUS
  case $2 in
    0) [[ $1 == tables || $1 == figures ]] || passed=$((passed + 1)) ;;  # those two measure nothing
    1) verdicts+=("$1: fail ($out/logs/$1.log)") ;;
    2) verdicts+=("$1: unknown ($out/logs/$1.log)") ;;
    *) unable+=("$1 (exit status $2)") ;;
  esac
}
step() {  # NAME MINUTES COMMAND…
  local name=$1 minutes=$2 before status=0
  shift 2
  is_wanted "$name" || return 0
  matched=$((matched + 1))
  if [[ $list == yes ]]; then printf '%-28s %3d minutes\n' "$name" "$minutes"; return; fi
  before=$(status_of "$name")
  if [[ $again == no && -n $before ]] && ((before <= 2)); then
    printf '    %-28s done already (exit status %s)\n' "$name" "$before"
    judge "$name" "$before"
    return
  fi
  printf '==> %-28s about %d minutes\n' "$name" "$minutes"
  "$@" >"$out/logs/$name.log" 2>&1 </dev/null || status=$?
  if ((status == 130 || status == 143)); then printf 'reproduce.sh: interrupted in %s; the same command continues\n' "$name" >&2; exit "$status"; fi
  if ((status > 2)); then
    record "$name" "$status" "$(tail -n 1 "$out/logs/$name.log" | tr -cd '[:print:]' | cut -c 1-200)"
    printf '    %-28s could not run: %s (%s)\n' "$name" "$(tail -n 1 "$out/logs/$name.log" | cut -c 1-400)" "$out/logs/$name.log"
  else
    record "$name" "$status" ''
  fi
  judge "$name" "$status"
}

run_scenario() {  # FOLDER REPEATS SCENARIO
  local folder=$out/reference/$1 words=(--no-plot --keep-going)
  [[ $fabric == verbs ]] && words+=(--fabric verbs)
  if [[ $short == yes ]]; then (($2)) && words+=(--repeats 2); words+=(--shorter 10)
  elif (($2)); then words+=(--repeats "$2"); fi
  rm -rf -- "$folder.new"
  "$r2bench" run "$3" --out "$folder.new" "${words[@]}" "${further[@]}"
  local status=$?
  if ((status <= 2)); then rm -rf -- "$folder"; mv -- "$folder.new" "$folder"; fi
  return "$status"
}

# SET STEP…: the sets of rows that the figures are drawn from, and the steps whose results make them.
sets=(
  'recovery nic_down qp_error two_nics_down all_nics_down fault_during_migration nic_flap'
  'device_removed device_removed'
  'ten_faults silent_port_down_10_faults ack_lost_10_faults'
  'speed speed_nic_down speed_qp_error blackhole_10_faults'
  'no_fault no_fault'
  'k_of_8_nics k_of_8_nics'
  'busbw_sizes busbw_sizes'
  'recovery_channels recovery_channels'
  'mode3_scenarios mode3_allreduce_degraded'
  'nccl_scenarios nccl_port_down nccl_qp_error nccl_blackhole exec_torchrun'
  'nccl_collectives nccl_flap nccl_heals nccl_one_of_four_lost nccl_one_of_four_slow nccl_no_fault nccl_no_resilience'
)
collect() {  # KIND SET PATH…
  "$python" "$repository/plots/collect.py" "$@" --results "$out" --command 'cloudlab/reproduce.sh'
}
tables() {  # of all results that there are
  local line name set names found status=0
  for line in "${sets[@]}"; do
    read -r set names <<<"$line"
    found=()
    for name in $names; do [[ -d $out/reference/$name ]] && found+=("$out/reference/$name"); done
    if ((${#found[@]})); then collect run "$set" "${found[@]}" || status=70; fi
  done
  if [[ -s $out/sim/allreduce.csv ]]; then
    collect sim allreduce "$out/sim/allreduce.csv" --date "$(origin today)" --commit "$(origin of_checkout "$repository")" || status=70
  fi
  if [[ -s $out/mode3/algorithms.csv ]]; then
    collect allreduce mode3_algorithms_256_2 "$out/mode3/algorithms.csv" --date "$(origin today)" --commit "$(origin of_checkout "$repository")" || status=70
  fi
  if [[ -s $out/reference/nccl_gpus/head_to_head.jsonl ]]; then collect head_to_head head_to_head "$out/reference/nccl_gpus/head_to_head.jsonl" || status=70; fi
  return "$status"
}

torch=${R2CCL_TORCH:-$repository/build/torch}  # a virtual environment with PyTorch, where the system has none
with_torch() {  # run_scenario, from where the scenario's command is found
  (cd -- "$repository" && PATH=$PATH:$torch/bin run_scenario "$@")
}

gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }

hosts_of() {  # --hosts A,B among the further words
  while (($#)); do
    case $1 in
      --hosts) printf '%s\n' --hosts "${2:-}" ;;
      --hosts=*) printf '%s\n' --hosts "${1#*=}" ;;
    esac
    shift
  done
}

virtual_nics_on_gpus() {
  local line name minutes scenario reason=''
  (($(gpus))) || reason='because there is no NVIDIA GPU (nvidia-smi -L finds none)'
  [[ $fabric != verbs ]] || reason='because its NICs are virtual; call reproduce.sh without --fabric verbs, with another --out'
  for line in "${on_virtual_nics[@]}" 'head_to_head 15 -'; do
    read -r name minutes scenario <<<"$line"
    if [[ $list == no && -n $reason ]]; then
      is_wanted "$name" && { matched=$((matched + 1)); skip "$name" "$reason"; }
    elif [[ $name == exec_torchrun ]]; then
      if [[ $list == no ]] && ! PATH=$PATH:$torch/bin command -v torchrun >/dev/null; then
        is_wanted "$name" && { matched=$((matched + 1)); skip "$name" "because there is no torchrun: python3 -m venv $torch && $torch/bin/pip install torch"; }
      else
        step "$name" "$minutes" with_torch "$name" 0 "$scenario"
      fi
    elif [[ $name == head_to_head ]]; then
      step head_to_head "$minutes" "$python" "$repository/harness/workload/nccl/head_to_head.py" --quick --build "$repository/build/release" \
        --out "$out/reference/nccl_gpus/head_to_head.jsonl"
    else
      step "$name" "$minutes" run_scenario "$name" 0 "$scenario"
    fi
  done
}

on_gpus() {
  local count reason=''
  count=$(gpus)
  [[ $list == yes ]] || ((count == 0)) || mkdir -p "$out/reference/nccl_gpus"
  virtual_nics_on_gpus
  is_wanted nccl_tests || return 0
  if [[ $list == no ]]; then
    ((count)) || reason='there is no NVIDIA GPU (nvidia-smi -L finds none)'
    for tool in nvcc mpirun git make; do
      [[ -n $reason ]] || command -v "$tool" >/dev/null || reason="there is no $tool here"
    done
    if [[ -n $reason ]]; then is_wanted nccl_tests && { matched=$((matched + 1)); skip nccl_tests "because $reason"; }; return; fi
  fi
  local fabric_of=()
  [[ $fabric != verbs ]] || fabric_of=(--fabric verbs)
  # shellcheck disable=SC2046  # two words or none
  step nccl_tests 20 "$repository/cloudlab/nccl_tests.sh" "$out/nccl_tests" "${fabric_of[@]}" $(hosts_of "${further[@]}")
}

figures() {
  "$r2bench" plot --all --results "$out" --out "$out/figures"
}

# --- all of it ----------------------------------------------------------------------------------------

if [[ $list == no ]]; then
  mkdir -p "$out/logs" "$out/reference" || exit 70
  exec 8>"$out/lock"
  flock -w 1 8 || { printf 'reproduce.sh: another reproduce.sh writes to %s\n' "$out" >&2; exit 70; }
  left=$(sed -n 's/.*"fabric": "\([a-z]*\)".*/\1/p' "$out/steps.jsonl" 2>/dev/null | sort -u | tr '\n' ' ')
  [[ -z $left || $left == "${fabric:-vhca} " ]] || usage "$out has results of the fabric ${left% }; take another --out"
fi
for line in "${scenarios[@]}"; do
  read -r name minutes repeats scenario needs <<<"$line"
  if [[ $fabric == verbs && -n ${only_vhca[$name]:-} ]] && is_wanted "$name"; then
    matched=$((matched + 1))
    [[ $list == yes ]] || skip "$name" "${only_vhca[$name]}"
    continue
  fi
  reason=$(lacking "$needs")
  if [[ $list == no && -n $reason ]] && is_wanted "$name"; then
    matched=$((matched + 1))
    skip "$name" "$reason"
    continue
  fi
  step "$name" "$minutes" run_scenario "$name" "$repeats" "$scenario"
done
if [[ $list == no && $short == no ]] || [[ $list == yes ]]; then
  step sim 20 "$python" "$repository/harness/sim/sweep.py" "$repository/build/release/bin/r2bench" --out "$out/sim"
else
  is_wanted sim && { matched=$((matched + 1)); skip sim 'because it takes long; without --short it is simulated'; }
fi
if [[ $fabric == verbs && $list == no ]]; then
  is_wanted mode3_algorithms && { matched=$((matched + 1)); skip mode3_algorithms 'because its nodes are virtual'; }
elif [[ $short == yes && $list == no ]]; then
  is_wanted mode3_algorithms && { matched=$((matched + 1)); skip mode3_algorithms 'because it takes long; without --short it is measured'; }
else
  step mode3_algorithms 40 "$python" "$repository/harness/bench/allreduce_table.py" algorithms --nodes 3,4 --mbits 600 --mib 256 --rounds 1 --iters 8 --out "$out/mode3"
fi
on_gpus
((matched)) || is_wanted figures || is_wanted tables || usage "no step is named ${only[*]}; see --list"
[[ $list == yes ]] && exit 0
only=() again=yes  # these two follow from what there is
if compgen -G "$out/reference/*/*" >/dev/null || [[ -s $out/sim/allreduce.csv ]]; then
  step tables 1 tables
else
  skip tables 'because there are no results yet'
fi
step figures 1 figures
grep -E 'figures made|no data' "$out/logs/figures.log" | sed 's/^/        /'

printf '%d steps passed, %d skipped; results in %s, figures in %s\n' "$passed" "$skipped" "$out/reference" "$out/figures"
((${#verdicts[@]} == 0)) || printf '    %s\n' "${verdicts[@]}"
((${#unable[@]} == 0)) || { printf '    could not run: %s\n' "${unable[@]}"; exit 2; }
((${#verdicts[@]} == 0))
