// Functions of vectors: exp and what follows from it. Errors are within two units in the last place (four for sigmoid),
// but where they may be rough.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

// Whether what becomes an element of type T may be rough: with an error below 2^-13, which adds less than a tenth to
// that of rounding to bfloat16.
template <typename T>
constexpr bool kRough = false;
template <>
constexpr bool kRough<Bfloat16> = true;

// For -87 <= x <= 88, where results are normal numbers.
#if defined(__AVX512F__)
// exp(x) = 2^n exp(r) with n a multiple of 1/32: so r is small, and a table gives the powers of the fractions. An
// addition rounds to n and leaves it, in units of 1/32, in the low bits. Shifted by 18, its whole part comes to the
// exponent; its fraction comes below, and the table has subtracted that.
template <typename T = float>
inline Vec exp_in_range(Vec x) {
  const UintVec powers[2] = {
      {0x3F800000, 0x3F7ECD87, 0x3F7DAAC3, 0x3F7C980F, 0x3F7B95C2, 0x3F7AA43A, 0x3F79C3D3, 0x3F78F4F0,
       0x3F7837F0, 0x3F778D3A, 0x3F76F532, 0x3F767043, 0x3F75FED7, 0x3F75A15B, 0x3F75583F, 0x3F7523F6},
      {0x3F7504F3, 0x3F74FBAF, 0x3F7508A4, 0x3F752C4D, 0x3F75672A, 0x3F75B9BE, 0x3F76248C, 0x3F76A81E,
       0x3F7744FD, 0x3F77FBB8, 0x3F78CCDF, 0x3F79B907, 0x3F7AC0C7, 0x3F7BE4BA, 0x3F7D257D, 0x3F7E83B3}};
  const float shift = 0x1.8p18f;
  const Vec shifted = x * 1.44269504f + shift, n = shifted - shift;
  const UintVec bits = bit_cast<UintVec>(shifted);
  const UintVec fraction = bit_cast<UintVec>(_mm512_permutex2var_epi32(
      bit_cast<__m512i>(powers[0]), bit_cast<__m512i>(bits), bit_cast<__m512i>(powers[1])));
  const Vec power = bit_cast<Vec>(fraction + (bits << 18));
  if constexpr (kRough<T>) return power + power * (x - n * 0.693147181f);
  const Vec r = x - n * 0.693359375f - n * -2.12194440e-4f;
  return power + power * (r * (1.0000147f + 0.5f * r));  // the minimax parabola: within 2^-24
}
#else
// Cody and Waite's range reduction and the minimax polynomial of the Cephes library.
template <typename T = float>
inline Vec exp_in_range(Vec x) {
  const float shift = 0x1.8p23f;  // adding it rounds to a whole number, and leaves that in the low bits
  const Vec shifted = x * 1.44269504f + shift, n = shifted - shift;
  Vec r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return bit_cast<Vec>(bit_cast<UintVec>(p * (r * r) + (r + 1.0f)) + (bit_cast<UintVec>(shifted) << 23));
}
#endif

// exp(min(x, 88)); 0 where it would be subnormal. NaN stays NaN.
template <typename T = float>
inline Vec exp(Vec x) {
  return select(x < -87.0f, Vec{}, exp_in_range<T>(min(splat(88.0f), max(splat(-87.0f), x))));
}

// 1 / x for x in [1, 2^126]
#if defined(__AVX512F__)
template <typename T = float>
inline Vec reciprocal(Vec x) {
  const Vec y = bit_cast<Vec>(_mm512_rcp14_ps(bit_cast<__m512>(x)));
  if constexpr (kRough<T>) return y;
  return y + y * (1.0f - x * y);
}
#else
template <typename T = float>
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

// 1 / (1 + exp(-x)), and one minus it without cancellation; 0 where the value would be subnormal, anything for NaN.
struct Sigmoid {
  Vec value, rest;
};
template <typename T>
inline Sigmoid sigmoid(Vec x) {
  Vec e = exp_in_range<T>(-clamp(x, 87.0f));
  Vec value = select(x < -87.0f, Vec{}, reciprocal<T>(1.0f + e));
  return {value, e * value};
}

}  // namespace megalite::MEGALITE_ISA
