#pragma once

namespace megalite {

// Keeps large blocks of memory in the process between uses, where the C library is glibc; MEGALITE_MALLOC=0 does not.
// Returns whether it did.
bool tune_malloc();

}  // namespace megalite
