// Several vectors at once. Operations of one wait for each other, and those of the others fill the time: in a long
// computation the processor does not look far enough ahead to do that by itself.
#pragma once

#include "cpu/kernels/output.h"
#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

template <int n>
struct Several {};  // n * kLanes lanes, beside Whole and Part

template <int n>
struct Vecs {
  Vec at[n];
};

template <typename Function>
inline Vec map(Function function, Vec x) { return function(x); }
template <typename Function>
inline Vec map(Function function, Vec x, Vec y) { return function(x, y); }
template <int n, typename Function, typename... Rest>
inline Vecs<n> map(Function function, const Vecs<n>& x, const Rest&... rest) {
  Vecs<n> result;
#pragma GCC unroll 8
  for (int k = 0; k < n; ++k) result.at[k] = function(x.at[k], rest.at[k]...);
  return result;
}

#define MEGALITE_ARITHMETIC(op)                                                                    \
  template <int n>                                                                                 \
  inline Vecs<n> operator op(const Vecs<n>& a, const Vecs<n>& b) {                                 \
    return map([](Vec x, Vec y) { return x op y; }, a, b);                                         \
  }                                                                                                \
  template <int n>                                                                                 \
  inline Vecs<n> operator op(float a, const Vecs<n>& b) {                                          \
    return map([=](Vec x) { return a op x; }, b);                                                  \
  }
MEGALITE_ARITHMETIC(+)
MEGALITE_ARITHMETIC(*)
#undef MEGALITE_ARITHMETIC

// All vectors made one by function(vector, vector).
template <typename Function>
inline Vec fold(Function, Vec x) { return x; }
template <int n, typename Function>
inline Vec fold(Function function, const Vecs<n>& x) {
  Vec result = x.at[0];
#pragma GCC unroll 8
  for (int k = 1; k < n; ++k) result = function(result, x.at[k]);
  return result;
}

template <int n>
inline Vecs<n> fill(const Vecs<n>& x, float, Several<n>) { return x; }

template <int n, typename T>
inline Vecs<n> load(const T* from, Several<n>) {
  Vecs<n> x;
#pragma GCC unroll 8
  for (int k = 0; k < n; ++k) x.at[k] = load(from + k * kLanes);
  return x;
}
template <int n, typename T>
inline Vecs<n> load_ahead(const T* from, Several<n>) {
  Vecs<n> x;
#pragma GCC unroll 8
  for (int k = 0; k < n; ++k) x.at[k] = load_ahead(from + k * kLanes, Whole{});
  return x;
}

template <int n, typename T>
inline void store(T* to, const Vecs<n>& x, Several<n>) {
#pragma GCC unroll 8
  for (int k = 0; k < n; ++k) store(to + k * kLanes, x.at[k]);
}
template <int n, typename T>
inline void store(const Output<T>& output, int64_t i, const Vecs<n>& x, Several<n>) {
#pragma GCC unroll 8
  for (int k = 0; k < n; ++k) store(output, i + k * kLanes, x.at[k], Whole{});
}

#if defined(__AVX512BF16__)  // one conversion for two vectors
template <int n>
inline void store(const Output<Bfloat16>& output, int64_t i, const Vecs<n>& x, Several<n>) {
  static_assert(n % 2 == 0, "vectors are stored in pairs");
#pragma GCC unroll 8
  for (int k = 0; k < n; k += 2) {
    const __m512i pair = bit_cast<__m512i>(
        _mm512_cvtne2ps_pbh(bit_cast<__m512>(x.at[k + 1]), bit_cast<__m512>(x.at[k])));
    Bfloat16* to = output.to + i + k * kLanes;
    if (output.streamed) _mm512_stream_si512(reinterpret_cast<__m512i*>(to), pair);
    else memcpy(to, &pair, sizeof pair);
  }
}
#endif

// body(position, lanes) for n elements: by `at_once` vectors, by one, and the last ones as a part.
template <int at_once, typename Body>
__attribute__((flatten)) inline void for_several_lanes(int64_t n, Body body) {
  constexpr int64_t kStep = at_once * kLanes;
  int64_t i = 0;
  if constexpr (at_once > 1) {
    for (; i + kStep <= n; i += kStep) body(i, Several<at_once>{});
  }
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

}  // namespace megalite::MEGALITE_ISA
