// Philox4x32-10 (Salmon et al. 2011): random words as in megalite/ops/philox.py.
#pragma once

#include "cuda/platform.h"

namespace megalite::cuda {

struct Key {
  uint32_t word0, word1;
};

struct Words {
  uint32_t word[4];
};

__device__ inline Words philox(uint64_t block, Key key) {
  constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32), c2 = 0, c3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(kFirst, c0), low0 = kFirst * c0;
    const uint32_t high1 = __umulhi(kSecond, c2), low1 = kSecond * c2;
    c0 = high1 ^ c1 ^ key.word0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key.word1;
    c3 = low0;
    key.word0 += 0x9E3779B9u;
    key.word1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// A word by a number known at run time only, without indexing, which would move the words to local memory.
__device__ inline uint32_t word_at(const Words& words, int i) {
  if (i < 2) return i == 0 ? words.word[0] : words.word[1];
  return i == 2 ? words.word[2] : words.word[3];
}

// Half i of the 8 halves of words: the low one of each word comes first.
__device__ inline uint32_t half_at(const Words& words, int i) {
  return word_at(words, i / 2) >> (i % 2 * 16) & 0xFFFFu;
}

}  // namespace megalite::cuda
