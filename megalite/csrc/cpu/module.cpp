// The CPU kernels as Python functions: a submodule for each instruction set that this processor runs, and `cpu`, the
// best of them.
#include "cpu/module.h"

#include "cpu/malloc.h"
#include "raw.h"

#if defined(__x86_64__)
#define MEGALITE_ISA avx512_bf16
#include "cpu/kernels.h"
#undef MEGALITE_ISA
#define MEGALITE_ISA avx512
#include "cpu/kernels.h"
#undef MEGALITE_ISA
#define MEGALITE_ISA avx2
#include "cpu/kernels.h"
#undef MEGALITE_ISA
#endif
#define MEGALITE_ISA generic
#include "cpu/kernels.h"
#undef MEGALITE_ISA

namespace py = pybind11;

namespace megalite {
namespace {

// Blocks of rows whose sums become a parameter's gradient (kernels/rows.h): enough for the threads of any machine to
// share, few enough that summing them costs nothing.
constexpr int kRowBlocks = 64;

#define MEGALITE_DEFINE(name) m.def(#name, raw(&name))
#define MEGALITE_BIND(isa)                           \
  using namespace isa;                               \
  py::module_ m = native.def_submodule("cpu_" #isa); \
  m.attr("ISA") = #isa;                              \
  m.attr("ROW_BLOCKS") = kRowBlocks;                 \
  MEGALITE_DEFINE(rms_norm_forward);                 \
  MEGALITE_DEFINE(rms_norm_backward);                \
  MEGALITE_DEFINE(layer_norm_forward);               \
  MEGALITE_DEFINE(layer_norm_backward);              \
  MEGALITE_DEFINE(bias_gelu_forward);                \
  MEGALITE_DEFINE(bias_gelu_backward);               \
  MEGALITE_DEFINE(squared_relu_forward);             \
  MEGALITE_DEFINE(squared_relu_backward);            \
  MEGALITE_DEFINE(swiglu_forward);                   \
  MEGALITE_DEFINE(swiglu_backward);                  \
  MEGALITE_DEFINE(softmax_forward);                  \
  MEGALITE_DEFINE(softmax_backward);                 \
  MEGALITE_DEFINE(attention_forward);                \
  MEGALITE_DEFINE(attention_backward);               \
  MEGALITE_DEFINE(rotary);                           \
  MEGALITE_DEFINE(dropout_residual_forward);         \
  MEGALITE_DEFINE(dropout_residual_backward);        \
  MEGALITE_DEFINE(cross_entropy_peaks);              \
  MEGALITE_DEFINE(cross_entropy_sums);               \
  MEGALITE_DEFINE(cross_entropy_gradient);           \
  MEGALITE_DEFINE(add_column_sums);                  \
  MEGALITE_DEFINE(add_elements);                     \
  MEGALITE_DEFINE(adamw);                            \
  MEGALITE_DEFINE(sum_of_squares);                   \
  MEGALITE_DEFINE(normal_fill);                      \
  return m;

py::module_ bind_generic(py::module_& native) { MEGALITE_BIND(generic) }

#if defined(__x86_64__)
py::module_ bind_avx2(py::module_& native) { MEGALITE_BIND(avx2) }
py::module_ bind_avx512(py::module_& native) { MEGALITE_BIND(avx512) }
py::module_ bind_avx512_bf16(py::module_& native) { MEGALITE_BIND(avx512_bf16) }

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

}  // namespace

void bind_cpu(py::module_& native) {
  native.attr("MALLOC_TUNED") = tune_malloc();
  native.attr("cpu") = bind_generic(native);
#if defined(__x86_64__)
  if (has_avx2()) native.attr("cpu") = bind_avx2(native);
  if (has_avx512()) native.attr("cpu") = bind_avx512(native);
  if (has_avx512_bf16()) native.attr("cpu") = bind_avx512_bf16(native);
#endif
}

}  // namespace megalite
