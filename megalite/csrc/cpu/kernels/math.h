// Functions of vectors: exp and what follows from it. Errors are within two units in the last place.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

// 2^n for integers -150 <= n <= 128 times x, through subnormals: in two steps, as 2^n alone may not be a float.
inline Vec scale_by_power(Vec x, IntVec n) {
  IntVec half = n >> 1;
  Vec first = bit_cast<Vec>((half + 127) << 23);
  Vec second = bit_cast<Vec>((n - half + 127) << 23);
  return x * first * second;
}

// Cody and Waite's range reduction and the minimax polynomial of the Cephes library. NaN stays NaN, exp(-inf) is 0.
inline Vec exp(Vec x) {
  x = select(x < -104.0f, splat(-104.0f), x);
  x = select(x > 89.0f, splat(89.0f), x);
  const float shift = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low bits
  Vec shifted = x * 1.44269504f + shift;
  IntVec n = bit_cast<IntVec>(shifted) - bit_cast<IntVec>(splat(shift));
  Vec whole = shifted - shift;
  Vec r = x - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return scale_by_power(p * (r * r) + r + 1.0f, n);
}

inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp(-x)); }

// Newton's step on sqrt's operand order does not matter here: lanes are independent square roots.
inline Vec sqrt(Vec x) {
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
}

}  // namespace megalite::MEGALITE_ISA
