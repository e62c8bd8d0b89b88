// Philox4x32-10 (Salmon et al. 2011): random words as in megalite/ops/philox.py.
#pragma once

#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

constexpr int kBlocks = kLanes / 2;      // blocks computed at once
constexpr int kWords = 4 * kBlocks;      // random words in them

typedef uint64_t LongVec __attribute__((vector_size(8 * kBlocks)));

struct Key {
  uint32_t word0, word1;
};

// The keys of the rounds, made once for all blocks.
struct Schedule {
  uint64_t word0[10], word1[10];
  explicit Schedule(Key key) {
    for (int round = 0; round < 10; ++round) {
      word0[round] = key.word0;
      word1[round] = key.word1;
      key.word0 += 0x9E3779B9u;
      key.word1 += 0xBB67AE85u;
    }
  }
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
inline void philox(Words (&out)[kCount], uint64_t first, const Schedule& keys) {
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
      c0[group] = (product1 >> 32) ^ c1[group] ^ keys.word0[round];
      c2[group] = (product0 >> 32) ^ c3[group] ^ keys.word1[round];
      c1[group] = product1;
      c3[group] = product0;
    }
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

// kWordsAtOnce words in order, from the first one of block `first` on.
inline void stream_words(uint32_t* out, uint64_t first, const Schedule& keys) {
  Words groups[kGroups];
  philox(groups, first, keys);
  for (int group = 0; group < kGroups; ++group) {
    const LongVec* word = groups[group].word;
    LongVec ordered[2];
    store_interleaved(ordered, (word[0] & 0xFFFFFFFFu) | (word[1] << 32), (word[2] & 0xFFFFFFFFu) | (word[3] << 32));
    memcpy(out + group * kWords, ordered, sizeof ordered);
  }
}

}  // namespace megalite::MEGALITE_ISA
