// Pairs of bfloat16 numbers that follow each other along the depth of a product. AVX512-BF16 multiplies two pairs and
// adds both products to a float as fast as AVX-512 adds one product of floats. It takes subnormal numbers for zero,
// makes subnormal results zero, and rounds to the nearest float, ties to even, whatever the rounding mode.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

struct Pair {
  uint32_t bits;  // the first number in the lower half
};
static_assert(sizeof(Pair) == sizeof(float), "rooms are measured in floats");

typedef uint16_t NumberVec __attribute__((vector_size(4 * kLanes)));  // of a vector of pairs

inline UintVec splat(Pair pair) { return pair.bits + UintVec{}; }

inline UintVec load(const Pair* from) {
  UintVec pairs;
  memcpy(&pairs, from, sizeof pairs);
  return pairs;
}

inline void store(Pair* to, UintVec pairs) { memcpy(to, &pairs, sizeof pairs); }

inline Vec add_product(Vec sum, UintVec a, UintVec b) {
  return bit_cast<Vec>(_mm512_dpbf16_ps(bit_cast<__m512>(sum), bit_cast<__m512bh>(a), bit_cast<__m512bh>(b)));
}

// Of bfloat16 numbers that have been widened to float.
inline UintVec pair_of(Vec first, Vec second) { return bit_cast<UintVec>(first) >> 16 | bit_cast<UintVec>(second); }

// All numbers of `first`, then all of `second`, rounded: two in a pair.
inline UintVec round(Vec first, Vec second) {
  return bit_cast<UintVec>(_mm512_cvtne2ps_pbh(bit_cast<__m512>(second), bit_cast<__m512>(first)));
}

// Pairs of a number of `first` and one of `second`, of the lower halves of both and of the upper ones.
inline UintVec zip_low(UintVec first, UintVec second) {
  NumberVec from;
  for (int i = 0; i < 2 * kLanes; ++i) from[i] = i / 2 + i % 2 * 2 * kLanes;
  return bit_cast<UintVec>(__builtin_shuffle(bit_cast<NumberVec>(first), bit_cast<NumberVec>(second), from));
}
inline UintVec zip_high(UintVec first, UintVec second) {
  NumberVec from;
  for (int i = 0; i < 2 * kLanes; ++i) from[i] = kLanes + i / 2 + i % 2 * 2 * kLanes;
  return bit_cast<UintVec>(__builtin_shuffle(bit_cast<NumberVec>(first), bit_cast<NumberVec>(second), from));
}

// Pairs of a number of `first` and one of `second`, rounded.
inline UintVec round_pairs(Vec first, Vec second) {
  NumberVec from;
  for (int i = 0; i < 2 * kLanes; ++i) from[i] = i / 2 + i % 2 * kLanes;
  return bit_cast<UintVec>(__builtin_shuffle(bit_cast<NumberVec>(round(first, second)), from));
}

// Lane j of vector i becomes lane i of vector j: two by two, then in blocks of two by two, and so on.
inline void transpose(UintVec (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    UintVec upper, lower;
    for (int lane = 0; lane < kLanes; ++lane) {
      upper[lane] = lane & step ? kLanes + lane - step : lane;
      lower[lane] = lane & step ? kLanes + lane : lane + step;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & step) continue;
      const UintVec first = rows[i], second = rows[i + step];
      rows[i] = __builtin_shuffle(first, second, upper);
      rows[i + step] = __builtin_shuffle(first, second, lower);
    }
  }
}

}  // namespace megalite::MEGALITE_ISA
