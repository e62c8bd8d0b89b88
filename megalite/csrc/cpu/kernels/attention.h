// What the forward and the backward pass of attention share: where things are, and packing them for products.
#pragma once

#include "cpu/kernels/math.h"
#include "cpu/kernels/product.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {

constexpr int64_t kBlock = 64;  // queries, and keys, that are looked at together

struct Attention {
  int64_t length, batch, groups, heads, dim;  // `heads` query heads in each group
  const int64_t* first;                       // [batch, length], the first key that a query sees; or null
  float scale;

  int64_t tasks() const { return batch * groups * heads; }
  int64_t width() const { return (dim + kLanes - 1) / kLanes * kLanes; }  // of packed rows
  int64_t padded() const { return (length + kBlock - 1) / kBlock * kBlock; }
  const int64_t* first_of(int64_t task) const {
    return first == nullptr ? nullptr : first + task / (groups * heads) * length;
  }
};

// The rows of one head of a tensor, by position.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  T* operator[](int64_t position) const { return data + position * stride; }
};

// qkv is [length, batch, groups, heads + 2, dim]: the query of a task's own head, its group's key or its value.
enum Member { kQuery, kKey, kValue };
template <typename T>
inline Rows<T> part_of(T* qkv, const Attention& shape, int64_t task, Member member) {
  const int64_t group = task / shape.heads, head = member == kQuery ? task % shape.heads : shape.heads + member - kKey;
  return {qkv + (group * (shape.heads + 2) + head) * shape.dim,
          shape.batch * shape.groups * (shape.heads + 2) * shape.dim};
}

// The output and its gradient are [length, batch, groups, heads, dim].
template <typename T>
inline Rows<T> output_of(T* y, const Attention& shape, int64_t task) {
  return {y + task * shape.dim, shape.tasks() * shape.dim};
}

// What the backward pass needs to have a query's weights again: exp(score - top) * factor. Its logarithm, the customary
// single number, would cost digits where scores are large.
struct Softmax {
  float top, factor;
};

// Rows [begin, begin + count) times `factor`, and zeros up to `rows` rows of width() floats.
template <typename T>
inline void pack(float* to, Rows<const T> from, const Attention& shape, int64_t begin, int64_t count, int64_t rows,
                 float factor) {
  const int64_t width = shape.width();
  memset(to, 0, rows * width * sizeof(float));
  for (int64_t row = 0; row < count; ++row) {
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      store(to + row * width + i, load(from[begin + row] + i, lanes) * factor, lanes);
    });
  }
}

// All rows, as one matrix [dim, kBlock] for each kBlock of them.
template <typename T>
inline void pack_transposed(float* to, Rows<const T> from, const Attention& shape) {
  memset(to, 0, shape.padded() * shape.dim * sizeof(float));
  for (int64_t row = 0; row < shape.length; ++row) {
    float* column = to + row / kBlock * kBlock * shape.dim + row % kBlock;
    for_lanes(shape.dim, [&](int64_t i, auto lanes) {
      float values[kLanes];
      store(values, load(from[row] + i, lanes));
      const int64_t count = i + kLanes <= shape.dim ? kLanes : shape.dim - i;
      for (int64_t lane = 0; lane < count; ++lane) column[(i + lane) * kBlock] = values[lane];
    });
  }
}

// A block of queries: which keys each of them sees.
struct Queries {
  int64_t begin, count, rows;  // rows: count, rounded up to what products take
  const int64_t* first;        // of the sequence, or null
  int64_t lowest, highest;     // of `first` among these queries

  Queries(const Attention& shape, int64_t task, int64_t begin) : begin(begin), first(shape.first_of(task)) {
    count = shape.length - begin < kBlock ? shape.length - begin : kBlock;
    rows = (count + kRowStep - 1) / kRowStep * kRowStep;
    lowest = highest = first == nullptr ? 0 : first[begin];
    for (int64_t row = 1; first != nullptr && row < count; ++row) {
      const int64_t key = first[begin + row];
      lowest = key < lowest ? key : lowest;
      highest = key > highest ? key : highest;
    }
  }

  int64_t first_block() const { return lowest / kBlock * kBlock; }

  // Whether all of them see all keys of the block that begins at `key`.
  bool see_all(int64_t key) const { return key + kBlock <= begin + 1 && key >= highest; }

  // The lanes, among kLanes keys from `key` on, that query `row` sees.
  IntVec visible(int64_t row, int64_t key) const {
    IntVec keys{};
    for (int lane = 0; lane < kLanes; ++lane) keys[lane] = static_cast<int32_t>(key) + lane;
    const int64_t lower = first == nullptr || row >= count ? 0 : first[begin + row];
    return (keys >= static_cast<int32_t>(lower)) & (keys <= static_cast<int32_t>(begin + row));
  }
};

// body(task, room) for all heads of all sequences, with `size` floats of room for each thread.
template <typename Body>
inline void for_heads(const Attention& shape, int64_t size, Body body) {
  const int64_t tasks = shape.tasks();
#pragma omp parallel if (tasks > 1 && tasks * shape.length * shape.dim > kGrain)
  {
    Room room(size);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tasks; ++task) body(task, room.data);
  }
}

}  // namespace megalite::MEGALITE_ISA
