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

// Which columns of a row are seen: those that no mask hides, or all.
struct Mask {
  const uint8_t* hidden;
  template <typename T>
  static constexpr int at_once = 1;
  template <typename Lanes>
  Vec hide(Vec x, int64_t i, float by, Lanes lanes) const { return select(is_set(hidden + i, lanes), splat(by), x); }
};
struct NoMask {
  template <typename T>
  static constexpr int at_once = kAtOnce<T>;
  template <typename V, typename Lanes>
  V hide(V x, int64_t, float, Lanes) const { return x; }
};

// Rows of `keys` columns, of which the first `cols` may be visible; `room` holds the exponentials.
template <typename T, typename Visible>
void softmax_row(const Output<T>& y, int64_t start, const T* x, int64_t cols, int64_t keys, float scale, float* room,
                 Visible visible) {
  constexpr int kVecs = Visible::template at_once<T>;
  Vec tops = splat(-kInfinity);
  for_several_lanes<kVecs>(cols, [&](int64_t i, auto lanes) {
    __builtin_prefetch(x + keys + i);  // the next row, which the hardware does not foresee where rows are read in part
    const auto value = visible.hide(fill(load(x + i, lanes), -kInfinity, lanes), i, -kInfinity, lanes);
    tops = max(tops, fold([](Vec a, Vec b) { return max(a, b); }, value));
  });
  const float top = max(tops);
  Vec sums{};
  // Where nothing is visible there is no probability anywhere, instead of 0 / 0.
  const int64_t filled = top == -kInfinity ? 0 : cols;
  for_several_lanes<kVecs>(filled, [&](int64_t i, auto lanes) {
    const auto value = fill(load(x + i, lanes), -kInfinity, lanes);
    const auto term = visible.hide(exp_below<T>(value, top, scale), i, 0.0f, lanes);
    store(room + i, term, lanes);
    sums += fold([](Vec a, Vec b) { return a + b; }, term);
  });
  constexpr int64_t kStep = kVecs * kLanes;
  const int64_t whole = (filled + kStep - 1) / kStep * kStep, shown = whole < keys ? whole : keys;
  memset(room + filled, 0, (shown - filled) * sizeof(float));
  const float factor = filled > 0 ? 1.0f / sum(sums) : 0.0f;
  for_several_lanes<kVecs>(shown, [=](int64_t i, auto lanes) {
    store(y, start + i, factor * load(room + i, lanes), lanes);
  });
  for_lanes(keys - shown, [=](int64_t i, auto lanes) { store(y, start + shown + i, Vec{}, lanes); });
}

template <typename T>
void forward(T* to, const T* x, const uint8_t* mask, int64_t rows, int64_t queries, int64_t keys,
             int64_t rows_per_mask, int64_t causal, float scale) {
  const Output<T> y(to, rows, keys);
  for_rows_with_room(rows, keys, keys, [=](int64_t row, float* room) {
    const int64_t query = row % queries, start = row * keys;
    if (mask != nullptr) {
      const Mask visible{mask + (row / rows_per_mask * queries + query) * keys};
      softmax_row(y, start, x + start, keys, keys, scale, room, visible);
    } else {
      const int64_t cols = causal ? num_visible(query, queries, keys) : keys;
      softmax_row(y, start, x + start, cols, keys, scale, room, NoMask{});
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
