// Additions to float32 main gradients of what comes in a narrower type, without a float32 copy of it.
#include "cpu/kernels.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

template <typename T>
void add_rows(float* total, float* partial, const T* x, int64_t rows, int64_t cols, int64_t blocks) {
  for_row_blocks(rows, cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    float* sums = block_sums(partial, block, cols);
    for (int64_t row = begin; row < end; ++row) {
      for_lanes(cols, [=](int64_t i, auto lanes) { add_to(sums, i, load_ahead(x + row * cols + i, lanes), lanes); });
    }
  });
  sum_blocks<true>(total, partial, blocks, cols);
}

template <typename T>
void add_range(float* total, const T* x, int64_t size) {
  for_ranges(size, kLanes, [=](int64_t begin, int64_t end) {
    for_lanes(end - begin, [=](int64_t i, auto lanes) {
      store(total + begin + i, load_ahead(total + begin + i, lanes) + load_ahead(x + begin + i, lanes), lanes);
    });
  });
}

}  // namespace

void add_column_sums(float* total, float* partial, const void* x, int64_t rows, int64_t cols, int64_t blocks,
                     int dtype) {
  with_dtype(dtype, [=](auto element) { add_rows(total, partial, (decltype(element)*)x, rows, cols, blocks); });
}

void add_elements(float* total, const void* x, int64_t size, int dtype) {
  with_dtype(dtype, [=](auto element) { add_range(total, (decltype(element)*)x, size); });
}

}  // namespace megalite::MEGALITE_ISA
