// Activations of the MLP: the gradient of the bias that they add first is summed in the same pass.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

// GELU in its tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), is x sigmoid(2u).
struct Gelu {
  static constexpr float kTwice = 1.5957691216f, kCubic = 0.044715f;
  template <typename T>
  static constexpr int at_once = kAtOnce<T>;

  template <typename T, typename V>
  static V exponent(V x, V square) {
    constexpr float kLinear = kTwice * kExponent<T>;
    return x * (kLinear + kLinear * kCubic * square);
  }
  template <typename T, typename V>
  static V value(V x) { return x * sigmoid<T>(exponent<T>(x, x * x)).value; }
  template <typename T, typename V>
  static V slope(V x) {
    // Far out, where the slope is 0 or 1, the square would become infinite.
    const V square = map([](Vec square) { return min(splat(0x1p10f), square); }, x * x);
    const Sigmoid<V> s = sigmoid<T>(exponent<T>(x, square));
    return s.value + x * (s.value * s.rest) * (kTwice + 3.0f * kTwice * kCubic * square);
  }
};

struct SquaredRelu {
  template <typename T>
  static constexpr int at_once = 1;

  template <typename T>
  static Vec value(Vec x) {
    Vec positive = max(splat(0.0f), x);
    return positive * positive;
  }
  template <typename T>
  static Vec slope(Vec x) { return 2.0f * max(splat(0.0f), x); }
};

// x, with a bias where there is one.
template <typename T, typename V, typename Lanes>
V add(V x, const T* bias, int64_t i, Lanes lanes) { return bias == nullptr ? x : x + load(bias + i, lanes); }

template <typename Function, typename T>
void forward(T* to, const T* x, const T* bias, int64_t rows, int64_t cols) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    for_several_lanes<Function::template at_once<T>>(cols, [=](int64_t i, auto lanes) {
      const auto value = add(load_ahead(x + row * cols + i, lanes), bias, i, lanes);
      store(y, row * cols + i, Function::template value<T>(value), lanes);
    });
  });
}

template <typename Function, typename T>
void backward(T* to, float* dbias, float* partial, const T* dy, const T* x, const T* bias, int64_t rows, int64_t cols,
              int64_t blocks) {
  const Output<T> dx(to, rows, cols);
  for_row_blocks(rows, cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    float* sums = block_sums(partial, block, cols);
    for (int64_t row = begin; row < end; ++row) {
      for_several_lanes<Function::template at_once<T>>(cols, [=](int64_t i, auto lanes) {
        const auto value = add(load_ahead(x + row * cols + i, lanes), bias, i, lanes);
        const auto grad = load_ahead(dy + row * cols + i, lanes) * Function::template slope<T>(value);
        store(dx, row * cols + i, grad, lanes);
        add_to(sums, i, grad, lanes);
      });
    }
  });
  if (dbias != nullptr) sum_blocks(dbias, partial, blocks, cols);
}

// Rows hold gate then up, `cols` each: silu(gate) * up.
template <typename T>
void swiglu_forward_rows(T* to, const T* x, const T* bias, int64_t rows, int64_t cols) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    const T *gates = x + row * 2 * cols, *ups = gates + cols;
    for_several_lanes<kAtOnce<T>>(cols, [=](int64_t i, auto lanes) {
      const auto gate = add(load_ahead(gates + i, lanes), bias, i, lanes);
      const auto up = add(load_ahead(ups + i, lanes), bias, cols + i, lanes);
      store(y, row * cols + i, gate * sigmoid<T>(kExponent<T> * gate).value * up, lanes);
    });
  });
}

template <typename T>
void swiglu_backward_rows(T* to, float* dbias, float* partial, const T* dy, const T* x, const T* bias, int64_t rows,
                          int64_t cols, int64_t blocks) {
  const Output<T> dx(to, 2 * rows, cols);
  for_row_blocks(rows, 2 * cols, blocks, [=](int64_t block, int64_t begin, int64_t end) {
    float* sums = block_sums(partial, block, 2 * cols);
    for (int64_t row = begin; row < end; ++row) {
      const T *gates = x + row * 2 * cols, *ups = gates + cols;
      for_several_lanes<kAtOnce<T>>(cols, [=](int64_t i, auto lanes) {
        const auto gate = add(load_ahead(gates + i, lanes), bias, i, lanes);
        const auto up = add(load_ahead(ups + i, lanes), bias, cols + i, lanes);
        const auto grad = load_ahead(dy + row * cols + i, lanes);
        const auto s = sigmoid<T>(kExponent<T> * gate);
        const auto gate_grad = grad * up * (s.value + gate * (s.value * s.rest)), up_grad = grad * (gate * s.value);
        store(dx, row * 2 * cols + i, gate_grad, lanes);
        store(dx, row * 2 * cols + cols + i, up_grad, lanes);
        add_to(sums, i, gate_grad, lanes);
        add_to(sums, cols + i, up_grad, lanes);
      });
    }
  });
  if (dbias != nullptr) sum_blocks(dbias, partial, blocks, 2 * cols);
}

}  // namespace

void bias_gelu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    forward<Gelu>((T*)y, (const T*)x, (const T*)bias, rows, cols);
  });
}

void bias_gelu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                        int64_t rows, int64_t cols, int64_t blocks, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward<Gelu>((T*)dx, dbias, partial, (const T*)dy, (const T*)x, (const T*)bias, rows, cols, blocks);
  });
}

void squared_relu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    forward<SquaredRelu>((T*)y, (const T*)x, (const T*)bias, rows, cols);
  });
}

void squared_relu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                           int64_t rows, int64_t cols, int64_t blocks, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    backward<SquaredRelu>((T*)dx, dbias, partial, (const T*)dy, (const T*)x, (const T*)bias, rows, cols, blocks);
  });
}

void swiglu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    swiglu_forward_rows((T*)y, (const T*)x, (const T*)bias, rows, cols);
  });
}

void swiglu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                     int64_t rows, int64_t cols, int64_t blocks, int dtype) {
  with_dtype(dtype, [=](auto element) {
    using T = decltype(element);
    swiglu_backward_rows((T*)dx, dbias, partial, (const T*)dy, (const T*)x, (const T*)bias, rows, cols, blocks);
  });
}

}  // namespace megalite::MEGALITE_ISA
