// Normal numbers as megalite/ops/box_muller.py defines them: from correctly rounded operations alone, in its order
// (this file is compiled without fused multiply-adds), so that a GPU makes the same bits as a CPU.
#include "cuda/flat.h"
#include "cuda/kernels.h"
#include "cuda/philox.h"

namespace megalite::cuda {
namespace {

template <int kTerms>
__device__ double polynomial(const double (&terms)[kTerms], double x) {
  double sum = terms[kTerms - 1];
#pragma unroll
  for (int i = kTerms - 2; i >= 0; --i) sum = sum * x + terms[i];
  return sum;
}

// sqrt(-2 ln(u / 2^32)) for u = word + 1: u = m 2^e with m in [0.75, 1.5), ln(m) = 2 atanh((m - 1) / (m + 1)).
__device__ double radius(uint32_t word) {
  constexpr double kAtanh[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                               2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
  int exponent;
  double m = 2.0 * frexp(static_cast<double>(word) + 1.0, &exponent);
  exponent -= 1;
  if (m >= 1.5) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double log = (exponent - 32.0) * 0.6931471805599453 + s * polynomial(kAtanh, s * s);
  return sqrt(log * -2.0);
}

struct Turn {
  double cos, sin;
};

// Cosine and sine of 2 pi u / 2^32 for u = word + 1: quarter turns, and a rest within an eighth of a turn.
__device__ Turn turn(uint32_t word) {
  constexpr double kSin[] = {1.0,        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,         1.0 / 362880,
                             -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCos[] = {1.0,       -1.0 / 2,      1.0 / 24,        -1.0 / 720,         1.0 / 40320,
                             -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
  const int64_t u = static_cast<int64_t>(word) + 1, quarter = (u + (1 << 29)) >> 30;
  const double x = static_cast<double>(u - (quarter << 30)) * (6.283185307179586 * 0x1p-32), square = x * x;
  const double cos = polynomial(kCos, square), sin = polynomial(kSin, square) * x;
  const double c = quarter & 1 ? sin : cos, s = quarter & 1 ? cos : sin;
  return {(quarter + 1) & 2 ? -c : c, quarter & 2 ? -s : s};
}

template <typename T>
__global__ void __launch_bounds__(kBlock) fill(T* out, const int64_t* starts, int64_t runs, int64_t length, double std,
                                               Key key) {
  const int64_t blocks = (length + 6) / 4;  // of four numbers, that a run can touch
  for_elements<1>(runs * blocks, false, [&](int64_t index, auto) {
    const int64_t run = index / blocks, start = starts[run], block = start / 4 + index % blocks;
    const Words words = philox(block, key);
    for (int pair = 0; pair < 2; ++pair) {
      const double r = radius(words.word[2 * pair]);
      const Turn t = turn(words.word[2 * pair + 1]);
      for (int half = 0; half < 2; ++half) {
        const int64_t at = 4 * block + 2 * pair + half - start;
        const float value = static_cast<float>(r * (half == 0 ? t.cos : t.sin) * std);
        if (at >= 0 && at < length) narrow(value, out[run * length + at]);
      }
    }
  });
}

}  // namespace

void normal_fill(void* out, const int64_t* starts, int64_t runs, int64_t length, double std, int64_t key0, int64_t key1,
                 int dtype, Stream stream) {
  const Key key{(uint32_t)key0, (uint32_t)key1};
  if (length == 0) return;
  with_dtype(dtype, [&](auto element) {
    using T = decltype(element);
    launch(over_elements(runs * ((length + 6) / 4), 1, stream), fill<T>, out, starts, runs, length, std, key);
  });
}

}  // namespace megalite::cuda
