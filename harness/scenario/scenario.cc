#include "harness/scenario/scenario.h"

namespace r2bench {

const Mode* Scenario::find_mode(const std::string& label) const {
  for (const Mode& mode : modes) {
    if (mode.label == label) return &mode;
  }
  return nullptr;
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

const char* name(RankFaultKind kind) {
  switch (kind) {
    case RankFaultKind::kSigstop:
      return "sigstop";
    case RankFaultKind::kReceiverSleep:
      return "receiver_sleep";
    case RankFaultKind::kKill:
      return "kill";
  }
  return "?";
}

int size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return 1;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 1;
}

}  // namespace r2bench
