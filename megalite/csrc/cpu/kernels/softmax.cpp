// Softmax over the last dim of attention scores, scaled, with a mask or causal.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// How many keys, from the first, a causal query sees: the last query sees all.
inline int64_t num_visible(int64_t query, int64_t queries, int64_t keys) {
  int64_t visible = query + 1 + keys - queries;
  return visible < 0 ? 0 : visible < keys ? visible : keys;
}

// Rows of `keys` columns, of which the first `cols` may be visible; `room` holds the exponentials.
template <typename T, typename Visible>
void softmax_row(const Output<T>& y, int64_t start, const T* x, int64_t cols, int64_t keys, float scale, float* room,
                 Visible visible) {
  Vec tops = splat(-kInfinity);
  for_lanes(cols, [&](int64_t i, auto lanes) {
    __builtin_prefetch(x + keys + i);  // the next row, which the hardware does not foresee where rows are read in part
    Vec value = fill(load(x + i, lanes), -kInfinity, lanes);
    tops = max(tops, select(visible(i, lanes), value, splat(-kInfinity)));
  });
  const float top = max(tops);
  Vec sums{};
  // Where nothing is visible there is no probability anywhere, instead of 0 / 0.
  const int64_t filled = top == -kInfinity ? 0 : cols;
  for_lanes(filled, [&](int64_t i, auto lanes) {
    Vec value = fill(load(x + i, lanes), -kInfinity, lanes);
    Vec term = select(visible(i, lanes), exp<T>((value - top) * scale), Vec{});
    store(room + i, term, lanes);
    sums += term;
  });
  memset(room + filled, 0, (keys - filled) * sizeof(float));
  const float factor = filled > 0 ? 1.0f / sum(sums) : 0.0f;
  for_lanes(keys, [=](int64_t i, auto lanes) { store(y, start + i, load(room + i, lanes) * factor, lanes); });
}

template <typename T>
void forward(T* to, const T* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys,
             int64_t rows_per_mask, int64_t causal, float scale) {
  const Output<T> y(to, rows, keys);
  for_rows_with_room(rows, keys, keys, [=](int64_t row, float* room) {
    const int64_t query = row % queries, start = row * keys;
    if (mask != nullptr) {
      const uint8_t* hidden = mask + (row / rows_per_mask * queries + query) * keys;
      auto visible = [=](int64_t i, auto lanes) { return ~is_set(hidden + i, lanes); };
      softmax_row(y, start, x + start, keys, keys, scale, room, visible);
    } else {
      const int64_t cols = causal ? num_visible(query, queries, keys) : keys;
      auto visible = [](int64_t, auto) { return IntVec{} == 0; };
      softmax_row(y, start, x + start, cols, keys, scale, room, visible);
    }
  });
}

// dx = scale * y * (dy - sum(y * dy)); where y is zero for want of visibility, so is dx.
template <typename T>
void backward(T* to, const T* dy, const T* y, int64_t rows, int64_t queries, int64_t keys, int64_t causal,
              float scale) {
  const Output<T> dx(to, rows, keys);
  for_rows(rows, keys, [=](int64_t row) {
    const int64_t start = row * keys, cols = causal ? num_visible(row % queries, queries, keys) : keys;
    Vec dots{};
    for_lanes(cols, [&](int64_t i, auto lanes) {
      __builtin_prefetch(y + start + keys + i);
      __builtin_prefetch(dy + start + keys + i);
      dots += load(y + start + i, lanes) * load(dy + start + i, lanes);
    });
    const float dot = sum(dots);
    for_lanes(keys, [=](int64_t i, auto lanes) {
      const bool seen = i < cols;  // the lanes beyond `cols` of the last such vector have y = 0
      Vec grad = seen ? load(y + start + i, lanes) * (load(dy + start + i, lanes) - dot) * scale : Vec{};
      store(dx, start + i, grad, lanes);
    });
  });
}

}  // namespace

void softmax_forward(void* y, const void* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys,
                     int64_t rows_per_mask, int causal, double scale, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    forward((T*)y, (const T*)x, mask, rows, queries, keys, rows_per_mask, causal, (float)scale);
  });
}

void softmax_backward(void* dx, const void* dy, const void* y, int64_t rows, int64_t queries, int64_t keys, int causal,
                      double scale, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward((T*)dx, (const T*)dy, (const T*)y, rows, queries, keys, causal, (float)scale);
  });
}

}  // namespace megalite::MEGALITE_ISA
