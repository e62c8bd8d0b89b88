// Bias, dropout and residual in one pass. The mask is a function of the element's place (philox.h), so it is not kept:
// the backward pass makes it again.
#include "cpu/kernels.h"
#include "cpu/kernels/philox.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

struct Mask {
  const int64_t* row_numbers;
  Schedule keys;
  uint32_t threshold;  // halves of words below it are dropped
  float scale;         // of the elements that are kept
};

constexpr int kPerBlock = 8;  // elements, each of half a word
constexpr int kTile = 2 * kWordsAtOnce;

// The random halves of a tile of a row, which are those of elements first, first + 1, ... of the stream.
struct TileMask {
  alignas(64) uint32_t words[kWordsAtOnce];
  const uint16_t* halves;
  uint32_t threshold;

  TileMask(const Mask& mask, uint64_t first) : threshold(mask.threshold) {
    if (threshold != 0) stream_words(words, first / kPerBlock, mask.keys);
    halves = reinterpret_cast<const uint16_t*>(words) + first % kPerBlock;
  }
  Vec apply(int64_t i, Vec value) const {
    if (threshold == 0) return value;
    HalfVec random;
    memcpy(&random, halves + i, sizeof random);
    return select(widen(random) >= threshold, value, Vec{});
  }
};

// body(i, lanes, mask) for the columns of a row, where mask(value) drops. Tile after tile, so that the memory of one is
// on its way while the words of the one before are computed.
template <typename Body>
inline void for_masked_lanes(const Mask& mask, int64_t row, int64_t cols, Body body) {
  const uint64_t start = mask.threshold == 0 ? 0 : static_cast<uint64_t>(mask.row_numbers[row]) * cols;
  // Words come in whole blocks: where the first element is not a block's first, one vector of them is left out.
  const int64_t step = start % kPerBlock == 0 ? kTile : kTile - 16;
  for (int64_t at = 0; at < cols; at += step) {
    const TileMask keep(mask, start + at);
    for_lanes(cols - at < step ? cols - at : step, [&](int64_t i, auto lanes) {
      body(at + i, lanes, [&](Vec value) { return keep.apply(i, value * mask.scale); });
    });
  }
}

template <typename T>
void forward(T* to, const T* x, const T* bias, const T* residual, int64_t rows, int64_t cols, Mask mask) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    const int64_t start = row * cols;
    for_masked_lanes(mask, row, cols, [=](int64_t i, auto lanes, auto drop) {
      Vec value = load_ahead(x + start + i, lanes);
      if (bias != nullptr) value += load(bias + i, lanes);
      value = drop(value);
      if (residual != nullptr) value += load_ahead(residual + start + i, lanes);
      store(y, start + i, value, lanes);
    });
  });
}

template <typename T>
void backward(T* to, float* dbias, float* partial, const T* dy, int64_t rows, int64_t cols, int64_t blocks,
              Mask mask) {
  const Output<T> dx(to, rows, cols);
  for_row_blocks(rows, cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    float* sums = block_sums(partial, block, cols);
    for (int64_t row = begin; row < end; ++row) {
      for_masked_lanes(mask, row, cols, [=](int64_t i, auto lanes, auto drop) {
        Vec grad = drop(load_ahead(dy + row * cols + i, lanes));
        store(dx, row * cols + i, grad, lanes);
        add_to(sums, i, grad, lanes);
      });
    }
  });
  if (dbias != nullptr) sum_blocks(dbias, partial, blocks, cols);
}

}  // namespace

void dropout_residual_forward(void* y, const void* x, const void* bias, const void* residual,
                              const int64_t* row_numbers, int64_t rows, int64_t cols, int64_t key0, int64_t key1,
                              int64_t threshold, double scale, int dtype) {
  const Mask mask{row_numbers, Schedule({(uint32_t)key0, (uint32_t)key1}), (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    forward((T*)y, (const T*)x, (const T*)bias, (const T*)residual, rows, cols, mask);
  });
}

void dropout_residual_backward(void* dx, float* dbias, float* partial, const void* dy, const int64_t* row_numbers,
                               int64_t rows, int64_t cols, int64_t blocks, int64_t key0, int64_t key1,
                               int64_t threshold, double scale, int dtype) {
  const Mask mask{row_numbers, Schedule({(uint32_t)key0, (uint32_t)key1}), (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward((T*)dx, dbias, partial, (const T*)dy, rows, cols, blocks, mask);
  });
}

}  // namespace megalite::MEGALITE_ISA
