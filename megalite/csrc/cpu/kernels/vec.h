// Vectors of kLanes floats, and loads and stores that convert. One set of sources is compiled once per instruction set,
// each in a namespace of its own (MEGALITE_ISA, set by CMake): nothing here may be shared with code compiled for
// another one, which is why the kernels use no inline functions of the standard library.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "dtype.h"

namespace megalite::MEGALITE_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UintVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t HalfVec __attribute__((vector_size(2 * kLanes)));

template <typename To, typename From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes must match");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline Vec splat(float value) { return value - Vec{}; }

inline Vec select(IntVec condition, Vec yes, Vec no) { return condition ? yes : no; }

// The larger (smaller) one; b if either is NaN, as the instructions do.
#if defined(__AVX512F__)
inline Vec max(Vec a, Vec b) { return bit_cast<Vec>(_mm512_max_ps(bit_cast<__m512>(a), bit_cast<__m512>(b))); }
inline Vec min(Vec a, Vec b) { return bit_cast<Vec>(_mm512_min_ps(bit_cast<__m512>(a), bit_cast<__m512>(b))); }
#elif defined(__AVX2__)
inline Vec max(Vec a, Vec b) { return bit_cast<Vec>(_mm256_max_ps(bit_cast<__m256>(a), bit_cast<__m256>(b))); }
inline Vec min(Vec a, Vec b) { return bit_cast<Vec>(_mm256_min_ps(bit_cast<__m256>(a), bit_cast<__m256>(b))); }
#else
inline Vec max(Vec a, Vec b) { return select(a > b, a, b); }
inline Vec min(Vec a, Vec b) { return select(a < b, a, b); }
#endif

// x, or the nearer of -limit and limit where it is beyond them; NaN becomes one of these or stays.
#if defined(__AVX512F__)
inline Vec clamp(Vec x, float limit) {
  return bit_cast<Vec>(_mm512_range_ps(bit_cast<__m512>(x), bit_cast<__m512>(splat(limit)), 2));
}
#else
inline Vec clamp(Vec x, float limit) { return max(splat(-limit), min(splat(limit), x)); }
#endif

// ---- conversions of integer widths; by name, as GCC 12 makes three instructions of one

typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));

#if defined(__AVX512F__)
inline UintVec widen(HalfVec x) { return bit_cast<UintVec>(_mm512_cvtepu16_epi32(bit_cast<__m256i>(x))); }
inline UintVec widen(ByteVec x) { return bit_cast<UintVec>(_mm512_cvtepu8_epi32(bit_cast<__m128i>(x))); }
inline HalfVec narrow(UintVec x) { return bit_cast<HalfVec>(_mm512_cvtepi32_epi16(bit_cast<__m512i>(x))); }
#elif defined(__AVX2__)
inline UintVec widen(HalfVec x) { return bit_cast<UintVec>(_mm256_cvtepu16_epi32(bit_cast<__m128i>(x))); }
inline UintVec widen(ByteVec x) {
  return bit_cast<UintVec>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bit_cast<int64_t>(x))));
}
inline HalfVec narrow(UintVec x) { return __builtin_convertvector(x, HalfVec); }
#else
inline UintVec widen(HalfVec x) { return __builtin_convertvector(x, UintVec); }
inline UintVec widen(ByteVec x) { return __builtin_convertvector(x, UintVec); }
inline HalfVec narrow(UintVec x) { return __builtin_convertvector(x, HalfVec); }
#endif

// ---- bfloat16

#if defined(__AVX512F__)
// One permutation does the work of a conversion and a shift.
inline Vec widen(HalfVec bits, Bfloat16) {
  typedef uint16_t Indices __attribute__((vector_size(4 * kLanes)));
  Indices source{};
  for (int lane = 0; lane < kLanes; ++lane) source[2 * lane + 1] = lane;
  return bit_cast<Vec>(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, bit_cast<__m512i>(source),
                                                      _mm512_castsi256_si512(bit_cast<__m256i>(bits))));
}
#else
inline Vec widen(HalfVec bits, Bfloat16) { return bit_cast<Vec>(widen(bits) << 16); }
#endif

#if defined(__AVX512BF16__)  // makes subnormal numbers zero
inline HalfVec narrow(Vec x, Bfloat16) { return bit_cast<HalfVec>(_mm512_cvtneps_pbh(bit_cast<__m512>(x))); }
#else
inline HalfVec narrow(Vec x, Bfloat16) {
  UintVec bits = bit_cast<UintVec>(x);
  UintVec rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  UintVec nan = bit_cast<UintVec>(IntVec(x != x));
  return narrow((rounded & ~nan) | (nan & 0x7FC0));
}
#endif

// ---- float16

#if defined(__AVX512F__)
inline Vec widen(HalfVec bits, Float16) { return bit_cast<Vec>(_mm512_cvtph_ps(bit_cast<__m256i>(bits))); }
inline HalfVec narrow(Vec x, Float16) {
  return bit_cast<HalfVec>(_mm512_cvtps_ph(bit_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
inline Vec widen(HalfVec bits, Float16) { return bit_cast<Vec>(_mm256_cvtph_ps(bit_cast<__m128i>(bits))); }
inline HalfVec narrow(Vec x, Float16) {
  return bit_cast<HalfVec>(_mm256_cvtps_ph(bit_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
// A half's exponent and mantissa, moved to a float's place, are 2^-112 times its value, subnormals included; only
// infinity and NaN (the largest exponent) need their exponent raised.
inline Vec widen(HalfVec bits, Float16) {
  UintVec wide = widen(bits);
  UintVec magnitude = (wide & 0x7FFF) << 13;
  Vec scaled = bit_cast<Vec>(magnitude) * 0x1p112f;
  Vec special = bit_cast<Vec>(magnitude | 0x7F800000u);
  Vec value = select((wide & 0x7FFF) >= 0x7C00u, special, scaled);
  return bit_cast<Vec>(bit_cast<UintVec>(value) | ((wide & 0x8000) << 16));
}
// Rounds to even: by an integer addition below the kept bits, and for subnormals by a float addition at whose result
// the float's own last bit is 2^-24, the subnormals' unit.
inline HalfVec narrow(Vec x, Float16) {
  UintVec bits = bit_cast<UintVec>(x);
  UintVec sign = (bits >> 16) & 0x8000;
  UintVec magnitude = bits & 0x7FFFFFFF;
  UintVec normal = (magnitude - 0x38000000u + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  UintVec subnormal = bit_cast<UintVec>(bit_cast<Vec>(magnitude) + 0.5f) - 0x3F000000u;
  UintVec is_small = bit_cast<UintVec>(IntVec(magnitude < 0x38800000u));
  UintVec is_large = bit_cast<UintVec>(IntVec(magnitude >= 0x47800000u));
  UintVec is_nan = bit_cast<UintVec>(IntVec(magnitude > 0x7F800000u));
  UintVec half = (is_small & subnormal) | (~is_small & normal);
  half = (is_large & 0x7C00) | (~is_large & half);
  half = (is_nan & 0x7E00) | (~is_nan & half);
  return narrow(half | sign);
}
#endif

// ---- loads and stores; with a count, of the first `count` < kLanes elements (the other lanes are zero)

inline Vec load(const float* from) {
  Vec x;
  memcpy(&x, from, sizeof x);
  return x;
}

template <typename T>
inline Vec load(const T* from) {
  HalfVec bits;
  memcpy(&bits, from, sizeof bits);
  return widen(bits, T{});
}

inline void store(float* to, Vec x) { memcpy(to, &x, sizeof x); }

template <typename T>
inline void store(T* to, Vec x) {
  HalfVec bits = narrow(x, T{});
  memcpy(to, &bits, sizeof bits);
}

// The first `count` lanes.
inline IntVec first_lanes(int count) {
  IntVec number{};
  for (int lane = 0; lane < kLanes; ++lane) number[lane] = lane;
  return number < count;
}

template <typename T>
inline Vec load(const T* from, int count) {
  T part[kLanes] = {};
  memcpy(part, from, count * sizeof(T));
  return load(part);
}

template <typename T>
inline void store(T* to, Vec x, int count) {
  T part[kLanes];
  store(part, x);
  memcpy(to, part, count * sizeof(T));
}

// Where there are masked accesses, those of a part are one instruction.
#if defined(__AVX512F__)
inline Vec load(const float* from, int count) {
  return bit_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from));
}
inline void store(float* to, Vec x, int count) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), bit_cast<__m512>(x));
}
inline HalfVec load_bits(const void* from, int count) {
  return bit_cast<HalfVec>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), from));
}
inline void store_bits(void* to, HalfVec x, int count) {
  _mm256_mask_storeu_epi16(to, static_cast<__mmask16>((1u << count) - 1), bit_cast<__m256i>(x));
}
inline Vec load(const Bfloat16* from, int count) { return widen(load_bits(from, count), Bfloat16{}); }
inline Vec load(const Float16* from, int count) { return widen(load_bits(from, count), Float16{}); }
inline void store(Bfloat16* to, Vec x, int count) { store_bits(to, narrow(x, Bfloat16{}), count); }
inline void store(Float16* to, Vec x, int count) { store_bits(to, narrow(x, Float16{}), count); }
#elif defined(__AVX2__)
inline Vec load(const float* from, int count) {
  return bit_cast<Vec>(_mm256_maskload_ps(from, bit_cast<__m256i>(first_lanes(count))));
}
inline void store(float* to, Vec x, int count) {
  _mm256_maskstore_ps(to, bit_cast<__m256i>(first_lanes(count)), bit_cast<__m256>(x));
}
#endif

// ---- loops over n elements, kLanes at a time, the last ones as a part

struct Whole {};  // kLanes lanes
struct Part {     // the first `count`
  int count;
};

template <typename T>
inline Vec load(const T* from, Whole) { return load(from); }
template <typename T>
inline Vec load(const T* from, Part part) { return load(from, part.count); }
// The same from a long stream of which the hardware, that stops at the end of a page, does not load enough in advance.
template <typename T, typename Lanes>
inline Vec load_ahead(const T* from, Lanes lanes) {
  __builtin_prefetch(reinterpret_cast<const char*>(from) + 1024);
  return load(from, lanes);
}

template <typename T>
inline void store(T* to, Vec x, Whole) { store(to, x); }
template <typename T>
inline void store(T* to, Vec x, Part part) { store(to, x, part.count); }

// Which of kLanes bytes are not zero.
inline IntVec is_set(const uint8_t* from, Whole) {
  ByteVec bytes;
  memcpy(&bytes, from, sizeof bytes);
  return widen(bytes) != 0;
}
inline IntVec is_set(const uint8_t* from, Part part) {
  uint8_t bytes[kLanes] = {};
  memcpy(bytes, from, part.count);
  return is_set(bytes, Whole{});
}

// x, and `fill` in the lanes beyond the part.
inline Vec fill(Vec x, float, Whole) { return x; }
inline Vec fill(Vec x, float value, Part part) { return select(first_lanes(part.count), x, splat(value)); }

// body(position, lanes), lanes being Whole or Part
template <typename Body>
inline void for_lanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

// ---- across lanes, in the order of a tree

inline float sum(Vec x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

inline float max(Vec x) {
  float lanes[kLanes];
  store(lanes, x);
  float top = lanes[0];
  for (int i = 1; i < kLanes; ++i) top = lanes[i] > top ? lanes[i] : top;
  return top;
}

// The largest lane, in every lane; NaN may be lost.
inline Vec all_max(Vec x) {
  IntVec number{};
  for (int lane = 0; lane < kLanes; ++lane) number[lane] = lane;
#pragma GCC unroll 4
  for (int width = kLanes / 2; width > 0; width /= 2) x = max(x, __builtin_shuffle(x, number ^ width));
  return x;
}

}  // namespace megalite::MEGALITE_ISA
