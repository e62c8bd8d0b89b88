// CUDA, or its emulation on the CPU: the tests compile the same kernels with a host compiler (tests/cuda/emulation).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace megalite::cuda {

// The block's dynamic shared memory.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

// `at` as a vector V, to whose size it is aligned.
template <typename V, typename T>
__device__ V* vector_at(T* at) { return reinterpret_cast<V*>(at); }

}  // namespace megalite::cuda

#else

#include "cuda_emulation.h"

namespace megalite::cuda {

template <typename T>
T* dynamic_shared() { return static_cast<T*>(emulation::dynamic_shared()); }

using emulation::vector_at;

}  // namespace megalite::cuda

#endif
