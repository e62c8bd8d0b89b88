// Which data set, and which of its samples, each sample of a weighted blend comes from.
#pragma once

#include <cstdint>

namespace megalite {

// Greedy blending: sample i comes from the data set d that is furthest behind, i.e. has the largest
// weights[d] * max(i, 1) - (samples taken from d so far); the lowest d among equals. Weights sum to one.
void build_blend(const double* weights, int64_t num_datasets, int64_t size, int16_t* dataset, int64_t* sample);

}  // namespace megalite
