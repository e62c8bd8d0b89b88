// Raised when the signature or meaning of a function of megalite._native or megalite._cuda changes, together with API
// in megalite/native.py, so that a module left over from an older build is not used.
#pragma once

namespace megalite {

constexpr int kApi = 6;

}  // namespace megalite
