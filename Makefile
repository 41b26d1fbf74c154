# As root, with or without sudo:
# make run           install what is needed, then the main experiment: its table, its verdict, where the figures are
# make test          install what is needed, also for the virtual engine, then all tests
# make soak          the long tests that `make test` leaves out
# make check         ruff and mypy --strict
# make virtual       builds the kernel of the virtual engine
# make bench         the measurements that the README quotes
# make stock-kernel  the namespace engine on a distribution's kernel, in full emulation; tells which packages it needs

BIN := .venv/bin

.PHONY: setup setup-virtual run test soak check bench virtual stock-kernel

setup:
	@tools/setup.sh

setup-virtual:
	@tools/setup.sh virtual

run: setup
	@$(BIN)/fabric run isolation

test: export PYTHONDONTWRITEBYTECODE =  # Hundreds of processes start here: each would compile what it imports.
test: virtual
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

soak: virtual
	@$(BIN)/pytest -m soak

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/fabric bench setup
	@$(BIN)/fabric bench links
	@$(BIN)/fabric bench hfreduce
	@$(BIN)/fabric bench hops

virtual: setup-virtual
	@$(BIN)/fabric virtual build

stock-kernel: setup
	@tools/stock_kernel.sh
