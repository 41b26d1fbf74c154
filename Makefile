# As root, with or without sudo:
# make run           installs dependencies, then runs the main experiment: its tables, its verdict, where the figures are
# make test          installs dependencies, also of the virtual engine, Slurm, Ray, Open MPI, perftest, a browser, clang, then runs all tests
# make soak          runs the long tests that `make test` leaves out
# make check         runs ruff and mypy --strict
# make virtual       builds the kernel of the virtual engine
# make bench         the measurements that docs/performance.md quotes
# make artifact      published setups beside ours, on one page: build/artifact (FULL=1: with the seeds of intervals)
# make release       dist/: wheel, source, the built kernel with its source, SHA256SUMS; installs without a compiler
# make docs          builds the site of docs/, with the API reference, and prints where it is
# make stock-kernel  the namespace engine on a distribution's kernel, in full emulation; names the packages it needs

BIN := .venv/bin

.PHONY: setup setup-virtual setup-test run test soak check bench artifact docs virtual release stock-kernel

setup:
	@tools/setup.sh

setup-virtual:
	@tools/setup.sh virtual

setup-test:
	@tools/setup.sh test

# At a rate that leaves a fifth of two slow cores idle.
run: setup
	@$(BIN)/fabric run experiments/isolation/two_minutes.yaml --rate "4 Mbit/s"

test: export PYTHONDONTWRITEBYTECODE =  # Hundreds of processes start here: each would compile what it imports.
test: setup-test virtual
	@$(BIN)/python -m compileall -q -j 0 fabric topologies controllers traffic cluster runs experiments app
	@$(BIN)/pytest -n 5 --dist loadfile --no-loadscope-reorder

soak: virtual
	@$(BIN)/pytest -m soak

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/fabric bench setup
	@$(BIN)/python -m app.benchmarks links
	@$(BIN)/python -m app.benchmarks hfreduce
	@$(BIN)/python -m app.benchmarks hops

# A number outside of theory (exit code 1) or of what was published (4) is a result, and on the page.
artifact: virtual
	@$(BIN)/fabric reproduce $(if $(FULL),,--quick) --out build/artifact || { code=$$?; [ $$code -eq 1 ] || [ $$code -eq 4 ]; }

docs: setup
	@$(BIN)/python -c "import furo, myst_parser, sphinx" 2> /dev/null || \
	    $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[docs]'
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "docs: $(CURDIR)/build/docs/index.html"

virtual: setup-virtual
	@$(BIN)/fabric virtual build

release: virtual
	@$(BIN)/python tools/release.py

stock-kernel: setup
	@tools/stock_kernel.sh
