// Kernels over all elements of a flat tensor, which the threads of the whole grid share.
#pragma once

#include "cuda/launch.h"
#include "cuda/pack.h"
#include "cuda/team.h"

namespace megalite::cuda {

// body(position, Width<m>) for this thread's share of [0, size): packs of n where `packed`, then single elements.
template <int n, typename Body>
__device__ void for_elements(int64_t size, bool packed, Body body) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t packed_size = packed ? size / n * n : 0;
  for (int64_t i = thread * n; i < packed_size; i += threads * n) body(i, Width<n>{});
  for (int64_t i = packed_size + thread; i < size; i += threads) body(i, Width<1>{});
}

// A thread for each pack of n of `size` elements.
inline Launch over_elements(int64_t size, int n, Stream stream) {
  return {divide_up(size, kBlock * n), kBlock, stream};
}

}  // namespace megalite::cuda
