# Every target sets itself up in .venv; repeated calls are quick.
#   make demo     build, train six losses, print tables and save topkopt-demo-*.png
#   make test     build, lint and run every test
#   make lint     the linters, the type checker and a build without compiler warnings
#   make bench    every benchmark, recorded in asv_benches/results
#   make smoke    every benchmark once, failing when one fails
#   make dev      the editable installation alone
#   make clean    remove what the others made

PYTHON ?= python3
JOBS ?= auto
BIN := .venv/bin
READY := .venv/ready
STRICT := build/strict
OUTSIDE := $(PATH)
# Where a rebuild looks for cython and meson.
export PATH := $(CURDIR)/$(BIN):$(PATH)
ASV := cd asv_benches && HOME="$$PWD/env" ../$(BIN)/asv

.PHONY: demo test lint bench smoke dev clean

demo: $(READY)
	$(BIN)/python -m topkopt demo

test: lint
	$(BIN)/python -c 'import topkopt'  # rebuilds once, before the workers would all try to
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/cython-lint topkopt
	$(BIN)/mypy
	test -f $(STRICT)/build.ninja || $(BIN)/meson setup $(STRICT) -Dwerror=true
	$(BIN)/meson compile -C $(STRICT)

bench: $(READY)
	mkdir -p asv_benches/env
	$(ASV) machine --yes
	$(ASV) run --python=same --set-commit-hash="$$(git rev-parse HEAD)" --show-stderr

smoke: export TOPKOPT_BENCH_QUICK := 1
smoke: $(READY)
	mkdir -p asv_benches/env
	$(ASV) machine --yes
	$(ASV) check --python=same
	$(ASV) run --python=same --quick --dry-run --show-stderr

dev: $(READY)

clean:
	rm -rf .venv build asv_benches/env asv_benches/html asv_benches/results

# The build runs in the environment itself, so that an editable installation can repeat it.
$(READY): pyproject.toml
	@PATH="$(OUTSIDE)" $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "topkopt needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	PATH="$(OUTSIDE)" $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip ninja $$($(BIN)/python -c \
	    'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	touch $@
