#include "blending.h"

#include <algorithm>
#include <vector>

namespace megalite {

void build_blend(const double* weights, int64_t num_datasets, int64_t size, int16_t* dataset, int64_t* sample) {
  std::vector<int64_t> taken(num_datasets, 0);
  for (int64_t i = 0; i < size; ++i) {
    const double position = static_cast<double>(std::max<int64_t>(i, 1));
    int64_t best = 0;
    double most = weights[0] * position - static_cast<double>(taken[0]);
    for (int64_t d = 1; d < num_datasets; ++d) {
      const double behind = weights[d] * position - static_cast<double>(taken[d]);
      if (behind > most) {
        most = behind;
        best = d;
      }
    }
    dataset[i] = static_cast<int16_t>(best);
    sample[i] = taken[best]++;
  }
}

}  // namespace megalite
