#!/usr/bin/env bash
# Builds megalite._native with the address and undefined-behaviour sanitizers in a copy of the sources, and runs the tests
# of the ops and of the index builders with it. Any access outside a tensor, or undefined behaviour, ends the run.
#
#     bash tests/native/asan.sh [pytest arguments]
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
export PATH="$(dirname "$python"):$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$root/megalite" "$root/tests" "$root/benchmarks" "$root/pyproject.toml" "$work"
rm -f "$work"/megalite/*.so
cmake -S "$root" -B "$work/build" -G Ninja -DMEGALITE_SANITIZE=ON -DPython_EXECUTABLE="$python" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" -DPYBIND11_FINDPYTHON=ON \
    -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$work/megalite" > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"

cd "$work"  # python -m puts it first on the path
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' build/CMakeCache.txt)
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
# Python and torch free nothing at their end, and torch's own libraries are not instrumented.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2
overrun="import torch, megalite.native as n; x, y = torch.ones(8, 33), torch.ones(8, 33)
n.native().cpu.softmax_forward(y.data_ptr(), x.data_ptr(), 0, 8, 1, 34, 1, 0, 1.0, 0)"
if "$python" -c "$overrun" 2> overrun.log || ! grep -q AddressSanitizer overrun.log; then
    echo "asan.sh: the sanitizer does not report an access outside a tensor" >&2
    exit 1
fi
# These two start processes of their own, in an environment without the sanitizers.
others=(--ignore tests/ops/test_status.py --ignore tests/ops/test_kernels.py)
(($#)) || set -- tests/ops tests/data/test_index_builders.py
"$python" -m pytest -q -p no:cacheprovider "${others[@]}" "$@"
