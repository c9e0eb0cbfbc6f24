// SPDX-License-Identifier: Apache-2.0
// The sections of a scenario file, one function each. Internal to the loader.
#pragma once

#include <chrono>
#include <string>

#include "harness/scenario/load.h"
#include "harness/scenario/scenario.h"
#include "harness/scenario/yaml_reader.h"

namespace r2bench {

/// Reads a whole tree and checks it. Problems are noted in `document`; the Scenario is whole only without
/// any.
Scenario read_sections(Document& document, const YAML::Node& root, const std::string& default_name,
                       const LoadOptions& options);

/// Of a scenario or a mode: names of folders and log files, and cells of tables. kNameRule says it.
bool good_name(const std::string& text);
inline constexpr char kNameRule[] =
    "letters, digits, '_', '-' and '.', at most 64 of them, and start with a letter or digit";

void read_fabric(Document& document, const YAML::Node& node, Fabric& fabric);
/// `nics_are_given`: the file says how many NICs a node has; else a preset does.
void read_topology(Document& document, const YAML::Node& node, bool nics_are_given, Fabric& fabric);
void read_workload(Document& document, const YAML::Node& node, Workload& workload);
/// Keys of the workload that belong to one engine alone.
void read_engine_keys(Document& document, MapReader& map, Workload& workload);
/// … of the engine exec.
void read_exec_keys(Document& document, MapReader& map, Workload& workload);
/// How long nothing may move where the file does not say.
std::chrono::nanoseconds default_stall(const Workload& workload);
std::optional<Transport> read_transport(MapReader& map);
void read_timeouts(Document& document, const YAML::Node& node, Timeouts& timeouts);
std::optional<ModeKind> read_kind(Document& document, const YAML::Node& at, const std::string& word);
/// The key `plugin` of a mode, or of the other side; empty: it has none.
std::string read_own_plugin(Document& document, MapReader& map);
/// The key `beside` of a mode.
std::optional<OtherSide> read_other_side(Document& document, MapReader& mode);
void read_modes(Document& document, const YAML::Node& node, const LoadOptions& options, Scenario& scenario,
                std::vector<std::string>& file_labels);
void read_faults(Document& document, const YAML::Node& node, Scenario& scenario);
/// `file_labels`: the modes of the file itself. What is expected of a mode that the command line left out is
/// checked and then dropped.
void read_expectations(Document& document, const YAML::Node& node,
                       const std::vector<std::string>& file_labels, Scenario& scenario);
/// What no section can see by itself.
void check_whole(Document& document, const YAML::Node& root, const Scenario& scenario);
/// … of faults that could change nothing.
void check_overlaps(Document& document, const Scenario& scenario);
/// … of the engine nccl.
void check_nccl(Document& document, const YAML::Node& root, const Scenario& scenario);
/// … of modes that compare two of the plugin's modes in one job.
void check_own_plugins(Document& document, const YAML::Node& root, const Scenario& scenario);
void check_other_sides(Document& document, const YAML::Node& root, const Scenario& scenario);
/// … of a mode that compares two transports in one job.
void check_beside(Document& document, const YAML::Node& root, const Scenario& scenario, const Mode& mode);
/// … of those engines whose NCCL may take its own transport.
void check_transports(Document& document, const YAML::Node& root, const Scenario& scenario);
/// … of the engine exec.
void check_exec(Document& document, const YAML::Node& root, const Scenario& scenario);

/// Environment variables that r2bench sets itself are refused in `env`.
void check_env(Document& document, const YAML::Node& node, const std::map<std::string, std::string>& env);

}  // namespace r2bench
