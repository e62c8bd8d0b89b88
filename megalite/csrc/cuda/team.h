// Threads that work on one row of a matrix together: a warp for short rows, a block for long ones.
#pragma once

#include "cuda/pack.h"

namespace megalite::cuda {

constexpr int kBlock = 256;         // threads of a block, unless a kernel says otherwise
constexpr int kWarpCols = 1024;     // the longest row that a warp works on
constexpr unsigned kAllLanes = ~0u;

// Calls body(Width<size of the team>) with the team for rows of `cols` elements.
template <typename Body>
void with_team(int64_t cols, Body body) {
  if (cols <= kWarpCols) body(Width<32>{});
  else body(Width<kBlock>{});
}

struct Sum {
  template <typename V>
  __device__ V operator()(V a, V b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <int kSize>
struct Team {
  int rank;               // of this thread in its team
  int64_t number, count;  // of the team in the grid; teams in the grid

  __device__ Team()
      : rank(threadIdx.x % kSize),
        number(static_cast<int64_t>(blockIdx.x) * (blockDim.x / kSize) + threadIdx.x / kSize),
        count(static_cast<int64_t>(gridDim.x) * (blockDim.x / kSize)) {}

  __device__ void sync() const {
    if constexpr (kSize == 32) __syncwarp();
    else __syncthreads();
  }

  // The values of all threads combined, in an order that is always the same; every thread gets the result.
  template <typename V, typename Operation>
  __device__ V combine(V x, Operation operation) const {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      x = operation(x, __shfl_xor_sync(kAllLanes, x, distance));
    }
    if constexpr (kSize > 32) {
      __shared__ V of_warps[kSize / 32];
      if (rank % 32 == 0) of_warps[rank / 32] = x;
      __syncthreads();
      x = of_warps[0];
#pragma unroll
      for (int warp = 1; warp < kSize / 32; ++warp) x = operation(x, of_warps[warp]);
      __syncthreads();  // before the next values are written
    }
    return x;
  }

  template <typename V>
  __device__ V sum(V x) const { return combine(x, Sum{}); }
  __device__ float max(float x) const { return combine(x, Max{}); }
};

// A matrix whose rows are shared out. All tensors of a kernel have its shape or that of one row; `aligned` says that
// they all begin at a multiple of 16 bytes.
struct Rows {
  int64_t rows, cols;
  bool aligned;
};

// body(row) for the team's rows.
template <typename Team, typename Body>
__device__ void for_rows(const Team& team, const Rows& shape, Body body) {
  for (int64_t row = team.number; row < shape.rows; row += team.count) body(row);
}

// body(position, Width<n>) for this thread's share of [0, cols): packs of n = kPack<T> where `packed`, then single
// elements.
template <typename T, int kSize, typename Body>
__device__ void for_columns(const Team<kSize>& team, int64_t cols, bool packed, Body body) {
  constexpr int n = kPack<T>;
  const int64_t packed_cols = packed ? cols / n * n : 0;
  for (int64_t i = team.rank * n; i < packed_cols; i += kSize * n) body(i, Width<n>{});
  for (int64_t i = packed_cols + team.rank; i < cols; i += kSize) body(i, Width<1>{});
}

// Whether a row of T that starts at element `start` of its matrix may be read in packs.
template <typename T>
__device__ bool packed_at(const Rows& shape, int64_t start) { return shape.aligned && start % kPack<T> == 0; }

}  // namespace megalite::cuda
