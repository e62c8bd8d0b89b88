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

}  // namespace megalite::MEGALITE_ISA
