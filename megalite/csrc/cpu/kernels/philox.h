// Philox4x32-10 (Salmon et al. 2011): numbers as in megalite/ops/philox.py, element i is word i % 4 of block i / 4.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

constexpr int kBlocks = kLanes / 2;      // blocks computed at once
constexpr int kWords = 4 * kBlocks;      // random words in them

typedef uint64_t LongVec __attribute__((vector_size(8 * kBlocks)));

struct Key {
  uint32_t word0, word1;
};

// Products of the low halves of the lanes with `factor`.
#if defined(__AVX512F__)
inline LongVec multiply(LongVec x, uint32_t factor) {
  return bit_cast<LongVec>(_mm512_mul_epu32(bit_cast<__m512i>(x), _mm512_set1_epi64(factor)));
}
#elif defined(__AVX2__)
inline LongVec multiply(LongVec x, uint32_t factor) {
  return bit_cast<LongVec>(_mm256_mul_epu32(bit_cast<__m256i>(x), _mm256_set1_epi64x(factor)));
}
#else
inline LongVec multiply(LongVec x, uint32_t factor) { return (x & 0xFFFFFFFFu) * uint64_t{factor}; }
#endif

struct Words {
  LongVec word[4];  // in the low halves; the high ones hold anything
};

// Words of the blocks first, first + 1, ..., first + kBlocks - 1.
inline Words philox(uint64_t first, Key key) {
  LongVec block{};
  for (int lane = 0; lane < kBlocks; ++lane) block[lane] = first + lane;
  LongVec c0 = block, c1 = block >> 32, c2{}, c3{};
  for (int round = 0; round < 10; ++round) {
    const LongVec product0 = multiply(c0, 0xD2511F53u), product1 = multiply(c2, 0xCD9E8D57u);
    c0 = (product1 >> 32) ^ c1 ^ uint64_t{key.word0};
    c2 = (product0 >> 32) ^ c3 ^ uint64_t{key.word1};
    c1 = product1;
    c3 = product0;
    key.word0 += 0x9E3779B9u;
    key.word1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// a[0] b[0] a[1] b[1] ... to `out`.
inline void store_interleaved(LongVec* out, LongVec a, LongVec b) {
  LongVec front{}, back{};
  for (int lane = 0; lane < kBlocks; ++lane) {
    front[lane] = lane / 2 + (lane % 2) * kBlocks;
    back[lane] = front[lane] + kBlocks / 2;
  }
#if defined(__clang__)
  LongVec both[2] = {a, b};
  const uint64_t* from = reinterpret_cast<const uint64_t*>(both);
  for (int lane = 0; lane < kBlocks; ++lane) {
    out[0][lane] = from[front[lane]];
    out[1][lane] = from[back[lane]];
  }
#else
  out[0] = __builtin_shuffle(a, b, front);
  out[1] = __builtin_shuffle(a, b, back);
#endif
}

// The words of at least `count` elements from the first one of block `first`, in order; `out` has room for kWords more.
inline void stream_words(uint32_t* out, int64_t count, uint64_t first, Key key) {
  for (int64_t at = 0; at < count; at += kWords) {
    const Words words = philox(first + at / 4, key);
    LongVec ordered[2];
    store_interleaved(ordered, (words.word[0] & 0xFFFFFFFFu) | (words.word[1] << 32),
                      (words.word[2] & 0xFFFFFFFFu) | (words.word[3] << 32));
    memcpy(out + at, ordered, sizeof ordered);
  }
}

}  // namespace megalite::MEGALITE_ISA
