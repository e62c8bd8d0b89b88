// Python module megalite._native. Arrays come in checked and C-contiguous: megalite/data/index_builders.py sees to
// that, where an error can name the data set; the work runs without the GIL.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "api.h"
#include "cpu/module.h"
#include "index/blending.h"
#include "index/sample_index.h"
#include "index/shuffle.h"

namespace py = pybind11;

namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
Array<T> sample_index(const megalite::SampleIndexInput& in, int num_threads) {
  Array<T> out({static_cast<py::ssize_t>(in.num_samples + 1), static_cast<py::ssize_t>(2)});
  T* data = out.mutable_data();
  py::gil_scoped_release unlocked;
  megalite::build_sample_index<T>(in, data, num_threads);
  return out;
}

py::array build_sample_index(const Array<int32_t>& lengths, const py::array& order, int64_t num_samples,
                             int64_t seq_length, int64_t extra, bool as_int64, int num_threads) {
  megalite::SampleIndexInput in{};
  in.lengths = lengths.data();
  in.order = order.data();
  in.order_is_int64 = order.itemsize() == 8;
  in.num_positions = order.size();
  in.num_samples = num_samples;
  in.seq_length = seq_length;
  in.extra = extra;
  if (as_int64) return sample_index<int64_t>(in, num_threads);
  return sample_index<int32_t>(in, num_threads);
}

py::tuple build_blend(const Array<double>& weights, int64_t size) {
  Array<int16_t> dataset(size);
  Array<int64_t> sample(size);
  int16_t* dataset_data = dataset.mutable_data();
  int64_t* sample_data = sample.mutable_data();
  {
    py::gil_scoped_release unlocked;
    megalite::build_blend(weights.data(), weights.size(), size, dataset_data, sample_data);
  }
  return py::make_tuple(dataset, sample);
}

// Shuffles `data`, of 4-byte or 8-byte elements, and moves `words` on, both in place; returns the new position.
int64_t shuffle(py::array data, Array<uint32_t> words, int64_t position) {
  megalite::Twister twister{words.mutable_data(), position};
  void* elements = data.mutable_data();
  const int64_t size = data.size();
  const bool wide = data.itemsize() == 8;
  py::gil_scoped_release unlocked;
  if (wide) {
    megalite::shuffle(static_cast<uint64_t*>(elements), size, twister);
  } else {
    megalite::shuffle(static_cast<uint32_t*>(elements), size, twister);
  }
  return twister.position;
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "Index builders and CPU kernels of megalite in C++.";
  m.attr("API") = megalite::kApi;
  megalite::bind_cpu(m);
  m.def("build_sample_index", &build_sample_index, py::arg("lengths"), py::arg("order"), py::arg("num_samples"),
        py::arg("seq_length"), py::arg("extra"), py::arg("as_int64"), py::arg("num_threads"));
  m.def("build_blend", &build_blend, py::arg("weights"), py::arg("size"));
  m.def("shuffle", &shuffle, py::arg("data"), py::arg("words").noconvert(), py::arg("position"));
}
