// Softmax over the last dim of attention scores, scaled, with a mask or causal: rows of any length.
#include "cuda/kernels.h"
#include "cuda/launch.h"
#include "cuda/team.h"

namespace megalite::cuda {
namespace {

struct Scores {
  Rows shape;  // rows of keys
  int64_t queries, rows_per_mask;
  const uint8_t* mask;  // null for none
  bool causal;
  float scale;
};

// How many keys, from the first, a row's query sees: if causal, the last query sees all.
__device__ int64_t num_visible(const Scores& s, int64_t row) {
  const int64_t keys = s.shape.cols;
  if (!s.causal) return keys;
  const int64_t visible = row % s.queries + 1 + keys - s.queries;
  return visible < 0 ? 0 : visible < keys ? visible : keys;
}

// The keys that must be read, `visible` of them up to the end of the last pack.
template <typename T>
__device__ int64_t num_read(int64_t visible, int64_t keys) {
  const int64_t whole = (visible + kPack<T> - 1) / kPack<T> * kPack<T>;
  return whole < keys ? whole : keys;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) forward(T* y, const T* x, Scores s) {
  const Team<kSize> team;
  const int64_t keys = s.shape.cols;
  for_rows(team, s.shape, [&](int64_t row) {
    const int64_t start = row * keys, visible = num_visible(s, row), read = num_read<T>(visible, keys);
    const uint8_t* hidden = nullptr;
    bool packed = packed_at<T>(s.shape, start);
    if (s.mask != nullptr) {
      const int64_t mask_start = (row / s.rows_per_mask * s.queries + row % s.queries) * keys;
      hidden = s.mask + mask_start;
      packed = packed && mask_start % kPack<T> == 0;
    }
    const auto scores_at = [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto score = load<n>(x + start + i);
      const auto masked = load_or_zero<n>(hidden, i);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        if (masked[k] != 0.0f || i + k >= visible) score[k] = -INFINITY;
      }
      return score;
    };

    float top = -INFINITY;
    for_columns<T>(team, read, packed, [&](int64_t i, auto width) { top = Max{}(top, largest(scores_at(i, width))); });
    top = team.max(top);
    const bool sees_nothing = top == -INFINITY;  // then no probability anywhere, instead of 0 / 0
    const auto exponential = [=](float score) { return sees_nothing ? 0.0f : expf((score - top) * s.scale); };
    float total = 0.0f;
    for_columns<T>(team, read, packed,
                   [&](int64_t i, auto width) { total += sum(map(exponential, scores_at(i, width))); });
    total = team.sum(total);
    const float factor = sees_nothing ? 0.0f : 1.0f / total;
    for_columns<T>(team, keys, packed, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto out = Floats<n>::filled(0.0f);
      if (i < visible) out = map(exponential, scores_at(i, width)) * factor;
      store(y + start + i, out);
    });
  });
}

// dx = scale * y * (dy - sum(y * dy)); where y is zero for want of visibility, so is dx.
template <typename T, int kSize>
__global__ void __launch_bounds__(kBlock) backward(T* dx, const T* dy, const T* y, Scores s) {
  const Team<kSize> team;
  const int64_t keys = s.shape.cols;
  for_rows(team, s.shape, [&](int64_t row) {
    const int64_t start = row * keys, visible = num_visible(s, row);
    const bool packed = packed_at<T>(s.shape, start);
    float dot = 0.0f;
    for_columns<T>(team, visible, packed, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      dot += sum(load<n>(y + start + i) * load<n>(dy + start + i));
    });
    dot = team.sum(dot);
    for_columns<T>(team, keys, packed, [&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto grad = Floats<n>::filled(0.0f);
      if (i < visible) grad = load<n>(y + start + i) * (load<n>(dy + start + i) - dot) * s.scale;
#pragma unroll
      for (int k = 0; k < n; ++k) {
        if (i + k >= visible) grad[k] = 0.0f;
      }
      store(dx + start + i, grad);
    });
  });
}

}  // namespace

void softmax_forward(void* y, const void* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys,
                     int64_t rows_per_mask, int causal, double scale, int dtype, Stream stream) {
  const Scores scores{{rows, keys, aligned(y, x, mask)}, queries, rows_per_mask, mask, causal != 0, (float)scale};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(keys, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, forward<T, size>, y, x, scores);
    });
  });
}

void softmax_backward(void* dx, const void* dy, const void* y, int64_t rows, int64_t queries, int64_t keys, int causal,
                      double scale, int dtype, Stream stream) {
  const Scores scores{{rows, keys, aligned(dx, dy, y)}, queries, 1, nullptr, causal != 0, (float)scale};
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    with_team(keys, [&](auto team) {
      constexpr int size = decltype(team)::value;
      launch({divide_up(rows, kBlock / size), kBlock, stream}, backward<T, size>, dx, dy, y, scores);
    });
  });
}

}  // namespace megalite::cuda
