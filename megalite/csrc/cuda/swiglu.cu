// silu(gate) * up, where a row of the argument holds gate then up; the gradient of the bias is summed in the same pass
// as the argument's.
#include "cuda/column_sums.h"
#include "cuda/kernels.h"
#include "cuda/math.h"

namespace megalite::cuda {
namespace {

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) forward(T* y, const T* x, const T* bias, Rows shape) {
  const Team<kSize> team;
  const int64_t cols = shape.cols;
  for_rows(team, shape, [&](int64_t row) {
    const T *gates = x + row * 2 * cols, *ups = gates + cols;
    for_columns<T>(team, cols, shape.aligned, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto gate = load<n>(gates + i) + load_or_zero<n>(bias, i);
      const auto up = load<n>(ups + i) + load_or_zero<n>(bias, cols + i);
      store(y + row * cols + i, map([](float g, float u) { return g * sigmoid(g).value * u; }, gate, up));
    });
  });
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) backward(T* dx, float* partial, const T* dy, const T* x, const T* bias,
                                                   Rows shape, RowRanges ranges) {
  const Team<kSize> team;
  const int64_t cols = shape.cols;
  ColumnSums sums(team, ranges, partial);
  for_range(team, ranges, [&](int64_t row) {
    const T *gates = x + row * 2 * cols, *ups = gates + cols;
    T *gate_grads = dx + row * 2 * cols, *up_grads = gate_grads + cols;
    for_columns<T>(team, cols, shape.aligned, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto gate = load<n>(gates + i) + load_or_zero<n>(bias, i);
      const auto up = load<n>(ups + i) + load_or_zero<n>(bias, cols + i);
      const auto grad = load<n>(dy + row * cols + i);
      const auto slope = map([](float g) {
        const Sigmoid s = sigmoid(g);
        return s.value + g * (s.value * s.rest);
      }, gate);
      const auto gate_grad = grad * up * slope;
      const auto up_grad = grad * map([](float g) { return g * sigmoid(g).value; }, gate);
      store(gate_grads + i, gate_grad);
      store(up_grads + i, up_grad);
      sums.add(i, gate_grad);
      sums.add(cols + i, up_grad);
    });
  });
  sums.finish();
}

}  // namespace

void swiglu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype, Stream stream) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const Rows shape{rows, cols, cols % kPack<T> == 0 && aligned(y, x, bias)};
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, forward<T, size>, y, x, bias, shape);
    });
  });
}

void swiglu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                     int64_t rows, int64_t cols, int64_t blocks, int dtype, Stream stream) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const Rows shape{rows, cols, cols % kPack<T> == 0 && aligned(dx, partial, dy, x, bias)};
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      const RowRanges ranges = share_rows(rows, dbias == nullptr ? 0 : 2 * cols, blocks, size, stream);
      launch(ranges.launch, backward<T, size>, dx, partial, dy, x, bias, shape, ranges);
      if (dbias != nullptr) sum_partial(dbias, partial, ranges.teams, 2 * cols, 2 * cols, stream);
    });
  });
}

}  // namespace megalite::cuda
