// SPDX-License-Identifier: Apache-2.0
// What the stand-in for NCCL needs of the stand-in for CUDA: work on a stream.
#pragma once

#include <functional>
#include <memory>

/// `work` is a std::function<void()>*, which it takes over. Found in libcuda.so.1 by dlsym, as NCCL finds the
/// driver's.
extern "C" void standin_enqueue(void* stream, void* work);
