#include "shuffle.h"

#include <algorithm>
#include <utility>

namespace megalite {
namespace {

// Partners are drawn this far ahead of the swaps, which wait for memory: the draws do not depend on the data.
constexpr int64_t kAhead = 64;
constexpr int kShift = 397;

uint32_t twisted(uint32_t high, uint32_t low) {
  const uint32_t bits = (high & 0x80000000u) | (low & 0x7fffffffu);
  return (bits >> 1) ^ (low & 1u ? 0x9908b0dfu : 0u);
}

// The next 624 words: Matsumoto and Nishimura, "Mersenne Twister" (1998).
void refill(Twister& twister) {
  uint32_t* w = twister.words;
  constexpr int n = kTwisterWords;
  for (int i = 0; i < n - kShift; ++i) w[i] = w[i + kShift] ^ twisted(w[i], w[i + 1]);
  for (int i = n - kShift; i < n - 1; ++i) w[i] = w[i + kShift - n] ^ twisted(w[i], w[i + 1]);
  w[n - 1] = w[kShift - 1] ^ twisted(w[n - 1], w[0]);
  twister.position = 0;
}

uint32_t next(Twister& twister) {
  if (twister.position == kTwisterWords) refill(twister);
  uint32_t y = twister.words[twister.position++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// All bits up to the highest one of i, which is not 0.
uint32_t mask_of(uint32_t i) {
  for (int shift = 1; shift < 32; shift *= 2) i |= i >> shift;
  return i;
}

}  // namespace

template <typename T>
void shuffle(T* data, int64_t size, Twister& twister) {
  uint32_t partners[kAhead];
  for (int64_t last = size - 1; last > 0; last -= kAhead) {
    const int64_t count = std::min(kAhead, last);
    for (int64_t k = 0; k < count; ++k) {
      const uint32_t i = static_cast<uint32_t>(last - k);
      const uint32_t mask = mask_of(i);
      uint32_t partner;
      do {
        partner = next(twister) & mask;
      } while (partner > i);
      partners[k] = partner;
#if defined(__GNUC__)
      __builtin_prefetch(data + partner, 1);
#endif
    }
    for (int64_t k = 0; k < count; ++k) std::swap(data[last - k], data[partners[k]]);
  }
}

template void shuffle<uint32_t>(uint32_t*, int64_t, Twister&);
template void shuffle<uint64_t>(uint64_t*, int64_t, Twister&);

}  // namespace megalite
