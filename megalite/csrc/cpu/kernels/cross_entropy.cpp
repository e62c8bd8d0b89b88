// Cross-entropy of logits over this rank's part of the vocabulary: what each row adds to the sums over all ranks, and
// the logits' gradient in their place.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

template <typename T>
void peaks(float* peak, const T* logits, int64_t rows, int64_t cols, int64_t vocabulary) {
  for_rows(rows, vocabulary, [=](int64_t row) {
    Vec tops = splat(-kInfinity);
    for_lanes(vocabulary, [&](int64_t i, auto lanes) {
      tops = max(tops, fill(load(logits + row * cols + i, lanes), -kInfinity, lanes));
    });
    peak[row] = max(tops);
  });
}

template <typename T>
void sums(float* out, const T* logits, const float* peak, const int64_t* target, int64_t rows, int64_t cols,
          int64_t vocabulary) {
  for_rows(rows, vocabulary, [=](int64_t row) {
    const T* scores = logits + row * cols;
    const float top = peak[row];
    Vec total{}, level{};
    for_lanes(vocabulary, [&](int64_t i, auto lanes) {
      Vec score = fill(load(scores + i, lanes) - top, -kInfinity, lanes);
      total += exp(score);
      level += fill(score, 0.0f, lanes);
    });
    out[row] = sum(total);
    out[rows + row] = target[row] < 0 ? 0.0f : load(scores + target[row], 1)[0] - top;
    out[2 * rows + row] = sum(level);
  });
}

template <typename T>
void gradient(T* logits, const float* peak, const float* total, const float* weight, const int64_t* target,
              int64_t rows, int64_t cols, int64_t vocabulary, float on_target, float on_all) {
  for_rows(rows, cols, [=](int64_t row) {
    T* scores = logits + row * cols;
    const float top = peak[row], factor = weight[row] / total[row], all = on_all * weight[row];
    const Vec hit = target[row] < 0 ? Vec{} : load(scores + target[row], 1);
    for_lanes(vocabulary, [=](int64_t i, auto lanes) {
      store(scores + i, exp(load(scores + i, lanes) - top) * factor - all, lanes);
    });
    if (target[row] >= 0) store(scores + target[row], exp(hit - top) * factor - all - on_target * weight[row], 1);
    memset(scores + vocabulary, 0, (cols - vocabulary) * sizeof(T));
  });
}

}  // namespace

void cross_entropy_peaks(float* peak, const void* logits, int64_t rows, int64_t cols, int64_t vocabulary, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    peaks(peak, (const T*)logits, rows, cols, vocabulary);
  });
}

void cross_entropy_sums(float* out, const void* logits, const float* peak, const int64_t* target, int64_t rows,
                        int64_t cols, int64_t vocabulary, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    sums(out, (const T*)logits, peak, target, rows, cols, vocabulary);
  });
}

void cross_entropy_gradient(void* logits, const float* peak, const float* total, const float* weight,
                            const int64_t* target, int64_t rows, int64_t cols, int64_t vocabulary, double on_target,
                            double on_all, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    gradient((T*)logits, peak, total, weight, target, rows, cols, vocabulary, (float)on_target, (float)on_all);
  });
}

}  // namespace megalite::MEGALITE_ISA
