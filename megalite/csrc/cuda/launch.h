// Launching kernels from the host.
#pragma once

#include <stdexcept>
#include <string>

#include "cuda/kernels.h"
#include "cuda/platform.h"

namespace megalite::cuda {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error));
}

struct Launch {
  int64_t blocks;
  int threads;
  Stream stream;
  size_t shared_bytes = 0;
};

// Runs `kernel`; does nothing where there is nothing to do, as CUDA refuses an empty grid.
template <typename... Params, typename... Args>
void launch(const Launch& how, void (*kernel)(Params...), Args... args) {
  constexpr int64_t kMaxBlocks = 2147483647;  // kernels stride over what is beyond
  if (how.blocks <= 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(how.blocks < kMaxBlocks ? how.blocks : kMaxBlocks));
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = how.stream;
  if (how.shared_bytes > (48 << 10)) {  // more than a kernel gets unasked
    const int bytes = static_cast<int>(how.shared_bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  check(cudaLaunchKernelEx(&config, kernel, Params(args)...));
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace megalite::cuda
