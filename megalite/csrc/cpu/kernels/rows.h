// How work is shared among threads. torch is imported before this module, so that both use one OpenMP runtime, one pool
// and the number of threads that torch.set_num_threads sets.
#pragma once

#include <stdlib.h>

#include <cstdint>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cpu/kernels/output.h"
#include "cpu/kernels/vec.h"

namespace megalite::MEGALITE_ISA {

// Elements below which a second thread costs more than it brings.
constexpr int64_t kGrain = 32768;

// body(row) for each of `rows` rows of `cols` elements, in any order.
template <typename Body>
inline void for_rows(int64_t rows, int64_t cols, Body body) {
#pragma omp parallel if (rows > 1 && rows * cols > kGrain)
  {
#pragma omp for schedule(static) nowait
    for (int64_t row = 0; row < rows; ++row) body(row);
    fence();
  }
}

// Scratch memory of one thread. Aligned as caches are, for a vector that lies in two lines takes two accesses.
struct Room {
  static constexpr int64_t kLine = 64;
  float* data;
  explicit Room(int64_t size)
      : data(static_cast<float*>(aligned_alloc(kLine, (size * sizeof(float) + kLine - 1) / kLine * kLine))) {}
  ~Room() { free(data); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
};

// The same, with room for `size` floats of the thread's own.
template <typename Body>
inline void for_rows_with_room(int64_t rows, int64_t cols, int64_t size, Body body) {
#pragma omp parallel if (rows > 1 && rows * cols > kGrain)
  {
    Room room(size);
#pragma omp for schedule(static) nowait
    for (int64_t row = 0; row < rows; ++row) body(row, room.data);
    fence();
  }
}

#if defined(_OPENMP)
inline int num_threads() { return omp_get_num_threads(); }
inline int this_thread() { return omp_get_thread_num(); }
#else
inline int num_threads() { return 1; }
inline int this_thread() { return 0; }
#endif

// body(begin, end) for a division of [0, n) into one range a thread, each a multiple of `step` long but the last.
template <typename Body>
inline void for_ranges(int64_t n, int64_t step, Body body) {
#pragma omp parallel if (n > kGrain)
  {
    const int64_t steps = (n + step - 1) / step;
    const int64_t begin = steps * this_thread() / num_threads() * step;
    int64_t end = steps * (this_thread() + 1) / num_threads() * step;
    end = end < n ? end : n;
    if (begin < end) body(begin, end);
  }
}

// Sums over rows that become a parameter's gradient must not depend on the number of threads, or replicas would drift
// apart. So rows are cut into `blocks` blocks, a number that depends on the shape alone (megalite/ops/kernels.py): each
// block is summed in order by one thread into its row of `partial` [blocks, cols], and then the blocks in order.
template <typename Body>
inline void for_row_blocks(int64_t rows, int64_t cols, int64_t blocks, Body body) {
#pragma omp parallel if (blocks > 1 && rows * cols > kGrain)
  {
#pragma omp for schedule(static) nowait
    for (int64_t block = 0; block < blocks; ++block) body(block, rows * block / blocks, rows * (block + 1) / blocks);
    fence();
  }
}

// The block's row of `partial`, zeroed; null where there is none.
inline float* block_sums(float* partial, int64_t block, int64_t cols) {
  if (partial == nullptr) return nullptr;
  return static_cast<float*>(memset(partial + block * cols, 0, cols * sizeof(float)));
}

// Adds to a row of sums, where there is one.
template <typename V, typename Lanes>
inline void add_to(float* sums, int64_t i, V value, Lanes lanes) {
  if (sums != nullptr) store(sums + i, load(sums + i, lanes) + value, lanes);
}

// Stores the blocks' sums in `total`, or adds them to it.
template <bool kAdd = false>
inline void sum_blocks(float* total, const float* partial, int64_t blocks, int64_t cols) {
  for_ranges(cols, kLanes, [=](int64_t begin, int64_t end) {
    for_lanes(end - begin, [=](int64_t i, auto lanes) {
      Vec sum = kAdd ? load(total + begin + i, lanes) : Vec{};
      for (int64_t block = 0; block < blocks; ++block) sum += load(partial + block * cols + begin + i, lanes);
      store(total + begin + i, sum, lanes);
    });
  });
}

}  // namespace megalite::MEGALITE_ISA
