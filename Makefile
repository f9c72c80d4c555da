# `make test` sets up and runs all tests on a new Debian machine that has Rust. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One target folder for everything, tools and reports included; `make clean` removes it.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
TOOLS := $(TARGET)/tools
BROWSER := $(TARGET)/browser
REPORTS := $(TARGET)/reports
FETCH := corewire-cli/fetch,corewire-data/fetch
DENY_VERSION := 0.20.2
PLAYWRIGHT_VERSION := 1.65.0
PYTHON := $(TARGET)/python
TORCH_VERSION := 2.15.0
MATURIN_VERSION := 1.16.0

.PHONY: help setup build test fmt lint doc deny answers sklearn mpi neon browser python parquet unit soak bench clean

help: ## Lists the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Builds the command line: target/release/corewire.
	cargo build --release

PARTS := setup fmt lint doc deny answers sklearn mpi neon browser python parquet unit

test: ## Sets up and runs everything below but soak and bench, and says how long each part took.
	@for part in $(PARTS); do \
	    begun=$$SECONDS; $(MAKE) --no-print-directory $$part; echo "make $$part took $$((SECONDS - begun)) s"; \
	done; echo "make test took $$SECONDS s"

# Installs what is missing, with apt: MPI and libclang for the engine `mpi`, a browser for the report. Whatever cannot be
# installed is skipped below, and says so.
setup: ## Installs the system packages that the tests need, where apt is there.
	@missing=(); \
	command -v cc >/dev/null || missing+=(build-essential); \
	{ command -v mpirun && command -v mpicc; } >/dev/null || missing+=(openmpi-bin libopenmpi-dev); \
	[ -n "$${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null || missing+=(libclang-dev); \
	command -v "$${CHROMIUM:-chromium}" >/dev/null || missing+=(chromium); \
	command -v qemu-aarch64 >/dev/null || missing+=(qemu-user); \
	command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross); \
	command -v python3 >/dev/null || missing+=(python3); \
	python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv); \
	command -v node >/dev/null || missing+=(nodejs); \
	command -v npm >/dev/null || missing+=(npm); \
	command -v strace >/dev/null || missing+=(strace); \
	if [ $${#missing[@]} = 0 ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "skipped: no apt-get to install $${missing[*]}"; exit 0; fi; \
	root=(); \
	if [ "$$(id -u)" != 0 ]; then \
	    if ! command -v sudo >/dev/null; then echo "skipped: neither root nor sudo to install $${missing[*]}"; exit 0; fi; \
	    root=(sudo); \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	"$${root[@]}" apt-get update -qq || echo "apt-get update failed: trying with the lists at hand"; \
	for package in "$${missing[@]}"; do \
	    "$${root[@]}" apt-get install -y -qq --no-install-recommends "$$package" >/dev/null \
	        || echo "skipped: apt-get could not install $$package"; \
	done

fmt: ## Checks the formatting; `cargo fmt --all` mends it.
	cargo fmt --all --check

# Twice: downloads are a feature, and neither build may warn.
lint: ## Runs clippy over all targets, with and without downloads; warnings are errors.
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --all-targets --features $(FETCH) -- -D warnings

doc: ## Builds the documentation; broken links are errors.
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace

deny: $(TOOLS)/bin/cargo-deny ## Checks licences, sources and bans of the dependencies, and advisories where they can be fetched.
	@# `cargo deny` runs every check it is given even after one has failed, so one call tells all.
	@if ! [ -x $(TOOLS)/bin/cargo-deny ]; then echo "skipped: cargo-deny could not be built"; exit 0; fi; \
	PATH="$(TOOLS)/bin:$$PATH" cargo deny --all-features --log-level error check bans licenses sources; \
	if timeout 10 git ls-remote --exit-code https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then \
	    PATH="$(TOOLS)/bin:$$PATH" cargo deny --all-features check advisories; \
	else echo "skipped: advisories, whose database cannot be reached"; fi

# A debug build: it checks a few hundred crates in a second, and an optimised one would only take longer to build.
$(TOOLS)/bin/cargo-deny:
	@cargo install --quiet --locked --debug --version $(DENY_VERSION) --root $(TOOLS) --target-dir $(TOOLS)/build cargo-deny \
	    && rm -rf $(TOOLS)/build || echo "skipped: cargo-deny could not be built"

answers: ## Checks the sketch's known answers by a program that shares no line with it.
	@if command -v python3 >/dev/null; then python3 crates/sketch/check_known_answers.py; \
	else echo "skipped: the known answers in Python, there is no python3"; fi

# An environment of its own: nothing is installed beside the system's packages. Whatever fails before its last line leaves no
# mark, and is tried again.
SKLEARN := $(TARGET)/sklearn
sklearn: ## Holds models against scikit-learn, and exports against onnxruntime and numpy.
	@if ! command -v python3 >/dev/null; then echo "skipped: scikit-learn, there is no python3"; exit 0; fi; \
	if ! [ -e $(SKLEARN)/ready ]; then \
	    { python3 -m venv $(SKLEARN) \
	        && $(SKLEARN)/bin/pip install --quiet --disable-pip-version-check scikit-learn onnxruntime numpy \
	        && touch $(SKLEARN)/ready; } || { echo "skipped: scikit-learn and onnxruntime cannot be installed"; exit 0; }; \
	fi; \
	cargo build --quiet -p corewire-cli; \
	rm -rf $(TARGET)/sklearn-check; \
	XDG_CACHE_HOME=$(TARGET)/sklearn-check/cache $(SKLEARN)/bin/python crates/cli/tests/sklearn/check.py \
	    $(TARGET)/debug/corewire $(TARGET)/sklearn-check "$${COREWIRE_DATA:-}"

mpi: ## Runs the laws of the engine `mpi`, and jobs under mpirun, on 1 to 4 processes.
	@if command -v mpirun >/dev/null && command -v mpicc >/dev/null; then crates/comm-mpi/tests/run.sh && crates/cli/tests/mpi.sh; \
	else echo "skipped: the engine mpi, there is no Open MPI"; fi

# Only the sketch has code for an instruction set. Statistics are left out: they say nothing that the same bits do not.
NEON := aarch64-unknown-linux-gnu
neon: ## Runs the sketch's tests with its NEON kernel under qemu-user.
	@if [ "$$(uname -m)" = aarch64 ]; then echo "skipped: the emulation of NEON, this CPU has it"; exit 0; fi; \
	if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then \
	    echo "skipped: the NEON kernel, there is no qemu-user or no gcc-aarch64-linux-gnu"; exit 0; fi; \
	if ! rustup target add $(NEON) >/dev/null 2>&1; then echo "skipped: the NEON kernel, Rust's $(NEON) cannot be had"; exit 0; fi; \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	    cargo test --quiet --target $(NEON) -p corewire-sketch --features parallel --lib \
	        --test known_answers --test definition --test bad_input

browser: $(BROWSER)/node_modules/playwright-core ## Opens sample reports in a real browser.
	@if ! command -v node >/dev/null || ! command -v "$${CHROMIUM:-chromium}" >/dev/null || ! [ -d $< ]; then \
	    echo "skipped: the report in a browser, there is no node, chromium or playwright-core"; exit 0; fi; \
	rm -rf $(REPORTS); \
	COREWIRE_REPORT_SAMPLES=$(REPORTS) cargo test --quiet --workspace --bin corewire samples_are_written; \
	CHROMIUM=$$(command -v "$${CHROMIUM:-chromium}") NODE_PATH=$(BROWSER)/node_modules \
	    node crates/cli/tests/report_browser/check.mjs $(REPORTS)/*.html

$(BROWSER)/node_modules/playwright-core:
	@if command -v npm >/dev/null; then \
	    npm install --no-save --no-audit --no-fund --loglevel=error --prefix $(BROWSER) playwright-core@$(PLAYWRIGHT_VERSION) \
	        || echo "skipped: npm could not install playwright-core"; \
	fi

# `make unit` runs it too, as a part of the workspace.
fuzz: ## Fuzzes every reader for five seconds.
	cargo test --quiet -p corewire-fuzz -- --nocapture

# The wheel is a debug build: the workspace optimises those, and most of it is there already. A test takes networks to PyTorch and back by
# the command line.
python: $(PYTHON)/bin/pytest ## Builds the Python wheel and runs its tests, with PyTorch, in a virtual environment that is kept.
	@if ! [ -x $< ]; then echo "skipped: the Python package, its environment cannot be made"; exit 0; fi; \
	cargo build --quiet -p corewire-cli; \
	rm -rf $(PYTHON)/wheels; \
	$(PYTHON)/bin/maturin build --quiet --manifest-path python/Cargo.toml --interpreter $(PYTHON)/bin/python --out $(PYTHON)/wheels; \
	$(PYTHON)/bin/pip install --quiet --force-reinstall --no-deps $(PYTHON)/wheels/*.whl; \
	cd python && $(PYTHON)/bin/pytest

$(PYTHON)/bin/pytest:
	@if ! python3 -m venv $(PYTHON); then echo "skipped: python3 -m venv failed"; exit 0; fi; \
	$(PYTHON)/bin/pip install --quiet maturin==$(MATURIN_VERSION) numpy scikit-learn torch==$(TORCH_VERSION) torchvision safetensors tensorboard \
	    && $(PYTHON)/bin/pip install --quiet pytest \
	    || echo "skipped: pip could not install torch, torchvision, safetensors, tensorboard, scikit-learn, numpy, maturin and pytest"

# Apart from `unit`, whose tests see to it that a build without the feature says what to do.
parquet: ## Reads Parquet files of every kind, and damaged ones; and pictures.
	cargo test --quiet -p corewire-data --features parquet,pictures --test parquet
	cargo test --quiet -p corewire-data --features parquet,pictures --lib pictures

# With downloads, so that their tests run too. The last line adds up what cargo printed for every test program.
unit: ## Runs all tests of the workspace, and adds them up.
	@mkdir -p $(TARGET); status=0; \
	cargo test --workspace --features $(FETCH) --no-fail-fast 2>&1 | tee $(TARGET)/test.log || status=$$?; \
	awk '/^test result:/ { passed += $$4; failed += $$6 } END { printf "%d passed, %d failed\n", passed, failed }' $(TARGET)/test.log; \
	exit $$status

soak: ## Runs the tests that take longer numbers and more mutations when asked to.
	COREWIRE_SOAK=1 cargo test --workspace --features $(FETCH) --no-fail-fast

bench: ## Runs the benchmarks.
	cargo bench --workspace

clean: ## Removes everything that was built.
	cargo clean
