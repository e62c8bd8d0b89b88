// Products of small matrices that are in the first caches already, as the parts of larger computations.
#pragma once

#include "cpu/kernels/vec.h"
#if defined(__AVX512BF16__)
#include "cpu/kernels/avx512_bf16/pairs.h"
#endif

namespace megalite::MEGALITE_ISA {

// Factors consist of floats or of what avx512_bf16/pairs.h calls pairs: of E.
inline Vec add_product(Vec sum, Vec a, Vec b) { return sum + a * b; }

// The first factor: element (i, k) is at data[i * row + k * depth].
template <typename E>
struct FactorOf {
  const E* data;
  int64_t row, depth;
};
using Factor = FactorOf<float>;

// kRows rows of kVecs vectors of the result, which stay in registers.
template <bool kAdd, int kRows, int kVecs, typename E>
inline void product_tile(float* c, int64_t width, FactorOf<E> a, const E* b, int64_t b_row, int64_t depth) {
  Vec sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) sums[i][j] = kAdd ? load(c + i * width + j * kLanes) : Vec{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    decltype(load(b)) factors[kVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) factors[j] = load(b + k * b_row + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto factor = splat(a.data[i * a.row + k * a.depth]);
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) sums[i][j] = add_product(sums[i][j], factor, factors[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) store(c + i * width + j * kLanes, sums[i][j]);
  }
}

template <bool kAdd, int kRows, int kVecs, typename E>
inline void product_strip(float* c, int64_t width, FactorOf<E> a, const E* b, int64_t b_row, int64_t rows,
                          int64_t depth) {
  for (int64_t i = 0; i < rows; i += kRows) {
    product_tile<kAdd, kRows, kVecs>(c + i * width, width, {a.data + i * a.row, a.row, a.depth}, b, b_row, depth);
  }
}

constexpr int64_t kRowStep = 8;  // what the number of rows of a product must be a multiple of

// c [rows, cols] = or += a [rows, depth] * b [depth, cols]; `cols` is a multiple of kLanes, and rows of c are `width`
// long, those of b `b_row`.
template <bool kAdd, typename E>
inline void product(float* c, int64_t width, FactorOf<E> a, const E* b, int64_t b_row, int64_t rows, int64_t cols,
                    int64_t depth) {
  // A tile of 16 vectors of sums needs the 32 registers that AVX-512 has; elsewhere there are 16.
  constexpr int kVecs = kLanes == 16 ? 4 : 2;
  int64_t j = 0;
  for (; j + kVecs * kLanes <= cols; j += kVecs * kLanes) {
    product_strip<kAdd, 4, kVecs>(c + j, width, a, b + j, b_row, rows, depth);
  }
  if constexpr (kVecs == 4) {
    if (j + 2 * kLanes <= cols) {
      product_strip<kAdd, 8, 2>(c + j, width, a, b + j, b_row, rows, depth);
      j += 2 * kLanes;
    }
  }
  if (j < cols) product_strip<kAdd, 8, 1>(c + j, width, a, b + j, b_row, rows, depth);
}

}  // namespace megalite::MEGALITE_ISA
