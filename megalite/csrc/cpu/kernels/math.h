// Functions of vectors: exp and what follows from it. Errors are within two units in the last place (four for sigmoid),
// but where they may be rough.
#pragma once

#include "cpu/kernels/several.h"

namespace megalite::MEGALITE_ISA {

// Whether what becomes an element of type T may be rough: with an error of some 2^-13, which adds less than a tenth to
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

// How many vectors at once exponentials take: several where they are rough, and made of instructions that wait long.
#if defined(__AVX512F__)
template <typename T>
constexpr int kAtOnce = kRough<T> ? 4 : 1;

// 2^x within 2^-13; zero or infinite where it is out of range. NaN stays NaN.
template <typename V>
inline V rough_exp2(V x) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const V r = map([](Vec x) { return bit_cast<Vec>(_mm512_reduce_ps(bit_cast<__m512>(x), kDown)); }, x);
  const V p = 0.99992523f + r * (0.69583349f + r * (0.22606720f + 0.07802454f * r));  // the minimax cubic
  const auto scale = [](Vec p, Vec x) {
    return bit_cast<Vec>(_mm512_scalef_ps(bit_cast<__m512>(p), bit_cast<__m512>(x)));
  };
  return map(scale, p, x);
}
#else
template <typename T>
constexpr int kAtOnce = 1;
#endif

// exp(scale * (x - top)) for x <= top.
template <typename T, typename V>
inline V exp_below(V x, float top, float scale) {
  if constexpr (kAtOnce<T> > 1) return rough_exp2(scale * 1.44269504f * (-top + x));
  else return exp<T>((x - top) * scale);
}

// 1 / (1 + exp(-x)), and one minus it without cancellation; 0 where the value would be subnormal, anything for NaN. It
// takes the exponent, which is x * kExponent<T>: of 2 where there are several at once, else of e.
template <typename V>
struct Sigmoid {
  V value, rest;
};
template <typename T>
constexpr float kExponent = kAtOnce<T> > 1 ? -1.44269504f : -1.0f;
template <typename T, typename V>
inline Sigmoid<V> sigmoid(V exponent) {
  if constexpr (kAtOnce<T> > 1) {
    const V e = rough_exp2(exponent), value = map([](Vec x) { return reciprocal<T>(x); }, 1.0f + e);
    return {value, map([](Vec x) { return min(splat(0x1p126f), x); }, e) * value};  // no infinity times zero
  } else {
    const V e = exp_in_range<T>(clamp(exponent, 87.0f));
    const V value = select(exponent > 87.0f, V{}, reciprocal<T>(1.0f + e));
    return {value, e * value};
  }
}

}  // namespace megalite::MEGALITE_ISA
