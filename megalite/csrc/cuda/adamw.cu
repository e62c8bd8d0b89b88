// One AdamW update of a flat tensor in one pass over memory: gradient factor, decay, moments, parameter, and the
// parameter's copy in a 16-bit type.
#include "cuda/flat.h"
#include "cuda/kernels.h"

namespace megalite::cuda {
namespace {

struct Numbers {
  float grad_factor, param_factor, rest1, beta2, rest2, epsilon, root_factor, rate;
};

template <typename T>
__global__ void __launch_bounds__(kBlock) update(float* param, T* copy, const float* grad, float* mean,
                                                 float* mean_square, int64_t size, bool packed, Numbers by) {
  for_elements<4>(size, packed, [&](int64_t i, auto width) {
    constexpr int n = decltype(width)::value;
    const auto g = load<n>(grad + i) * by.grad_factor;
    auto m = load<n>(mean + i), v = load<n>(mean_square + i);
    m = m + (g - m) * by.rest1;
    v = v * by.beta2 + g * g * by.rest2;
    const auto change = map([&](float m, float v) { return m / (sqrtf(v) * by.root_factor + by.epsilon); }, m, v);
    const auto p = load<n>(param + i) * by.param_factor - change * by.rate;
    store(mean + i, m);
    store(mean_square + i, v);
    store(param + i, p);
    if (copy != nullptr) store(copy + i, p);
  });
}

}  // namespace

void adamw(float* param, void* copy, const float* grad, float* mean, float* mean_square, int64_t size,
           double grad_factor, double param_factor, double beta1, double beta2, double epsilon, double root_factor,
           double rate, int dtype, Stream stream) {
  const Numbers by{(float)grad_factor, (float)param_factor, (float)(1.0 - beta1),  (float)beta2,
                   (float)(1.0 - beta2), (float)epsilon,    (float)root_factor, (float)rate};
  const bool packed = aligned(param, copy, grad, mean, mean_square);
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    launch(over_elements(size, 4, stream), update<T>, param, copy, grad, mean, mean_square, size, packed, by);
  });
}

}  // namespace megalite::cuda
