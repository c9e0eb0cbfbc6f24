// SPDX-License-Identifier: Apache-2.0
// Which NICs a process uses, and in which order they are numbered.
#pragma once

#include <vector>

#include "r2ccl/base/config.h"
#include "r2ccl/base/result.h"
#include "r2ccl/verbs/device.h"

namespace r2ccl {

/// Opens the NICs that NCCL_IB_HCA lets through, that have an active port and do what a path needs; a log
/// line says which are left out, and why. Numbered by PCI address (NCCL_IB_DEVICE_PCI_ORDER); if there are
/// more than wire::kMaxNics, the fastest. Errors: those of Device::open_all(), and kOutOfResources if none
/// is left.
Result<std::vector<verbs::Device>> open_nics(const Config& config);

}  // namespace r2ccl
