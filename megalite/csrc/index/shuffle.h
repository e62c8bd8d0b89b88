// Numpy's RandomState.shuffle of one-dimensional arrays, element for element, several times as fast.
#pragma once

#include <cstdint>

namespace megalite {

constexpr int kTwisterWords = 624;

// State of the Mersenne Twister MT19937: its words, and how many of them have been given out.
struct Twister {
  uint32_t* words;
  int64_t position;
};

// Fisher-Yates from the last element down; the partner of element i is the first of twister's numbers, masked to the
// bits of i, that is at most i. `size` is at most 2^32, up to where numpy takes one 32-bit number a draw.
template <typename T>
void shuffle(T* data, int64_t size, Twister& twister);

}  // namespace megalite
