// LayerNorm and RMSNorm over rows, optionally of the sum of two inputs. One number a row (two for LayerNorm) is kept
// for the backward pass, in float32.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

// Four sums at once, as one would wait for its own addition at each step.
template <typename Term>
float sum_of(int64_t cols, Term term) {
  Vec sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    for (int part = 0; part < 4; ++part) sums[part] += term(i + part * kLanes, Whole{});
  }
  for_lanes(cols - i, [&](int64_t j, auto lanes) { sums[0] += term(i + j, lanes); });
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// An optional tensor's row.
template <typename T>
T* at(T* base, int64_t offset) { return base == nullptr ? nullptr : base + offset; }

// The row to normalise: x itself, or x + residual, which is stored in `total` rounded to T first.
template <typename T>
const T* add_row(const T* x, const T* residual, T* total, int64_t cols) {
  if (residual == nullptr) return x;
  for_lanes(cols, [=](int64_t i, auto lanes) {
    store(total + i, load(x + i, lanes) + load(residual + i, lanes), lanes);
  });
  return total;
}

template <typename T>
void rms_forward(T* to, T* total, const T* x, const T* residual, const T* weight, float* scale, int64_t rows,
                 int64_t cols, float epsilon) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    const int64_t start = row * cols;
    const T* in = add_row(x + start, at(residual, start), at(total, start), cols);
    float squares = sum_of(cols, [=](int64_t i, auto lanes) {
      Vec value = load(in + i, lanes);
      return value * value;
    });
    float factor = 1.0f / __builtin_sqrtf(squares / cols + epsilon);
    scale[row] = factor;
    for_lanes(cols, [=](int64_t i, auto lanes) {
      store(y, start + i, load(in + i, lanes) * factor * load(weight + i, lanes), lanes);
    });
  });
}

template <typename T>
void layer_forward(T* to, T* total, const T* x, const T* residual, const T* weight, const T* bias, float* mean,
                   float* scale, int64_t rows, int64_t cols, float epsilon) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    const int64_t start = row * cols;
    const T* in = add_row(x + start, at(residual, start), at(total, start), cols);
    float center = sum_of(cols, [=](int64_t i, auto lanes) { return load(in + i, lanes); }) / cols;
    float squares = sum_of(cols, [=](int64_t i, auto lanes) {
      Vec value = fill(load(in + i, lanes), center, lanes) - center;
      return value * value;
    });
    float factor = 1.0f / __builtin_sqrtf(squares / cols + epsilon);
    mean[row] = center;
    scale[row] = factor;
    for_lanes(cols, [=](int64_t i, auto lanes) {
      Vec normed = (load(in + i, lanes) - center) * factor;
      store(y, start + i, normed * load(weight + i, lanes) + load(bias + i, lanes), lanes);
    });
  });
}

// Gradient of rows, with n = (x - mean) * scale the normalised row and g = dy * weight:
//   dx = scale * (g - [mean(g)] - n * mean(g * n)) + dtotal     (mean(g) for LayerNorm only)
// and for the parameters dweight = sum over rows of dy * n, dbias = sum over rows of dy.
template <bool kCentered, typename T>
void backward(T* to, float* dweight, float* dbias, float* partial, const T* dy, const T* dtotal, const T* x,
              const T* weight, const float* mean, const float* scale, int64_t rows, int64_t cols, int64_t blocks) {
  const Output<T> dx(to, rows, cols);
  float* partial_bias = partial + blocks * cols;
  for_row_blocks(rows, cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    float* block_weight = block_sums(partial, block, cols);
    float* block_bias = kCentered ? block_sums(partial_bias, block, cols) : nullptr;
    for (int64_t row = begin; row < end; ++row) {
      const T* in = x + row * cols;
      const T* grad = dy + row * cols;
      const T* extra = at(dtotal, row * cols);
      const float factor = scale[row], center = kCentered ? mean[row] : 0.0f;
      Vec along{}, level{};
      for_lanes(cols, [&](int64_t i, auto lanes) {
        Vec g = load(grad + i, lanes), normed = (load(in + i, lanes) - center) * factor;
        add_to(block_weight, i, g * normed, lanes);
        if (kCentered) add_to(block_bias, i, g, lanes);
        g *= load(weight + i, lanes);
        along += g * normed;
        if (kCentered) level += g;
      });
      const float mean_along = sum(along) / cols, mean_level = kCentered ? sum(level) / cols : 0.0f;
      for_lanes(cols, [=](int64_t i, auto lanes) {
        Vec g = load(grad + i, lanes) * load(weight + i, lanes), normed = (load(in + i, lanes) - center) * factor;
        Vec result = factor * (g - mean_level - normed * mean_along);
        if (extra != nullptr) result += load(extra + i, lanes);
        store(dx, row * cols + i, result, lanes);
      });
    }
  });
  sum_blocks(dweight, partial, blocks, cols);
  if (kCentered) sum_blocks(dbias, partial_bias, blocks, cols);
}

}  // namespace

void rms_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, float* scale,
                      int64_t rows, int64_t cols, double epsilon, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    rms_forward((T*)y, (T*)total, (const T*)x, (const T*)residual, (const T*)weight, scale, rows, cols, (float)epsilon);
  });
}

void rms_norm_backward(void* dx, float* dweight, float* partial, const void* dy, const void* dtotal, const void* x,
                       const void* weight, const float* scale, int64_t rows, int64_t cols, int64_t blocks, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward<false>((T*)dx, dweight, nullptr, partial, (const T*)dy, (const T*)dtotal, (const T*)x, (const T*)weight,
                    nullptr, scale, rows, cols, blocks);
  });
}

void layer_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight,
                        const void* bias, float* mean, float* scale, int64_t rows, int64_t cols, double epsilon,
                        int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    layer_forward((T*)y, (T*)total, (const T*)x, (const T*)residual, (const T*)weight, (const T*)bias, mean, scale,
                  rows, cols, (float)epsilon);
  });
}

void layer_norm_backward(void* dx, float* dweight, float* dbias, float* partial, const void* dy, const void* dtotal,
                         const void* x, const void* weight, const float* mean, const float* scale, int64_t rows,
                         int64_t cols, int64_t blocks, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward<true>((T*)dx, dweight, dbias, partial, (const T*)dy, (const T*)dtotal, (const T*)x, (const T*)weight,
                   mean, scale, rows, cols, blocks);
  });
}

}  // namespace megalite::MEGALITE_ISA
