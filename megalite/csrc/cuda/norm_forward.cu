// LayerNorm and RMSNorm, optionally of a sum.
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {
namespace {

template <typename T>
struct NormForward {
  T *y, *total;
  const T *x, *residual, *weight, *bias;
  float *mean, *scale;
  float epsilon;
};

// The passes over a row after the first find it in the cache.
template <bool kCentered, typename T, int kSize>
__global__ void __launch_bounds__(kBlock) norm_forward(NormForward<T> p, Rows shape) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    const bool packed = packed_at<T>(shape, start);
    const T* in = p.residual == nullptr ? p.x : p.total;
    const auto columns = [&](auto body) { for_columns<T>(team, shape.cols, packed, body); };

    if (p.residual != nullptr) {
      columns([&](int64_t i, auto width) {
        constexpr int n = decltype(width)::value;
        store(p.total + start + i, load<n>(p.x + start + i) + load<n>(p.residual + start + i));
      });
    }
    float center = 0.0f;
    if constexpr (kCentered) {
      columns([&](int64_t i, auto width) { center += sum(load<decltype(width)::value>(in + start + i)); });
      center = team.sum(center) / shape.cols;
    }
    float squares = 0.0f;
    columns([&](int64_t i, auto width) {
      const auto value = load<decltype(width)::value>(in + start + i) - center;
      squares += sum(value * value);
    });
    const float factor = 1.0f / sqrtf(team.sum(squares) / shape.cols + p.epsilon);
    columns([&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto y = (load<n>(in + start + i) - center) * factor * load<n>(p.weight + i);
      if constexpr (kCentered) y = y + load<n>(p.bias + i);
      store(p.y + start + i, y);
    });
    if (team.rank == 0) {
      p.scale[row] = factor;
      if constexpr (kCentered) p.mean[row] = center;
    }
  });
}

template <bool kCentered, typename T>
void run(const NormForward<T>& p, int64_t rows, int64_t cols, Stream stream) {
  const Rows shape{rows, cols, aligned(p.y, p.total, p.x, p.residual, p.weight, p.bias)};
  with_team(cols, [&](auto team) {
    constexpr int size = decltype(team)::value;
    launch({divide_up(rows, kBlock / size), kBlock, stream}, norm_forward<kCentered, T, size>, p, shape);
  });
}

}  // namespace

void rms_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, float* scale,
                      int64_t rows, int64_t cols, double epsilon, int dtype, Stream stream) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    const NormForward<T> p{(T*)y,     (T*)total, (const T*)x, (const T*)residual, (const T*)weight,
                           nullptr,   nullptr,   scale,       (float)epsilon};
    run<false>(p, rows, cols, stream);
  });
}

void layer_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight,
                        const void* bias, float* mean, float* scale, int64_t rows, int64_t cols, double epsilon,
                        int dtype, Stream stream) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    const NormForward<T> p{(T*)y,          (T*)total, (const T*)x, (const T*)residual, (const T*)weight,
                           (const T*)bias, mean,      scale,       (float)epsilon};
    run<true>(p, rows, cols, stream);
  });
}

}  // namespace megalite::cuda
