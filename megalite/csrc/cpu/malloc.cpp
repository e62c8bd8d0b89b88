// glibc maps every large block anew and gives it back at once when it is freed. A training step allocates and frees the
// same large tensors over and over, and would pay for fresh zeroed pages each time.
#include "cpu/malloc.h"

#include <cstdlib>
#include <cstring>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace megalite {

bool tune_malloc() {
  const char* wanted = std::getenv("MEGALITE_MALLOC");
  if (wanted != nullptr && std::strcmp(wanted, "0") == 0) return false;
#if defined(__GLIBC__)
  constexpr int kGigabyte = 1 << 30, kLargest = 2147483647;
  return mallopt(M_MMAP_THRESHOLD, kGigabyte) == 1 && mallopt(M_TRIM_THRESHOLD, kLargest) == 1;
#else
  return false;
#endif
}

}  // namespace megalite
