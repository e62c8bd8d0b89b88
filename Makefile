# Everything a newcomer needs: `make quickstart` and `make test`, each from nothing.

PYTHON ?= python3
VENV ?= .venv
# Any torch >= 2.6 works. The pin keeps pip from choosing another build: to take one for your GPU, install it first
# or say e.g.  make TORCH="torch --index-url ..."
TORCH ?= torch==2.13.0

BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := setup.py CMakeLists.txt $(shell find megalite/csrc -type f 2>/dev/null)

.PHONY: install quickstart test gpu sanitize clean

install: $(READY)

$(READY): pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@

quickstart: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/quickstart/run.sh

test: $(READY)
	$(BIN)/python -m pytest

# On a machine with a GPU: every kernel's numbers on the device, then bandwidth, tokens/s and MFU.
gpu: $(READY)
	$(BIN)/python -m pytest tests/gpu
	$(BIN)/python -m benchmarks.gpu

# All kernels under AddressSanitizer and UBSan; the CUDA kernels by emulation on the CPU.
sanitize: $(READY)
	PYTHON="$(CURDIR)/$(BIN)/python" bash tests/native/asan.sh
	MEGALITE_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	$(BIN)/python -m pytest tests/cuda/test_ops.py tests/cuda/test_flat.py

clean:
	rm -rf $(VENV) build *.egg-info megalite/*.so examples/*/work
