#include "cuda/column_sums.h"

namespace megalite::cuda {
namespace {

constexpr int kCols = 32, kThreadRows = 16;

// A block adds up kCols columns; a thread takes every kThreadRows-th row of one of them.
__global__ void __launch_bounds__(kCols* kThreadRows) add_rows(float* total, const float* partial, int64_t teams,
                                                               int64_t stride, int64_t cols) {
  __shared__ float sums[kThreadRows][kCols];
  const int lane = threadIdx.x % kCols, first = threadIdx.x / kCols;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kCols + lane;
  float sum = 0.0f;
  if (column < cols) {
    for (int64_t team = first; team < teams; team += kThreadRows) sum += partial[team * stride + column];
  }
  sums[first][lane] = sum;
  __syncthreads();
  if (first != 0 || column >= cols) return;
  for (int row = 1; row < kThreadRows; ++row) sum += sums[row][lane];
  total[column] = sum;
}

}  // namespace

void sum_partial(float* total, const float* partial, int64_t teams, int64_t stride, int64_t cols, Stream stream) {
  launch({divide_up(cols, kCols), kCols * kThreadRows, stream}, add_rows, total, partial, teams, stride, cols);
}

}  // namespace megalite::cuda
