// Elements of all types as floats, one or several at a time, as many as 16 bytes hold: the widest load there is.
#pragma once

#include <type_traits>

#include "cuda/platform.h"
#include "dtype.h"

namespace megalite::cuda {

// Elements of T in 16 bytes.
template <typename T>
constexpr int kPack = 16 / sizeof(T);

// A number of elements that a function's body gets as a type, so that its loops unroll.
template <int n>
using Width = std::integral_constant<int, n>;

// ---- one element

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(uint8_t x) { return x; }
__device__ inline float widen(Bfloat16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
__device__ inline float widen(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }

__device__ inline void narrow(float x, float& to) { to = x; }
__device__ inline void narrow(float x, Bfloat16& to) { to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__device__ inline void narrow(float x, Float16& to) { to.bits = __half_as_ushort(__float2half_rn(x)); }

// ---- several

template <int n>
struct Floats {
  float at[n];

  static __device__ Floats filled(float value) {
    Floats x;
#pragma unroll
    for (int i = 0; i < n; ++i) x.at[i] = value;
    return x;
  }

  __device__ float& operator[](int i) { return at[i]; }
  __device__ float operator[](int i) const { return at[i]; }
};

template <int n, typename Function, typename... Rest>
__device__ Floats<n> map(Function function, const Floats<n>& x, const Rest&... rest) {
  Floats<n> result;
#pragma unroll
  for (int i = 0; i < n; ++i) result[i] = function(x[i], rest[i]...);
  return result;
}

#define MEGALITE_ARITHMETIC(op)                                                                  \
  template <int n>                                                                               \
  __device__ Floats<n> operator op(const Floats<n>& a, const Floats<n>& b) {                     \
    return map([](float x, float y) { return x op y; }, a, b);                                   \
  }                                                                                              \
  template <int n>                                                                               \
  __device__ Floats<n> operator op(const Floats<n>& a, float b) {                                \
    return map([=](float x) { return x op b; }, a);                                              \
  }
MEGALITE_ARITHMETIC(+)
MEGALITE_ARITHMETIC(-)
MEGALITE_ARITHMETIC(*)
#undef MEGALITE_ARITHMETIC

template <int n>
__device__ float sum(const Floats<n>& x) {
  float total = x[0];
#pragma unroll
  for (int i = 1; i < n; ++i) total += x[i];
  return total;
}

template <int n>
__device__ float largest(const Floats<n>& x) {
  float top = x[0];
#pragma unroll
  for (int i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

template <typename T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};

// `from` and `to` must be aligned to the pack, or to 16 bytes if that is less.
template <int n, typename T>
__device__ Floats<n> load(const T* from) {
  const Pack<T, n> pack = *vector_at<const Pack<T, n>>(from);
  Floats<n> x;
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = widen(pack.at[i]);
  return x;
}

template <int n, typename T>
__device__ void store(T* to, const Floats<n>& x) {
  Pack<T, n> pack;
#pragma unroll
  for (int i = 0; i < n; ++i) narrow(x[i], pack.at[i]);
  *vector_at<Pack<T, n>>(to) = pack;
}

// What an optional tensor holds, zeros for none.
template <int n, typename T>
__device__ Floats<n> load_or_zero(const T* base, int64_t offset) {
  return base == nullptr ? Floats<n>::filled(0.0f) : load<n>(base + offset);
}

// Whether all pointers (null ones too) may be read in packs.
template <typename... P>
bool aligned(P... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

}  // namespace megalite::cuda
