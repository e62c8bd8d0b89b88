// Functions of vectors: exp and what follows from it. Errors are within two units in the last place.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

// x * 2^n for whole n, -150 <= n <= 128; through subnormals, and to infinity.
#if defined(__AVX512F__)
inline Vec scale_by_power(Vec x, Vec n) {
  return bit_cast<Vec>(_mm512_scalef_ps(bit_cast<__m512>(x), bit_cast<__m512>(n)));
}
#else
// In two steps, as 2^n alone may not be a normal float.
inline Vec scale_by_power(Vec x, Vec n) {
  IntVec power = __builtin_convertvector(n, IntVec);
  IntVec half = power >> 1;
  return x * bit_cast<Vec>((half + 127) << 23) * bit_cast<Vec>((power - half + 127) << 23);
}
#endif

// For -104 <= x <= 89. Cody and Waite's range reduction and the minimax polynomial of the Cephes library.
inline Vec exp_in_range(Vec x) {
  const float shift = 0x1.8p23f;  // adding it rounds to a whole number
  Vec n = x * 1.44269504f + shift - shift;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return scale_by_power(p * (r * r) + (r + 1.0f), n);
}

// NaN stays NaN; exp(-inf) is 0.
inline Vec exp(Vec x) { return exp_in_range(min(splat(89.0f), max(splat(-104.0f), x))); }

// 1 / x for x in [1, 2^126]
#if defined(__AVX512F__)
inline Vec reciprocal(Vec x) {
  Vec y = bit_cast<Vec>(_mm512_rcp14_ps(bit_cast<__m512>(x)));
  return y + y * (1.0f - x * y);
}
#else
inline Vec reciprocal(Vec x) { return 1.0f / x; }
#endif

#if defined(__AVX512F__)
inline Vec sqrt(Vec x) { return bit_cast<Vec>(_mm512_sqrt_ps(bit_cast<__m512>(x))); }
#elif defined(__AVX2__)
inline Vec sqrt(Vec x) { return bit_cast<Vec>(_mm256_sqrt_ps(bit_cast<__m256>(x))); }
#else
inline Vec sqrt(Vec x) {
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
}
#endif

// 1 / (1 + exp(-x)), and one minus it without cancellation. NaN stays NaN; 0 where the value would be subnormal.
struct Sigmoid {
  Vec value, rest;
};
inline Sigmoid sigmoid(Vec x) {
  Vec e = exp_in_range(max(splat(-87.0f), min(splat(87.0f), -x)));
  Vec value = select(x < -87.0f, Vec{}, reciprocal(1.0f + e));
  return {value, e * value};
}

}  // namespace megalite::MEGALITE_ISA
