# sudo make run    install what is needed, then the main experiment: its table, its verdict, where the figures are
# sudo make test   install what is needed, then all tests
# sudo make soak   the long tests that "make test" leaves out
# make check       ruff and mypy --strict
# make virtual     builds the kernel of the virtual engine
# sudo make bench  the measurements that the README quotes

BIN := .venv/bin

.PHONY: setup run test soak check bench virtual

setup:
	@tools/setup.sh

run: setup
	@$(BIN)/fabric run isolation

test: setup virtual
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

soak: setup virtual
	@$(BIN)/pytest -m soak

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup
	@$(BIN)/fabric bench setup
	@$(BIN)/fabric bench links
	@$(BIN)/fabric bench hfreduce
	@$(BIN)/fabric bench hops

virtual: setup
	@$(BIN)/fabric virtual build
