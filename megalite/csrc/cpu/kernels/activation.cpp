// Activations of the MLP: the gradient of the bias that they add first is summed in the same pass.
#include "cpu/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

namespace megalite::MEGALITE_ISA {
namespace {

// GELU in its tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), is x sigmoid(2u).
struct Gelu {
  static constexpr float kTwice = 1.5957691216f, kCubic = 0.044715f;
  static Vec twice_u(Vec x) { return x * (kTwice + kTwice * kCubic * (x * x)); }
  template <typename T>
  static Vec value(Vec x) { return x * sigmoid<T>(twice_u(x)).value; }
  template <typename T>
  static Vec slope(Vec x) {
    Sigmoid s = sigmoid<T>(twice_u(x));
    return s.value + x * (s.value * s.rest) * (kTwice + 3.0f * kTwice * kCubic * (x * x));
  }
};

struct SquaredRelu {
  template <typename T>
  static Vec value(Vec x) {
    Vec positive = max(splat(0.0f), x);
    return positive * positive;
  }
  template <typename T>
  static Vec slope(Vec x) { return 2.0f * max(splat(0.0f), x); }
};

template <typename T>
Vec load_or_zero(const T* from, int64_t i, Whole) { return from == nullptr ? Vec{} : load(from + i); }
template <typename T>
Vec load_or_zero(const T* from, int64_t i, Part part) { return from == nullptr ? Vec{} : load(from + i, part); }

template <typename Function, typename T>
void forward(T* to, const T* x, const T* bias, int64_t rows, int64_t cols) {
  const Output<T> y(to, rows, cols);
  for_rows(rows, cols, [=](int64_t row) {
    for_lanes(cols, [=](int64_t i, auto lanes) {
      Vec value = load_ahead(x + row * cols + i, lanes) + load_or_zero(bias, i, lanes);
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
      for_lanes(cols, [=](int64_t i, auto lanes) {
        Vec value = load_ahead(x + row * cols + i, lanes) + load_or_zero(bias, i, lanes);
        Vec grad = load_ahead(dy + row * cols + i, lanes) * Function::template slope<T>(value);
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
    for_lanes(cols, [=](int64_t i, auto lanes) {
      Vec gate = load_ahead(gates + i, lanes) + load_or_zero(bias, i, lanes);
      Vec up = load_ahead(ups + i, lanes) + load_or_zero(bias, cols + i, lanes);
      store(y, row * cols + i, gate * sigmoid<T>(gate).value * up, lanes);
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
      for_lanes(cols, [=](int64_t i, auto lanes) {
        Vec gate = load_ahead(gates + i, lanes) + load_or_zero(bias, i, lanes);
        Vec up = load_ahead(ups + i, lanes) + load_or_zero(bias, cols + i, lanes);
        Vec grad = load_ahead(dy + row * cols + i, lanes);
        Sigmoid s = sigmoid<T>(gate);
        Vec gate_grad = grad * up * (s.value + gate * (s.value * s.rest)), up_grad = grad * gate * s.value;
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
