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

template <typename T, typename Visible>
void softmax_row(T* y, const T* x, int64_t cols, float scale, float* room, Visible visible) {
  Vec tops = splat(-kInfinity);
  for_lanes(cols, [&](int64_t i, auto lanes) {
    Vec value = fill(load(x + i, lanes), -kInfinity, lanes);
    tops = max(tops, select(visible(i, lanes), value, splat(-kInfinity)));
  });
  const float top = max(tops);
  if (top == -kInfinity) {  // nothing to see: no probability anywhere, instead of 0 / 0
    memset(y, 0, cols * sizeof(T));
    return;
  }
  Vec sums{};
  for_lanes(cols, [&](int64_t i, auto lanes) {
    Vec value = fill(load(x + i, lanes), -kInfinity, lanes);
    Vec term = select(visible(i, lanes), exp((value - top) * scale), Vec{});
    store(room + i, term, lanes);
    sums += term;
  });
  const float factor = 1.0f / sum(sums);
  for_lanes(cols, [=](int64_t i, auto lanes) { store(y + i, load(room + i, lanes) * factor, lanes); });
}

template <typename T>
void forward(T* y, const T* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys, int64_t rows_per_mask,
             int64_t causal, float scale) {
  for_rows_with_room(rows, keys, keys, [=](int64_t row, float* room) {
    const int64_t query = row % queries;
    T* out = y + row * keys;
    if (mask != nullptr) {
      const uint8_t* hidden = mask + (row / rows_per_mask * queries + query) * keys;
      auto visible = [=](int64_t i, auto lanes) { return ~is_set(hidden + i, lanes); };
      softmax_row(out, x + row * keys, keys, scale, room, visible);
      return;
    }
    const int64_t cols = causal ? num_visible(query, queries, keys) : keys;
    softmax_row(out, x + row * keys, cols, scale, room, [](int64_t, auto) { return IntVec{} == 0; });
    memset(out + cols, 0, (keys - cols) * sizeof(T));
  });
}

// dx = scale * y * (dy - sum(y * dy)); where y is zero for want of visibility, so is dx.
template <typename T>
void backward(T* dx, const T* dy, const T* y, int64_t rows, int64_t queries, int64_t keys, int64_t causal,
              float scale) {
  for_rows(rows, keys, [=](int64_t row) {
    const int64_t start = row * keys, cols = causal ? num_visible(row % queries, queries, keys) : keys;
    Vec dots{};
    for_lanes(cols, [&](int64_t i, auto lanes) { dots += load(y + start + i, lanes) * load(dy + start + i, lanes); });
    const float dot = sum(dots);
    for_lanes(cols, [=](int64_t i, auto lanes) {
      store(dx + start + i, load(y + start + i, lanes) * (load(dy + start + i, lanes) - dot) * scale, lanes);
    });
    memset(dx + start + cols, 0, (keys - cols) * sizeof(T));
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
