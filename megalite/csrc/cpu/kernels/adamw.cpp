// One AdamW update of a flat tensor in one pass over memory: gradient factor, decay, moments, parameter, and the
// parameter's copy in a 16-bit type.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {

void adamw(float* param, void* copy, const float* grad, float* mean, float* mean_square, int64_t size,
           double grad_factor, double param_factor, double beta1, double beta2, double epsilon, double root_factor,
           double rate, int dtype) {
  const float factor = grad_factor, keep = param_factor, eps = epsilon, root = root_factor, step = rate;
  const float rest1 = 1.0 - beta1, keep2 = beta2, rest2 = 1.0 - beta2;
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    for_ranges(size, kLanes, [=](int64_t begin, int64_t end) {
      for_lanes(end - begin, [=](int64_t offset, auto lanes) {
        const int64_t i = begin + offset;
        const Vec g = load(grad + i, lanes) * factor;
        Vec m = load(mean + i, lanes), v = load(mean_square + i, lanes);
        m = m + rest1 * (g - m);
        v = v * keep2 + rest2 * (g * g);
        const Vec p = load(param + i, lanes) * keep - step * (m / (sqrt(v) * root + eps));
        store(mean + i, m, lanes);
        store(mean_square + i, v, lanes);
        store(param + i, p, lanes);
        if (copy != nullptr) store((T*)copy + i, p, lanes);
      });
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
