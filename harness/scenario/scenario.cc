// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/scenario.h"

#include <algorithm>

namespace r2bench {

const Mode* Scenario::find_mode(const std::string& label) const {
  for (const Mode& mode : modes) {
    if (mode.label == label) return &mode;
  }
  return nullptr;
}

size_t reference_mode(const std::vector<const Mode*>& modes) {
  const auto first =
      std::find_if(modes.begin(), modes.end(), [](const Mode* m) { return m->kind == ModeKind::kBaseline; });
  return first == modes.end() ? 0 : size_t(first - modes.begin());
}

const char* name(LinkLayer link) { return link == LinkLayer::kInfiniBand ? "infiniband" : "ethernet"; }

const char* name(FabricKind kind) {
  switch (kind) {
    case FabricKind::kVhca:
      return "vhca";
    case FabricKind::kRxe:
      return "rxe";
    case FabricKind::kVerbs:
      return "verbs";
    case FabricKind::kNone:
      return "none";
  }
  return "?";
}

const char* name(Engine engine) {
  switch (engine) {
    case Engine::kCpu:
      return "cpu";
    case Engine::kNccl:
      return "nccl";
    case Engine::kExec:
      return "exec";
  }
  return "?";
}

const char* name(Transport transport) {
  switch (transport) {
    case Transport::kPlugin:
      return "plugin";
    case Transport::kIb:
      return "ib";
    case Transport::kIbFailover:
      return "ib_failover";
    case Transport::kPluginBesideIb:
      return "plugin_beside_ib";
    case Transport::kIbBesideIb:
      return "ib_beside_ib";
  }
  return "?";
}

const char* name(RenewBy by) {
  switch (by) {
    case RenewBy::kAbort:
      return "abort";
    case RenewBy::kShrink:
      return "shrink";
    case RenewBy::kRevoke:
      return "revoke";
  }
  return "?";
}

const char* name(Operation op) {
  switch (op) {
    case Operation::kAllReduce:
      return "allreduce";
    case Operation::kSendRecv:
      return "sendrecv";
    case Operation::kAllGather:
      return "allgather";
    case Operation::kReduceScatter:
      return "reducescatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllToAll:
      return "alltoall";
  }
  return "?";
}

const char* name(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return "int8";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kUint8:
      return "uint8";
    case DataType::kUint32:
      return "uint32";
    case DataType::kUint64:
      return "uint64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat8e4m3:
      return "float8e4m3";
    case DataType::kFloat8e5m2:
      return "float8e5m2";
  }
  return "?";
}

const char* name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kProd:
      return "prod";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAvg:
      return "avg";
    case Reduction::kPremulSum:
      return "premulsum";
  }
  return "?";
}

const char* name(Groups groups) { return groups == Groups::kLocalRank ? "local_rank" : "all"; }

const char* name(CollNet collnet) {
  switch (collnet) {
    case CollNet::kAuto:
      return "auto";
    case CollNet::kForce:
      return "force";
    case CollNet::kOff:
      return "off";
  }
  return "?";
}

const char* name(ModeKind kind) {
  switch (kind) {
    case ModeKind::kBaseline:
      return "baseline";
    case ModeKind::kMigrate:
      return "migrate";
    case ModeKind::kBalance:
      return "balance";
    case ModeKind::kAllReduce:
      return "allreduce";
  }
  return "?";
}

}  // namespace r2bench
