// Python module megalite._cuda. It links no driver, so that it can be imported on a machine without a GPU.
#include "api.h"
#include "cuda/kernels.h"
#include "raw.h"

namespace py = pybind11;
using namespace megalite;

namespace {

// The most rows of partial sums that kernels use (column_sums.h).
constexpr int kRowBlocks = 1024;

}  // namespace

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "CUDA kernels of megalite.";
  m.attr("API") = kApi;
  m.attr("ROW_BLOCKS") = kRowBlocks;
#define MEGALITE_BIND(name) m.def(#name, raw(&cuda::name))
  MEGALITE_BIND(rms_norm_forward);
  MEGALITE_BIND(rms_norm_backward);
  MEGALITE_BIND(layer_norm_forward);
  MEGALITE_BIND(layer_norm_backward);
  MEGALITE_BIND(bias_gelu_forward);
  MEGALITE_BIND(bias_gelu_backward);
  MEGALITE_BIND(squared_relu_forward);
  MEGALITE_BIND(squared_relu_backward);
  MEGALITE_BIND(swiglu_forward);
  MEGALITE_BIND(swiglu_backward);
  MEGALITE_BIND(softmax_forward);
  MEGALITE_BIND(softmax_backward);
  MEGALITE_BIND(rotary);
  MEGALITE_BIND(dropout_residual_forward);
  MEGALITE_BIND(dropout_residual_backward);
  MEGALITE_BIND(cross_entropy_peaks);
  MEGALITE_BIND(cross_entropy_sums);
  MEGALITE_BIND(cross_entropy_gradient);
  MEGALITE_BIND(adamw);
  MEGALITE_BIND(sum_of_squares);
  MEGALITE_BIND(normal_fill);
#undef MEGALITE_BIND
}
