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

// Words of the blocks first, first + 1, ..., kBlocks of them to each result. The operations of one wait for each other,
// so several are faster.
template <int kCount>
inline void philox(Words (&out)[kCount], uint64_t first, Key key) {
  LongVec number{};
  for (int lane = 0; lane < kBlocks; ++lane) number[lane] = lane;
  LongVec c0[kCount], c1[kCount], c2[kCount] = {}, c3[kCount] = {};
  for (int group = 0; group < kCount; ++group) {
    c0[group] = number + (first + group * kBlocks);
    c1[group] = c0[group] >> 32;
  }
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int group = 0; group < kCount; ++group) {
      const LongVec product0 = multiply(c0[group], 0xD2511F53u), product1 = multiply(c2[group], 0xCD9E8D57u);
      c0[group] = (product1 >> 32) ^ c1[group] ^ uint64_t{key.word0};
      c2[group] = (product0 >> 32) ^ c3[group] ^ uint64_t{key.word1};
      c1[group] = product1;
      c3[group] = product0;
    }
    key.word0 += 0x9E3779B9u;
    key.word1 += 0xBB67AE85u;
  }
  for (int group = 0; group < kCount; ++group) out[group] = {{c0[group], c1[group], c2[group], c3[group]}};
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

constexpr int kGroups = 4;
constexpr int kWordsAtOnce = kGroups * kWords;

// The words of at least `count` elements from the first one of block `first`, in order; `out` has room for kWordsAtOnce
// more.
inline void stream_words(uint32_t* out, int64_t count, uint64_t first, Key key) {
  for (int64_t at = 0; at < count; at += kWordsAtOnce) {
    Words groups[kGroups];
    philox(groups, first + at / 4, key);
    for (int group = 0; group < kGroups; ++group) {
      const LongVec* word = groups[group].word;
      LongVec ordered[2];
      store_interleaved(ordered, (word[0] & 0xFFFFFFFFu) | (word[1] << 32), (word[2] & 0xFFFFFFFFu) | (word[3] << 32));
      memcpy(out + at + group * kWords, ordered, sizeof ordered);
    }
  }
}

}  // namespace megalite::MEGALITE_ISA
