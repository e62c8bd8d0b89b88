// Bias, dropout and residual in one pass. The mask is a function of the element's place (philox.h), so it is not kept:
// the backward pass makes it again.
#include "cpu/kernels.h"
#include "cpu/kernels/philox.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

struct Mask {
  Key key;
  uint32_t threshold;  // words below it are dropped
  float scale;         // of the elements that are kept
};

// Which elements of row number `row` of a matrix of `cols` columns are kept, by lanes.
struct RowMask {
  const uint32_t* words;
  uint32_t threshold;

  RowMask(const Mask& mask, int64_t row, int64_t cols, float* room) : words(nullptr), threshold(mask.threshold) {
    if (threshold == 0) return;
    const uint64_t start = static_cast<uint64_t>(row) * cols;
    uint32_t* buffer = reinterpret_cast<uint32_t*>(room);
    stream_words(buffer, cols + start % 4, start / 4, mask.key);
    words = buffer + start % 4;
  }
  template <typename Lanes>
  Vec apply(int64_t i, Vec value, Lanes) const {
    if (words == nullptr) return value;
    UintVec random;
    memcpy(&random, words + i, sizeof random);
    return select(random >= threshold, value, Vec{});
  }
};

// Room for the words of a row: its own, those before it in its first block, and those after it in the last blocks.
inline int64_t room_for(int64_t cols) { return cols + 2 * kWordsAtOnce; }

template <typename T>
void forward(T* to, const T* x, const T* bias, const T* residual, const int64_t* row_numbers, int64_t rows,
             int64_t cols, Mask mask) {
  const Output<T> y(to, rows, cols);
  for_rows_with_room(rows, cols, room_for(cols), [=](int64_t row, float* room) {
    const RowMask keep(mask, mask.threshold ? row_numbers[row] : 0, cols, room);
    const int64_t start = row * cols;
    for_lanes(cols, [=](int64_t i, auto lanes) {
      Vec value = load_ahead(x + start + i, lanes);
      if (bias != nullptr) value += load(bias + i, lanes);
      value = keep.apply(i, value * mask.scale, lanes);
      if (residual != nullptr) value += load_ahead(residual + start + i, lanes);
      store(y, start + i, value, lanes);
    });
  });
}

template <typename T>
void backward(T* to, float* dbias, float* partial, const T* dy, const int64_t* row_numbers, int64_t rows, int64_t cols,
              int64_t blocks, Mask mask) {
  const Output<T> dx(to, rows, cols);
  for_row_blocks(rows, cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    Room room(room_for(cols));
    float* sums = block_sums(partial, block, cols);
    for (int64_t row = begin; row < end; ++row) {
      const RowMask keep(mask, mask.threshold ? row_numbers[row] : 0, cols, room.data);
      for_lanes(cols, [=](int64_t i, auto lanes) {
        Vec grad = keep.apply(i, load_ahead(dy + row * cols + i, lanes) * mask.scale, lanes);
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
  const Mask mask{{(uint32_t)key0, (uint32_t)key1}, (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    forward((T*)y, (const T*)x, (const T*)bias, (const T*)residual, row_numbers, rows, cols, mask);
  });
}

void dropout_residual_backward(void* dx, float* dbias, float* partial, const void* dy, const int64_t* row_numbers,
                               int64_t rows, int64_t cols, int64_t blocks, int64_t key0, int64_t key1,
                               int64_t threshold, double scale, int dtype) {
  const Mask mask{{(uint32_t)key0, (uint32_t)key1}, (uint32_t)threshold, (float)scale};
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward((T*)dx, dbias, partial, (const T*)dy, row_numbers, rows, cols, blocks, mask);
  });
}

}  // namespace megalite::MEGALITE_ISA
