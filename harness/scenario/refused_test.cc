// SPDX-License-Identifier: Apache-2.0
// Everything that may be wrong within a scenario: for each mistake the place and the words that the user is
// told.
#include <gtest/gtest.h>

#include "harness/scenario/testing/problems_of.h"

namespace r2bench {
namespace {

struct Case {
  const char* name;
  const char* body;
  int line;
  int column;
  const char* message;  ///< part of it
};

class Refused : public testing::TestWithParam<Case> {};

TEST_P(Refused, says_where_and_why) {
  const Case& c = GetParam();
  const std::vector<Problem> problems = problems_of(file(c.body));
  ASSERT_EQ(problems.size(), 1u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].line, c.line) << to_string(problems[0]);
  EXPECT_EQ(problems[0].column, c.column) << to_string(problems[0]);
  EXPECT_NE(problems[0].message.find(c.message), std::string::npos) << to_string(problems[0]);
}

INSTANTIATE_TEST_SUITE_P(
    Fabric, Refused,
    testing::Values(
        Case{"key", "fabric: {nodes: 2, nics_per_nod: 4}", 3, 20,
             "unknown key 'nics_per_nod' in 'fabric'; did you mean 'nics_per_node'?"},
        Case{"kind", "fabric: {kind: vhcaa}", 3, 16, "unknown fabric 'vhcaa'; did you mean 'vhca'?"},
        Case{"type", "fabric: {nodes: two}", 3, 17, "'nodes' must be a whole number, but is 'two'"},
        Case{"fraction", "fabric: {nodes: 2.5}", 3, 17, "'nodes' must be a whole number"},
        Case{"range", "fabric: {nodes: 1000}", 3, 17, "'nodes' is 1000, but must be between 1 and 64"},
        Case{"empty_list", "fabric: []", 3, 9, "but is an empty list"},
        Case{"list", "fabric: [1, 2]", 3, 9, "'fabric' must be a map of keys and values, but is a list"},
        Case{"unit", "fabric: {nic_rate: 1}", 3, 20, "'nic_rate'"},
        Case{"wrong_unit", "fabric: {nic_rate: 1 ms}", 3, 20, "'nic_rate'"},
        Case{"lonely", "fabric: {nodes: 1}", 3, 17, "one rank alone sends nothing"},
        Case{"nested", "fabric:\n  nodes: {a: 1}", 4, 10, "'nodes' must be a single value, but is a map"},
        Case{"twice", "fabric: {nodes: 2, nodes: 3}", 3, 20, "'nodes' is given twice in 'fabric'"},
        Case{"link", "fabric: {link: infinband}", 3, 16,
             "unknown link layer 'infinband'; did you mean 'infiniband'?"},
        Case{"topology", "fabric: {nic_rate: 1 Gbit/s, topology: dgx-h10}", 3, 40,
             "unknown topology 'dgx-h10'; did you mean 'dgx-h100'?"},
        Case{"topology_list", "fabric: {nic_rate: 1 Gbit/s, topology: [2, 4]}", 3, 40,
             "'topology' must be a map or one of dgx-h100 or r7525, but is a list"},
        Case{"topology_key", "fabric: {nic_rate: 1 Gbit/s, topology: {socket: 2}}", 3, 41,
             "unknown key 'socket' in 'topology'; did you mean 'sockets'?"},
        Case{"topology_sockets", "fabric: {nic_rate: 1 Gbit/s, topology: {sockets: 9}}", 3, 50,
             "'sockets' is 9, but must be between 1 and 8"},
        Case{"topology_twice", "fabric: {nic_rate: 1 Gbit/s, topology: {preset: r7525, sockets: 4}}", 3, 65,
             "'sockets' is given by the preset"},
        Case{"cross_unit", "fabric: {nic_rate: 1 Gbit/s, topology: {cross_socket: 0.5}}", 3, 55,
             "'cross_socket': '0.5' is not between 1 % and 100 %"},
        Case{"cross_zero", "fabric: {nic_rate: 1 Gbit/s, topology: {cross_socket: 0 %}}", 3, 55,
             "'cross_socket': '0 %' is not between 1 % and 100 %"},
        Case{"topology_rate", "fabric: {topology: r7525}", 3, 20,
             "across sockets a NIC carries 50 % of its rate, but 'nic_rate' is unlimited"},
        Case{"topology_kind", "fabric: {kind: verbs, topology: r7525}", 3, 33,
             "'topology' is for virtual NICs"},
        Case{"groups", "fabric: {nodes: 1, ranks_per_node: 2}\nworkload: {groups: local_rank}", 4, 20,
             "a group of local ranks is one rank alone"},
        Case{"ports", "fabric: {ports_per_nic: 5}", 3, 25,
             "'ports_per_nic' is 5, but must be between 1 and 4"},
        Case{"mtu", "fabric: {mtu: 1500}", 3, 15,
             "'mtu' is 1500, but a port has 256, 512, 1024, 2048 or 4096 bytes"},
        Case{"mtu_elsewhere", "fabric: {kind: rxe, mtu: 1024}", 3, 26,
             "'mtu' is for virtual NICs (kind: vhca); those of rxe have their own"},
        Case{"empty", "fabric: {nodes: }", 3, 17, "'nodes' must be a single value, but is empty"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Workload, Refused,
    testing::Values(
        Case{"engine", "workload: {engine: gpu}", 3, 20, "unknown engine 'gpu'"},
        Case{"no_command", "workload: {engine: exec}", 3, 11, "'engine: exec' needs 'command'"},
        Case{"empty_command", "workload: {engine: exec, command: []}", 3, 35, "'command' is empty"},
        Case{"command_of_lists", "workload: {engine: exec, command: [sh, [a]]}", 3, 40,
             "each word of 'command' must be a text"},
        Case{"command_elsewhere", "workload: {command: [sh]}", 3, 21, "write 'engine: exec' beside it"},
        Case{"bytes_of_a_command", "workload: {engine: exec, command: sh, bytes: 1 MiB}", 3, 46,
             "the command itself decides that"},
        Case{"no_expression", "workload: {engine: exec, command: sh, iteration: '('}", 3, 50,
             "'iteration' is no regular expression"},
        Case{"two_ways_to_tell", "workload: {engine: exec, command: sh, prints: nccl-tests, begin: x}", 3, 66,
             "exclude each other"},
        Case{"unknown_output", "workload: {engine: exec, command: sh, prints: nccl-test}", 3, 47,
             "did you mean 'nccl-tests'?"},
        Case{"stopped_command",
             "workload: {engine: exec, command: sh}\nfaults: [{at: {time: 1 s}, target: node1/rank0, kind: "
             "sigstop, for: "
             "1 s}]",
             4, 9, "a command can only be killed"},
        Case{"repeat_by_a_commands_iterations",
             "workload: {engine: exec, command: sh}\nfaults: [{at: {iter: 1}, target: node1/nic0, kind: "
             "port_down, for: 1 s, repeat: 2}]",
             4, 10, "say how long after it the next time is, e.g. every: 2 s"},
        Case{"op", "workload: {op: allreduc}", 3, 16,
             "unknown operation 'allreduc'; did you mean 'allreduce'?"},
        Case{"op_chunks", "workload: {op: alltoall, bytes: 12 B}", 3, 33,
             "12 bytes are no multiple of 2 ranks × 4 bytes"},
        Case{"dtype", "workload: {dtype: float23}", 3, 19,
             "unknown data type 'float23'; did you mean 'float32'?"},
        Case{"bytes_unit", "workload: {bytes: 1024}", 3, 19, "'bytes'"},
        Case{"bytes_element", "workload: {dtype: float64, bytes: 1001 B}", 3, 35,
             "multiple of the 8 bytes of a float64"},
        Case{"bytes_zero", "workload: {bytes: 0 B}", 3, 19, "positive multiple"},
        Case{"iters", "workload: {iters: 0}", 3, 19, "'iters' is 0"},
        Case{"verify", "workload: {verify: maybe}", 3, 20, "'verify' must be true or false, but is 'maybe'"},
        Case{"collnet_groups", "fabric: {ranks_per_node: 2}\nworkload: {collnet: force}", 4, 21,
             "CollNet joins one rank of each node"},
        Case{"collnet_op", "workload: {op: sendrecv, collnet: force}", 3, 35, "CollNet is for"},
        Case{"redop_op", "workload: {op: sendrecv, redop: max}", 3, 33,
             "'redop' is for operations that reduce"},
        Case{"float8_ranks", "fabric: {nodes: 8}\nworkload: {dtype: float8e5m2}", 4, 19,
             "a sum over 8 ranks is not exact in float8e5m2"},
        Case{"float8_average", "fabric: {nodes: 3}\nworkload: {dtype: float8e4m3, redop: avg}", 4, 38,
             "an average over 3 ranks in float8e4m3"},
        Case{"int8_average", "fabric: {nodes: 43}\nworkload: {dtype: int8, redop: avg}", 4, 32,
             "avg over 43 ranks in int8 has hardly any different results"},
        Case{"uint8_premulsum", "fabric: {nodes: 64}\nworkload: {dtype: uint8, redop: premulsum}", 4, 33,
             "premulsum over 64 ranks in uint8 has hardly any different results"},
        Case{"in_place_op", "workload: {op: sendrecv, in_place: true}", 3, 36, "'in_place' is for"},
        Case{"gpu_key", "workload: {graph: true}", 3, 19,
             "'graph' is for GPUs; write 'engine: nccl' beside it"},
        Case{"cpu_key", "workload: {engine: nccl, collnet: force}", 3, 35, "'collnet' is for 'engine: cpu'"},
        Case{"library", "workload: {engine: nccl, library: ''}", 3, 35, "'library' is empty"},
        Case{"transport", "workload: {engine: nccl, transport: ibv}", 3, 37,
             "unknown transport 'ibv'; did you mean 'ib'?"},
        Case{"beside_iters", "workload: {engine: nccl, iters: 300, transport: plugin_beside_ib}", 3, 33,
             "begins equally often in a multiple of 256 operations"},
        Case{"beside_graph", "workload: {engine: nccl, iters: 256, graph: true, transport: plugin_beside_ib}",
             3, 45, "leave out 'graph' and 'renew'"},
        Case{"beside_fault",
             "workload: {engine: nccl, iters: 256, transport: plugin_beside_ib}\nfaults:\n  - {at: {iter: "
             "2}, target: node1/nic0, kind: port_down}",
             5, 3, "a fault would strike both"},
        Case{"beside_exec", "workload: {engine: exec, command: [x], transport: plugin_beside_ib}", 2, 8,
             "write 'engine: nccl'"},
        Case{"copies", "workload: {engine: nccl, copies: 17}", 3, 34, "16"},
        Case{"nonblocking_graph", "workload: {engine: nccl, graph: true, blocking: false}", 3, 49,
             "'blocking: false' is not for graphs"},
        Case{"nonblocking_shrink",
             "fabric: {nodes: 3}\nworkload: {engine: nccl, bytes: 24 MiB, blocking: false, renew: {by: "
             "shrink, "
             "iter: 2, without: 2}}",
             4, 51, "write 'by: abort'"},
        Case{"register_cpu", "workload: {register: true}", 3, 22, "'register' is for GPUs"},
        Case{
            "communicators", "workload: {engine: nccl, bytes: 20 B, communicators: 2}", 3, 33,
            "20 bytes cannot be divided equally among 2 communicators × 1 group_calls; take a multiple of 8"},
        Case{"in_place_alltoall", "workload: {engine: nccl, op: alltoall, in_place: true}", 3, 50,
             "NCCL has no alltoall in place"},
        Case{"renew_by", "workload: {engine: nccl, renew: {iter: 2}}", 3, 33, "'renew' needs 'by'"},
        Case{"renew_way", "workload: {engine: nccl, renew: {by: shrnk, iter: 2}}", 3, 38,
             "did you mean 'shrink'?"},
        Case{"renew_iter", "workload: {engine: nccl, renew: {by: abort}}", 3, 33, "'renew' needs 'iter'"},
        Case{"renew_late", "workload: {engine: nccl, iters: 5, renew: {by: abort, iter: 5}}", 3, 43,
             "'iter' is 5, but the job has only operations 0 … 4"},
        Case{"renew_delay", "workload: {engine: nccl, renew: {by: abort, iter: 2, delay: 5}}", 3, 61,
             "'delay'"},
        Case{"renew_without", "fabric: {nodes: 3}\nworkload: {engine: nccl, renew: {by: shrink, iter: 2}}", 4,
             33, "'by: shrink' needs 'without'"},
        Case{"renew_abort_without", "workload: {engine: nccl, renew: {by: abort, iter: 2, without: 1}}", 3,
             63, "after an abort all ranks continue"},
        Case{"renew_few", "workload: {engine: nccl, renew: {by: shrink, iter: 2, without: 1}}", 3, 33,
             "2 ranks are too few, because one of them leaves"},
        Case{"renew_middle",
             "fabric: {nodes: 3}\nworkload: {engine: nccl, renew: {by: revoke, iter: 2, without: 1}}", 4, 64,
             "only the first or the last rank can be left out: 0 or 2"},
        Case{"renew_chunks",
             "fabric: {nodes: 3}\nworkload: {engine: nccl, op: allgather, bytes: 36 B, renew: {by: shrink, "
             "iter: 2, "
             "without: 2}}",
             4, 61,
             "36 bytes cannot be divided equally among the 2 ranks that are left; take a multiple of 24"},
        Case{"renew_graph", "workload: {engine: nccl, graph: true, renew: {by: abort, iter: 2}}", 3, 46,
             "a graph belongs to the communicators"},
        Case{"renew_cpu", "workload: {renew: {by: abort, iter: 2}}", 3, 19, "'renew' is for GPUs"},
        Case{"sleeping_gpu_rank",
             "workload: {engine: nccl}\nfaults: [{at: {iter: 1}, target: node1/rank0, kind: receiver_sleep, "
             "for: 1 s}]",
             4, 9,
             "receiver_sleep is for the engine cpu; the threads of NCCL or of a command that call the plugin "
             "cannot be paused"},
        Case{"abi", "workload: {plugin_abi: 7}", 3, 24, "'plugin_abi' is 7, but must be between 8 and 12"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Faults, Refused,
    testing::Values(
        Case{"no_node", "faults: [{at: {iter: 1}, target: node7/nic0, kind: port_down}]", 3, 34, "node7"},
        Case{"no_nic", "faults: [{at: {iter: 1}, target: node1/nic9, kind: port_down}]", 3, 34, "nic9"},
        Case{"no_port", "faults: [{at: {iter: 1}, target: 'node1/nic0/port:2', kind: port_down}]", 3, 34,
             "there is no port 2"},
        Case{"kind", "faults: [{at: {iter: 1}, target: node1/nic0, kind: port_dwn}]", 3, 52,
             "unknown kind of fault 'port_dwn'; did you mean 'port_down'?"},
        Case{"rank_kind", "faults: [{at: {iter: 1}, target: node1/rank0, kind: sigstp}]", 3, 53,
             "did you mean 'sigstop'?"},
        Case{"no_kind", "faults: [{at: {iter: 1}, target: node1/nic0}]", 3, 10, "the fault needs 'kind'"},
        Case{"no_trigger", "faults: [{target: node1/nic0, kind: port_down}]", 3, 10,
             "nothing triggers this fault"},
        Case{"event", "faults: [{on: migration_stated, target: node1/nic0, kind: port_down}]", 3, 15,
             "unknown event 'migration_stated'; did you mean 'migration_started'?"},
        Case{"too_late",
             "workload: {iters: 50}\nfaults: [{at: {iter: 60}, target: node1/nic0, kind: port_down}]", 4, 10,
             "would start at iteration 60, but the job ends after 50"},
        Case{"throttle_unit", "faults: [{at: {iter: 1}, target: node1/nic0, kind: throttle, rate: 100}]", 3,
             68, "rate"},
        Case{"not_a_list", "faults: {kind: port_down}", 3, 9, "'faults' must be a list, but is a map"},
        Case{"not_a_map", "faults: [port_down]", 3, 10, "a fault must be a map"},
        Case{"rank_missing", "faults: [{at: {iter: 1}, target: node1/rank3, kind: sigstop, for: 1 s}]", 3, 34,
             "'node1/rank3' does not exist; there are node0 to node1, each with rank0"},
        Case{"rank_for_nic", "faults: [{at: {iter: 1}, target: node1/nic0, kind: sigstop, for: 1 s}]", 3, 34,
             "'node1/nic0' is no rank"},
        Case{"no_duration", "faults: [{at: {iter: 1}, target: node1/rank0, kind: sigstop}]", 3, 10,
             "needs 'for'"},
        Case{"kill_for", "faults: [{at: {iter: 1}, target: node1/rank0, kind: kill, for: 1 s}]", 3, 64,
             "after 'kill' the rank does not come back"},
        Case{"rank_wr", "faults: [{at: {wr: 1}, target: node1/rank0, kind: kill}]", 3, 16,
             "'wr' triggers faults of NICs"},
        Case{"duration_unit", "faults: [{at: {iter: 1}, target: node1/rank0, kind: sigstop, for: 2}]", 3, 67,
             "'for'"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Expectations, Refused,
    testing::Values(
        Case{"mode", "expect: {migrat: {correctness: exact}}", 3, 10,
             "'migrat' is no mode of this scenario; did you mean 'migrate'?"},
        Case{"metric_as_mode", "expect: {correctness: exact}", 3, 10,
             "a metric stands under 'all' or under a mode"},
        Case{"metric", "expect: {all: {corectness: exact}}", 3, 16,
             "unknown metric 'corectness'; did you mean 'correctness'?"},
        Case{"statistic", "expect: {all: {recover_ms: \"<= 3 ms\"}}", 3, 16, "'recover_ms' is many values"},
        Case{"word", "expect: {all: {outcome: fine}}", 3, 25, "'outcome' cannot be 'fine'"},
        Case{"expression", "expect: {all: {lost: \"<= 3 ms\"}}", 3, 26, "'lost' is a plain number"},
        Case{"list", "expect: {all: {lost: [1]}}", 3, 22, "must be an expectation"},
        Case{"no_fault", "expect: {all: {recover_ms.max: \"<= 3 ms\"}}", 3, 32,
             "needs a fault, but this scenario has none"},
        Case{"gray_elsewhere", "expect: {all: {gray_nics: 0}}", 3, 27, "counts what mode balance does"},
        Case{"plans_elsewhere", "expect: {migrate: {plans_agreed: '>= 1'}}", 3, 34,
             "counts what mode allreduce does"},
        Case{"lanes_elsewhere", "expect: {migrate: {lanes: 0}}", 3, 27, "counts what mode balance does"},
        Case{"no_pairs", "expect: {migrate: {overhead_pct: \"<= 3 %\"}}", 3, 34, "add 'pairs: 20'"},
        Case{"pairs_of_first", "pairs: 4\nexpect: {baseline: {overhead_pct: \"<= 3 %\"}}", 4, 35,
             "is measured against 'baseline'"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Whole, Refused,
    testing::Values(
        Case{"key", "expects: {}", 3, 1, "unknown key 'expects' in 'the scenario'; did you mean 'expect'?"},
        Case{"name", "name: a/b", 3, 7, "'a/b' is no good name"},
        Case{"seed", "seed: -1", 3, 7, "'seed' must be a whole number"},
        Case{"repeats", "repeats: 0", 3, 10, "'repeats' is 0"},
        Case{"idle_repeats", "repeats: 3", 3, 10, "'repeats' repeats the faults, but this scenario has none"},
        Case{"own_env", "env: {LD_PRELOAD: x.so}", 3, 7, "'LD_PRELOAD' is set by r2bench itself"},
        Case{"fabric_env", "env: {VHCA_FABRIC: x}", 3, 7, "'VHCA_FABRIC' is set by r2bench itself"},
        Case{"mode_env", "env: {R2CC_MODE: 1}", 3, 7, "choose the mode under 'modes'"},
        Case{"env_value", "env: {A: [1]}", 3, 7, "'env' holds names with single values"},
        Case{"timeout", "timeouts: {stall: 0 s}", 3, 19, "'stall' must be longer than 0"},
        Case{"matrix_key", "matrix: {modes: [a]}", 3, 10, "'modes' cannot vary"},
        Case{"matrix_entry", "matrix: {faults.2.target: [node1/nic0]}", 3, 28, "'faults.2.target'"},
        Case{"matrix_list", "matrix: {workload.bytes: 1 MiB}", 3, 26, "must be a list of values"},
        Case{"matrix_value", "matrix: {workload.bytes: [1 MiB, 7]}", 3, 34, "'bytes'"},
        Case{"pairs_faults", "pairs: 3\nfaults: [{at: {iter: 1}, target: node1/nic0, kind: noop}]", 3, 8,
             "'pairs' measures overhead without a fault"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace r2bench
