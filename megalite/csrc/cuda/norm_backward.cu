// Gradients of LayerNorm and RMSNorm. With n = (x - mean) * scale the normalised row and g = dy * weight:
//   dx = scale * (g - [mean(g)] - n * mean(g * n)) + dtotal     (mean(g) for LayerNorm only)
// and for the parameters dweight = sum over rows of dy * n, dbias = sum over rows of dy.
#include "cuda/column_sums.h"
#include "cuda/kernels.h"

namespace megalite::cuda {
namespace {

template <typename T>
struct NormBackward {
  T* dx;
  float* partial;
  const T *dy, *dtotal, *x, *weight;
  const float *mean, *scale;
};

template <bool kCentered, typename T, int kSize>
__global__ void __launch_bounds__(kBlock) norm_backward(NormBackward<T> p, Rows shape, RowRanges ranges) {
  const Team<kSize> team;
  ColumnSums sums(team, ranges, p.partial);  // of weights, then of biases
  for_range(team, ranges, [&](int64_t row) {
    const int64_t start = row * shape.cols;
    const float factor = p.scale[row], center = kCentered ? p.mean[row] : 0.0f;
    const auto columns = [&](auto body) { for_columns<T>(team, shape.cols, shape.aligned, body); };

    float along = 0.0f, level = 0.0f;
    columns([&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      auto grad = load<n>(p.dy + start + i);
      const auto normed = (load<n>(p.x + start + i) - center) * factor;
      sums.add(i, grad * normed);
      if constexpr (kCentered) sums.add(shape.cols + i, grad);
      grad = grad * load<n>(p.weight + i);
      along += sum(grad * normed);
      if constexpr (kCentered) level += sum(grad);
    });
    along = team.sum(along) / shape.cols;
    if constexpr (kCentered) level = team.sum(level) / shape.cols;
    columns([&](int64_t i, auto width) {
      constexpr int n = decltype(width)::value;
      const auto grad = load<n>(p.dy + start + i) * load<n>(p.weight + i);
      const auto normed = (load<n>(p.x + start + i) - center) * factor;
      store(p.dx + start + i, (grad - level - normed * along) * factor + load_or_zero<n>(p.dtotal, start + i));
    });
  });
  sums.finish();
}

template <bool kCentered, typename T>
void run(const NormBackward<T>& p, int64_t rows, int64_t cols, int64_t blocks, float* dweight, float* dbias,
         Stream stream) {
  const bool packed = cols % kPack<T> == 0 && aligned(p.dx, p.partial, p.dy, p.dtotal, p.x, p.weight);
  const Rows shape{rows, cols, packed};
  const int64_t num_sums = kCentered ? 2 * cols : cols;
  with_team(cols, [&](auto team) {
    constexpr int size = decltype(team)::value;
    const RowRanges ranges = share_rows(rows, num_sums, blocks, size, stream);
    launch(ranges.launch, norm_backward<kCentered, T, size>, p, shape, ranges);
    sum_partial(dweight, p.partial, ranges.teams, num_sums, cols, stream);
    if (kCentered) sum_partial(dbias, p.partial + cols, ranges.teams, num_sums, cols, stream);
  });
}

}  // namespace

void rms_norm_backward(void* dx, float* dweight, float* partial, const void* dy, const void* dtotal, const void* x,
                       const void* weight, const float* scale, int64_t rows, int64_t cols, int64_t blocks, int dtype,
                       Stream stream) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    const NormBackward<T> p{(T*)dx,      partial,          (const T*)dy, (const T*)dtotal,
                            (const T*)x, (const T*)weight, nullptr,      scale};
    run<false>(p, rows, cols, blocks, dweight, nullptr, stream);
  });
}

void layer_norm_backward(void* dx, float* dweight, float* dbias, float* partial, const void* dy, const void* dtotal,
                         const void* x, const void* weight, const float* mean, const float* scale, int64_t rows,
                         int64_t cols, int64_t blocks, int dtype, Stream stream) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    const NormBackward<T> p{(T*)dx,      partial,          (const T*)dy, (const T*)dtotal,
                            (const T*)x, (const T*)weight, mean,         scale};
    run<true>(p, rows, cols, blocks, dweight, dbias, stream);
  });
}

}  // namespace megalite::cuda
