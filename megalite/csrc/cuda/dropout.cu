// Bias, dropout and residual in one pass. The mask is a function of the element's place (philox.h), so it is not kept:
// the backward pass makes it again.
#include "cuda/column_sums.h"
#include "cuda/kernels.h"
#include "cuda/philox.h"

namespace megalite::cuda {
namespace {

struct Mask {
  const int64_t* row_numbers;
  Key key;
  uint32_t threshold;  // halves of words below it are dropped
  float scale;         // of the elements that are kept
};

constexpr int kPerBlock = 8;  // elements, each of half a word

// x after dropout, where x is elements i .. i + n of the row. If n > 1, it must divide the number of the first one.
template <int n>
__device__ Floats<n> drop(const Mask& mask, int64_t row, int64_t cols, int64_t i, Floats<n> x) {
  if (mask.threshold == 0) return x * mask.scale;
  const uint64_t first = static_cast<uint64_t>(mask.row_numbers[row]) * cols + i;
  const int start = n < kPerBlock ? first % kPerBlock : 0;
#pragma unroll
  for (int k = 0; k < n; k += kPerBlock) {
    const Words words = philox((first + k) / kPerBlock, mask.key);
#pragma unroll
    for (int j = 0; j < (n < kPerBlock ? n : kPerBlock); ++j) {
      x[k + j] = half_at(words, start + j) < mask.threshold ? 0.0f : x[k + j] * mask.scale;
    }
  }
  return x;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) forward(T* y, const T* x, const T* bias, const T* residual, Mask mask,
                                                  Rows shape) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    for_columns<T>(team, shape.cols, shape.aligned, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto value = load<n>(x + start + i) + load_or_zero<n>(bias, i);
      store(y + start + i, drop(mask, row, shape.cols, i, value) + load_or_zero<n>(residual, start + i));
    });
  });
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) backward(T* dx, float* partial, const T* dy, Mask mask, Rows shape,
                                                   RowRanges ranges) {
  const Team<kSize> team;
  ColumnSums sums(team, ranges, partial);
  for_range(team, ranges, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    for_columns<T>(team, shape.cols, shape.aligned, [&](int64_t i, auto width) {
      const auto grad = drop(mask, row, shape.cols, i, load<decltype(width)::value>(dy + start + i));
      store(dx + start + i, grad);
      sums.add(i, grad);
    });
  });
  sums.finish();
}

}  // namespace

void dropout_residual_forward(void* y, const void* x, const void* bias, const void* residual,
                              const int64_t* row_numbers, int64_t rows, int64_t cols, int64_t key0, int64_t key1,
                              int64_t threshold, double scale, int dtype, Stream stream) {
  const Mask mask{row_numbers, {(uint32_t)key0, (uint32_t)key1}, (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const Rows shape{rows, cols, cols % kPack<T> == 0 && aligned(y, x, bias, residual)};
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, forward<T, size>, y, x, bias, residual, mask, shape);
    });
  });
}

void dropout_residual_backward(void* dx, float* dbias, float* partial, const void* dy, const int64_t* row_numbers,
                               int64_t rows, int64_t cols, int64_t blocks, int64_t key0, int64_t key1,
                               int64_t threshold, double scale, int dtype, Stream stream) {
  const Mask mask{row_numbers, {(uint32_t)key0, (uint32_t)key1}, (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const Rows shape{rows, cols, cols % kPack<T> == 0 && aligned(dx, partial, dy)};
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      const RowRanges ranges = share_rows(rows, dbias == nullptr ? 0 : cols, blocks, size, stream);
      launch(ranges.launch, backward<T, size>, dx, partial, dy, mask, shape, ranges);
      if (dbias != nullptr) sum_partial(dbias, partial, ranges.teams, cols, cols, stream);
    });
  });
}

}  // namespace megalite::cuda
