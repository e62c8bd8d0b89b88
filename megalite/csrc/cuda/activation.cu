// GELU and squared ReLU of a sum with a bias, whose gradient is summed in the same pass as the argument's.
#include "cuda/column_sums.h"
#include "cuda/kernels.h"
#include "cuda/math.h"

namespace megalite::cuda {
namespace {

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3) is x sigmoid(2u).
struct Gelu {
  static constexpr float kTwice = 1.5957691216f, kCubic = 0.044715f;
  static __device__ float twice_u(float x) { return x * (kTwice + kTwice * kCubic * (x * x)); }
  static __device__ float value(float x) { return x * sigmoid(twice_u(x)).value; }
  static __device__ float slope(float x) {
    const Sigmoid s = sigmoid(twice_u(x));
    return s.value + x * (s.value * s.rest) * (kTwice + 3.0f * kTwice * kCubic * (x * x));
  }
};

struct SquaredRelu {
  static __device__ float value(float x) { return x > 0.0f ? x * x : 0.0f; }
  static __device__ float slope(float x) { return x > 0.0f ? 2.0f * x : 0.0f; }
};

template <typename Function, typename T, int kSize>
__global__ void __launch_bounds__(kBlock) forward(T* y, const T* x, const T* bias, Rows shape) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    for_columns<T>(team, shape.cols, packed_at<T>(shape, start), [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto argument = load<n>(x + start + i) + load_or_zero<n>(bias, i);
      store(y + start + i, map([](float a) { return Function::value(a); }, argument));
    });
  });
}

template <typename Function, typename T, int kSize>
__global__ void __launch_bounds__(kBlock) backward(T* dx, float* partial, const T* dy, const T* x, const T* bias,
                                                   Rows shape, RowRanges ranges) {
  const Team<kSize> team;
  ColumnSums sums(team, ranges, partial);
  for_range(team, ranges, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    for_columns<T>(team, shape.cols, shape.aligned, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto argument = load<n>(x + start + i) + load_or_zero<n>(bias, i);
      const auto slope = map([](float a) { return Function::slope(a); }, argument);
      const auto grad = load<n>(dy + start + i) * slope;
      store(dx + start + i, grad);
      sums.add(i, grad);
    });
  });
  sums.finish();
}

template <typename Function>
void run_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype, Stream stream) {
  const Rows shape{rows, cols, aligned(y, x, bias)};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, forward<Function, T, size>, y, x, bias, shape);
    });
  });
}

template <typename Function>
void run_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                  int64_t rows, int64_t cols, int64_t blocks, int dtype, Stream stream) {
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    const Rows shape{rows, cols, cols % kPack<T> == 0 && aligned(dx, partial, dy, x, bias)};
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      const RowRanges ranges = share_rows(rows, dbias == nullptr ? 0 : cols, blocks, size, stream);
      launch(ranges.launch, backward<Function, T, size>, dx, partial, dy, x, bias, shape, ranges);
      if (dbias != nullptr) sum_partial(dbias, partial, ranges.teams, cols, cols, stream);
    });
  });
}

}  // namespace

void bias_gelu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype,
                       Stream stream) {
  run_forward<Gelu>(y, x, bias, rows, cols, dtype, stream);
}

void bias_gelu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                        int64_t rows, int64_t cols, int64_t blocks, int dtype, Stream stream) {
  run_backward<Gelu>(dx, dbias, partial, dy, x, bias, rows, cols, blocks, dtype, stream);
}

void squared_relu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype,
                          Stream stream) {
  run_forward<SquaredRelu>(y, x, bias, rows, cols, dtype, stream);
}

void squared_relu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                           int64_t rows, int64_t cols, int64_t blocks, int dtype, Stream stream) {
  run_backward<SquaredRelu>(dx, dbias, partial, dy, x, bias, rows, cols, blocks, dtype, stream);
}

}  // namespace megalite::cuda
