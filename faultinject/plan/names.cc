// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/names.h"

#include <cerrno>
#include <span>

namespace faultinject {
namespace {

struct Name {
  const char* name;
  int number;
};

constexpr Name kOpcodes[] = {{"write", 0},
                             {"write_imm", 1},
                             {"send", 2},
                             {"send_imm", 3},
                             {"read", 4},
                             {"atomic_cmp_swp", 5},
                             {"atomic_fetch_add", 6},
                             {"local_inv", 7},
                             {"bind_mw", 8},
                             {"send_inv", 9},
                             {"tso", 10}};

constexpr Name kStatuses[] = {{"SUCCESS", 0},
                              {"LOC_LEN_ERR", 1},
                              {"LOC_QP_OP_ERR", 2},
                              {"LOC_EEC_OP_ERR", 3},
                              {"LOC_PROT_ERR", 4},
                              {"WR_FLUSH_ERR", 5},
                              {"MW_BIND_ERR", 6},
                              {"BAD_RESP_ERR", 7},
                              {"LOC_ACCESS_ERR", 8},
                              {"REM_INV_REQ_ERR", 9},
                              {"REM_ACCESS_ERR", 10},
                              {"REM_OP_ERR", 11},
                              {"RETRY_EXC_ERR", 12},
                              {"RNR_RETRY_EXC_ERR", 13},
                              {"LOC_RDD_VIOL_ERR", 14},
                              {"REM_INV_RD_REQ_ERR", 15},
                              {"REM_ABORT_ERR", 16},
                              {"INV_EECN_ERR", 17},
                              {"INV_EEC_STATE_ERR", 18},
                              {"FATAL_ERR", 19},
                              {"RESP_TIMEOUT_ERR", 20},
                              {"GENERAL_ERR", 21},
                              {"TM_ERR", 22},
                              {"TM_RNDV_INCOMPLETE", 23}};

constexpr Name kEvents[] = {{"CQ_ERR", 0},
                            {"QP_FATAL", 1},
                            {"QP_REQ_ERR", 2},
                            {"QP_ACCESS_ERR", 3},
                            {"COMM_EST", 4},
                            {"SQ_DRAINED", 5},
                            {"PATH_MIG", 6},
                            {"PATH_MIG_ERR", 7},
                            {"DEVICE_FATAL", 8},
                            {"PORT_ACTIVE", 9},
                            {"PORT_ERR", 10},
                            {"LID_CHANGE", 11},
                            {"PKEY_CHANGE", 12},
                            {"SM_CHANGE", 13},
                            {"SRQ_ERR", 14},
                            {"SRQ_LIMIT_REACHED", 15},
                            {"QP_LAST_WQE_REACHED", 16},
                            {"CLIENT_REREGISTER", 17},
                            {"GID_CHANGE", 18},
                            {"WQ_FATAL", 19}};

constexpr Name kErrors[] = {{"EPERM", EPERM},
                            {"ENOENT", ENOENT},
                            {"EINTR", EINTR},
                            {"EIO", EIO},
                            {"ENXIO", ENXIO},
                            {"EAGAIN", EAGAIN},
                            {"ENOMEM", ENOMEM},
                            {"EACCES", EACCES},
                            {"EFAULT", EFAULT},
                            {"EBUSY", EBUSY},
                            {"ENODEV", ENODEV},
                            {"EINVAL", EINVAL},
                            {"ENOSPC", ENOSPC},
                            {"ENOSYS", ENOSYS},
                            {"EPROTO", EPROTO},
                            {"EOPNOTSUPP", EOPNOTSUPP},
                            {"ENETDOWN", ENETDOWN},
                            {"ENETUNREACH", ENETUNREACH},
                            {"ECONNRESET", ECONNRESET},
                            {"ENOBUFS", ENOBUFS},
                            {"ETIMEDOUT", ETIMEDOUT},
                            {"ECONNREFUSED", ECONNREFUSED},
                            {"EHOSTUNREACH", EHOSTUNREACH},
                            {"EREMOTEIO", EREMOTEIO}};

// `name` without `prefix`, in capital letters.
std::string normal(std::string_view name, std::string_view prefix) {
  std::string text;
  for (const char c : name) text += c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
  if (text.rfind(prefix, 0) == 0) text.erase(0, prefix.size());
  return text;
}

std::optional<int> number_of(std::span<const Name> names, std::string_view name) {
  for (const Name& each : names)
    if (name == each.name) return each.number;
  return std::nullopt;
}

std::string name_of(std::span<const Name> names, int number) {
  for (const Name& each : names)
    if (number == each.number) return each.name;
  return std::to_string(number);
}

std::vector<std::string> all(std::span<const Name> names) {
  std::vector<std::string> words;
  for (const Name& each : names) words.push_back(each.name);
  return words;
}

}  // namespace

std::optional<int> opcode_number(std::string_view name) { return number_of(kOpcodes, name); }
const std::vector<std::string>& opcode_names() {
  static const std::vector<std::string> names = all(kOpcodes);
  return names;
}

std::optional<int> status_number(std::string_view name) {
  return number_of(kStatuses, normal(name, "IBV_WC_"));
}
const std::vector<std::string>& status_names() {
  static const std::vector<std::string> names = all(kStatuses);
  return names;
}
std::string status_name(int number) { return name_of(kStatuses, number); }

std::optional<int> event_number(std::string_view name) {
  return number_of(kEvents, normal(name, "IBV_EVENT_"));
}
const std::vector<std::string>& event_names() {
  static const std::vector<std::string> names = all(kEvents);
  return names;
}
std::string event_name(int number) { return name_of(kEvents, number); }

std::optional<int> errno_number(std::string_view name) { return number_of(kErrors, normal(name, "")); }
const std::vector<std::string>& errno_names() {
  static const std::vector<std::string> names = all(kErrors);
  return names;
}
std::string errno_name(int number) { return name_of(kErrors, number); }

}  // namespace faultinject
