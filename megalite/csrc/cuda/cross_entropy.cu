// Cross-entropy of logits over this rank's part of the vocabulary: what each row adds to the sums over all ranks, and
// the logits' gradient in their place.
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {
namespace {

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) peaks(float* peak, const T* logits, Rows shape, int64_t vocabulary) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    float top = -INFINITY;
    for_columns<T>(team, vocabulary, packed_at<T>(shape, start), [&](int64_t i, auto width) {
      top = Max{}(top, largest(load<decltype(width)::value>(logits + start + i)));
    });
    top = team.max(top);
    if (team.rank == 0) peak[row] = top;
  });
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) sums(float* out, const T* logits, const float* peak, const int64_t* target,
                                               Rows shape, int64_t vocabulary) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    const float top = peak[row];
    float total = 0.0f, level = 0.0f;
    for_columns<T>(team, vocabulary, packed_at<T>(shape, start), [&](int64_t i, auto width) {
      const auto score = load<decltype(width)::value>(logits + start + i) - top;
      total += sum(map([](float x) { return expf(x); }, score));
      level += sum(score);
    });
    total = team.sum(total);
    level = team.sum(level);
    if (team.rank == 0) {
      out[row] = total;
      out[shape.rows + row] = target[row] < 0 ? 0.0f : widen(logits[start + target[row]]) - top;
      out[2 * shape.rows + row] = level;
    }
  });
}

struct Gradient {
  const float *peak, *total, *weight;
  const int64_t* target;
  int64_t vocabulary;
  float on_target, on_all;
};

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) gradient(T* logits, Gradient g, Rows shape) {
  const Team<kSize> team;
  for_rows(team, shape, [&](int64_t row) {
    const int64_t start = row * shape.cols, target = g.target[row];
    const float top = g.peak[row], weight = g.weight[row], factor = weight / g.total[row], all = g.on_all * weight;
    for_columns<T>(team, shape.cols, packed_at<T>(shape, start), [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto grad = map([=](float x) { return expf(x - top) * factor - all; }, load<n>(logits + start + i));
#pragma unroll
      for (int k = 0; k < n; ++k) {
        if (i + k == target) grad[k] -= g.on_target * weight;
        if (i + k >= g.vocabulary) grad[k] = 0.0f;
      }
      store(logits + start + i, grad);
    });
  });
}

}  // namespace

void cross_entropy_peaks(float* peak, const void* logits, int64_t rows, int64_t cols, int64_t vocabulary, int dtype,
                         Stream stream) {
  const Rows shape{rows, cols, aligned(logits)};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, peaks<T, size>, peak, logits, shape, vocabulary);
    });
  });
}

void cross_entropy_sums(float* out, const void* logits, const float* peak, const int64_t* target, int64_t rows,
                        int64_t cols, int64_t vocabulary, int dtype, Stream stream) {
  const Rows shape{rows, cols, aligned(logits)};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, sums<T, size>, out, logits, peak, target, shape,
             vocabulary);
    });
  });
}

void cross_entropy_gradient(void* logits, const float* peak, const float* total, const float* weight,
                            const int64_t* target, int64_t rows, int64_t cols, int64_t vocabulary, double on_target,
                            double on_all, int dtype, Stream stream) {
  const Rows shape{rows, cols, aligned(logits)};
  const Gradient g{peak, total, weight, target, vocabulary, (float)on_target, (float)on_all};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(cols, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, gradient<T, size>, logits, g, shape);
    });
  });
}

}  // namespace megalite::cuda
