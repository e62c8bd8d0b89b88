// The CPU kernels, declared for the instruction set MEGALITE_ISA. Tensors are contiguous; void pointers are to elements
// of the type that `dtype` names (dtype.h), float pointers to float32 whatever that type is. Arithmetic is in float32.
// Sizes and layouts are checked in megalite/ops, whose files say what each op computes.
#include <cstdint>

namespace megalite::MEGALITE_ISA {

// Norms of [rows, cols]. `residual` may be null; else `total` receives x + residual, and `dtotal` (may be null) is the
// gradient that arrives there. `partial` has room for 2 * blocks rows (LayerNorm) or `blocks` (RMSNorm); see rows.h.
void rms_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight, float* scale,
                      int64_t rows, int64_t cols, double epsilon, int dtype);
void rms_norm_backward(void* dx, float* dweight, float* partial, const void* dy, const void* dtotal, const void* x,
                       const void* weight, const float* scale, int64_t rows, int64_t cols, int64_t blocks, int dtype);
void layer_norm_forward(void* y, void* total, const void* x, const void* residual, const void* weight,
                        const void* bias, float* mean, float* scale, int64_t rows, int64_t cols, double epsilon,
                        int dtype);
void layer_norm_backward(void* dx, float* dweight, float* dbias, float* partial, const void* dy, const void* dtotal,
                         const void* x, const void* weight, const float* mean, const float* scale, int64_t rows,
                         int64_t cols, int64_t blocks, int dtype);

// Activations of [rows, cols] + bias [cols] (may be null; then so are `dbias` and `partial` [blocks, cols]). For SwiGLU,
// `x` and its bias are 2 * cols wide, gate then up, and `partial` is [blocks, 2 * cols].
void bias_gelu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void bias_gelu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                        int64_t rows, int64_t cols, int64_t blocks, int dtype);
void squared_relu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void squared_relu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                           int64_t rows, int64_t cols, int64_t blocks, int dtype);
void swiglu_forward(void* y, const void* x, const void* bias, int64_t rows, int64_t cols, int dtype);
void swiglu_backward(void* dx, float* dbias, float* partial, const void* dy, const void* x, const void* bias,
                     int64_t rows, int64_t cols, int64_t blocks, int dtype);

}  // namespace megalite::MEGALITE_ISA
