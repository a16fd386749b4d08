# Every target sets itself up in .venv; repeated calls are quick.
#   make demo     build, train six losses, print tables and save topkopt-demo-*.png
#   make test     build, lint and run every test but those of topkopt.torch
#   make test-torch   those, in an environment that has PyTorch as well
#   make lint     the linters, the type checker, a build without compiler warnings, the C loops alone
#   make bench    every benchmark, recorded in asv_benches/results
#   make smoke    every benchmark once, failing when one fails; make smoke-torch for those of PyTorch
#   make race     ours against scikit-learn's solvers, into docs/performance.md
#   make bench-site        the curves of what is recorded there, in build/bench-site
#   make benchopt          a quick run of asv_benches/benchopt
#   make docs     the site, in build/site
#   make dist     sdist and wheel, checked and tried in empty environments
#   make dev      the editable installation alone
#   make clean    remove what the others made
# Every test again, on a build of its own in build/:
#   make sanitize          AddressSanitizer and UBSan watch the compiled code
#   make test-baseline     without AVX2, as older processors run it
#   make test-boundscheck  every index of the Cython code is checked
#   make test-aarch64      the C loops, compiled for 64-bit ARM and run by qemu

PYTHON ?= python3
JOBS ?= auto
MACHINE ?= one-core
BENCHMARKS ?=
BIN := .venv/bin
READY := .venv/ready
READY_FOR_DEMO := .venv/ready-for-demo
STRICT := build/strict
TORCH := build/torch
TORCH_TESTS := tests/torch topkopt/torch docs/torch.md \
    tests/test_examples.py::test_example[plot_finetune_torch]
OUTSIDE := $(PATH)
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))
export PATH := $(CURDIR)/$(BIN):$(PATH)
ASV := cd asv_benches && HOME="$$PWD/env" ../$(BIN)/asv
ASV_TORCH := cd asv_benches && HOME="$$PWD/env" ../$(TORCH)/bin/python -m asv

.PHONY: demo test test-torch lint bench smoke smoke-torch dev clean sanitize test-baseline \
    test-boundscheck test-aarch64 bench-site benchopt docs dist race
.NOTPARALLEL:  # the targets share .venv

demo: $(READY_FOR_DEMO)
	$(BIN)/python -m topkopt demo

test: lint
	$(BIN)/python -c 'import topkopt'  # rebuilds once, before the workers would all try to
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-torch: $(TORCH)/ready
	$(TORCH)/bin/python -c 'import topkopt'
	OMP_NUM_THREADS=1 $(TORCH)/bin/python -m pytest -n $(JOBS) --dist load --doctest-glob=torch.md $(TORCH_TESTS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/cython-lint topkopt
	$(BIN)/mypy
	test -f $(STRICT)/build.ninja || $(BIN)/meson setup $(STRICT) -Dwerror=true
	$(BIN)/meson compile -C $(STRICT)
	$(CC) $(LOOPS) -o build/kernels
	build/kernels

bench: $(READY)
	mkdir -p asv_benches/env
	$(ASV) machine --yes --machine $(MACHINE)
	$(ASV) run --python=same --machine $(MACHINE) --set-commit-hash="$$(git rev-parse HEAD)" \
	    $(BENCHMARKS:%=--bench %) --show-stderr
	$(BIN)/python asv_benches/trim.py

smoke: export TOPKOPT_BENCH_QUICK := 1
smoke: $(READY)
	mkdir -p asv_benches/env
	$(ASV) machine --yes
	$(ASV) check --python=same
	$(ASV) run --python=same --quick --dry-run --show-stderr

smoke-torch: export TOPKOPT_BENCH_QUICK := 1
smoke-torch: $(TORCH)/ready
	mkdir -p asv_benches/env
	$(ASV_TORCH) machine --yes
	$(ASV_TORCH) run --python=same --bench '^torch_losses' --quick --dry-run --show-stderr

dev: $(READY)

clean:
	rm -rf .venv .venv-docs .venv-benchopt build dist asv_benches/env

# Under ASan, Python takes every object from malloc, so that each has its own guarded surroundings.
# libstdc++ is there from the start, or exceptions of C++ extensions would escape the interceptors.
sanitize: OPTIONS := -Ddebug=true -Db_sanitize=address,undefined,float-cast-overflow \
    -Dc_args=-fno-sanitize-recover=all
sanitize: WATCHED := env PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)"
test-baseline: OPTIONS := -Dc_args=-DTOPKOPT_BASELINE_ONLY
test-boundscheck: OPTIONS := -Dboundscheck=true

# An environment that borrows the packages of .venv, but not the editable installation there, and
# finds `reference` in the checkout, but not topkopt, whose compiled part is not there. Pytest only
# captures what Python writes, so that the last words of a process that a sanitizer ends are seen.
sanitize test-baseline test-boundscheck: export PYTHONSAFEPATH := 1
sanitize test-baseline test-boundscheck: $(READY)
	$(BIN)/python -m venv --without-pip build/$@
	{ $(BIN)/python -c '$(PACKAGES)'; pwd; } > "$$(build/$@/bin/python -c '$(PACKAGES)')/borrowed.pth"
	$(BIN)/python -m pip --python build/$@/bin/python install --quiet --no-deps \
	    --no-build-isolation -Cbuild-dir=build/$@/objects $(OPTIONS:%=-Csetup-args=%) .
	$(WATCHED) build/$@/bin/python -m pytest -n $(JOBS) --dist loadfile --fuzz-seconds 20 \
	    --capture sys tests README.md reference/README.md --pyargs topkopt

# PyTorch is large, so it has an environment of its own beside .venv, whose packages and editable
# installation it shares. The tests name one version of it, as the extra `test-torch` says.
$(TORCH)/ready: $(READY) pyproject.toml
	$(BIN)/python -m venv --without-pip $(TORCH)
	$(BIN)/python -c '$(PACKAGES)' | sed 's/.*/import site; site.addsitedir("&")/' \
	    > "$$($(TORCH)/bin/python -c '$(PACKAGES)')/borrowed.pth"
	$(BIN)/python -m pip --python $(TORCH)/bin/python install --quiet $$($(BIN)/python -c \
	    'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test-torch"])')
	touch $@

# The build runs in the environment itself, so that an editable installation can repeat it.
$(READY): EXTRAS := dev
$(READY_FOR_DEMO): EXTRAS := sklearn,plot
$(READY) $(READY_FOR_DEMO): pyproject.toml
	@PATH="$(OUTSIDE)" $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "topkopt needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	PATH="$(OUTSIDE)" $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip ninja $$($(BIN)/python -c \
	    'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[$(EXTRAS)]'
	touch $@ $(READY_FOR_DEMO)

# The site has an environment and a build of its own: `make docs` leaves .venv alone.
DOCS := .venv-docs/bin
.venv-docs/ready: pyproject.toml
	PATH="$(OUTSIDE)" $(PYTHON) -m venv .venv-docs
	$(DOCS)/python -m pip install --quiet --upgrade pip ninja $$($(DOCS)/python -c \
	    'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	PATH="$(CURDIR)/$(DOCS):$(OUTSIDE)" $(DOCS)/python -m pip install --quiet --no-build-isolation \
	    -Cbuild-dir=build/docs --editable '.[docs]'
	touch $@

docs: .venv-docs/ready
	PATH="$(CURDIR)/$(DOCS):$(OUTSIDE)" $(DOCS)/sphinx-build -W --keep-going -q -d build/doctrees docs build/site
	rm -rf build/site/benchmarks
	test ! -d build/bench-site || cp -r build/bench-site build/site/benchmarks
	@echo "open build/site/index.html"

# The C loops alone: Python and its packages are not needed for the other processor. `make lint`
# runs them on the machine at hand, so that the two cannot grow apart.
CROSS ?= aarch64-linux-gnu
QEMU ?= qemu-aarch64
LOOPS := -O3 -std=gnu11 -fopenmp-simd -fno-trapping-math -fno-math-errno -Wall -Wextra \
    -Wno-unused-function -Wno-pass-failed -Werror -Itopkopt/_kernels tests/kernels.c -lm
test-aarch64:
	mkdir -p build
	$(CROSS)-gcc -static $(LOOPS) -o build/kernels-$(CROSS)
	$(QEMU) build/kernels-$(CROSS)

# What a release needs: the metadata, the contents, a wheel from the sdist, and the wheel's tests in an
# empty environment, where nothing can be compiled and topkopt is not the one of the checkout.
dist:
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist/tools
	build/dist/tools/bin/python -m pip install --quiet build twine check-wheel-contents 'validate-pyproject[all]'
	build/dist/tools/bin/validate-pyproject pyproject.toml
	PATH="$(OUTSIDE)" build/dist/tools/bin/python -m build --outdir dist .
	build/dist/tools/bin/twine check --strict dist/*
	build/dist/tools/bin/check-wheel-contents dist/*.whl
	$(PYTHON) -m venv build/dist/empty
	PATH=/nonexistent CC=/nonexistent build/dist/empty/bin/python -m pip install --quiet \
	    --only-binary :all: "$$(echo dist/*.whl)[test]"
	cd build/dist && empty/bin/python $(CURDIR)/.github/test_installed.py $(CURDIR) -n $(JOBS) \
	    --dist loadfile --fuzz-seconds 5
	sha256sum dist/*.tar.gz

# Results are small files, one per machine and commit, and committed when they are worth keeping.
race: $(READY)
	$(BIN)/python asv_benches/race.py --page docs/performance.md --picture docs/race.png

bench-site: $(READY)
	mkdir -p asv_benches/env
	$(ASV) machine --yes --machine $(MACHINE)
	$(ASV) run --python=same --machine $(MACHINE) --bench just-discover
	$(ASV) publish --html-dir ../build/bench-site
	@echo "open build/bench-site/index.html, through a web server: python -m http.server -d build/bench-site"

.venv-benchopt/ready: pyproject.toml
	PATH="$(OUTSIDE)" $(PYTHON) -m venv .venv-benchopt
	.venv-benchopt/bin/python -m pip install --quiet benchopt '.[sklearn]'
	touch $@

benchopt: .venv-benchopt/ready
	cd asv_benches/benchopt && ../../.venv-benchopt/bin/benchopt run . --config config.yml --no-plot
