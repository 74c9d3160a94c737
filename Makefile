# make run     the demo                          make run ARGS="--seed 3"
# make test    lint, types, all tests            make test ARGS="-k transaction"
#              only what failed in the last run  make test ARGS="--last-failed"
#              in random order                   make test ARGS="-p randomly" WORKERS=2
# make lint    ruff, formatting and mypy only
# make coverage  unit and property tests, and the lines that they run    make coverage COVERED=tests/unit/client
# make bench   the benchmarks                    make bench ARGS="--quick"
# make soak    damage and the simulated worlds for an hour, from where the last soak ended    make soak MINUTES=480
#              then brokers that stand still for minutes, ours and Apache Kafka, where there is Java
# make damage    every byte of a small data directory damaged, some 128,000 cases    make damage ARGS="--share 0.1"
# make docs    the documentation as a site, under build/site; needs npm once
# make dist    sdists and wheels of a release under dist/, proven in new environments    make dist ARGS="--snapshot"
# make native  build and install the native module anew, after a change of native/
# make venv    only set up .venv (the others do it themselves when it is needed)
#
# Needs Python >= 3.11 (make PYTHON=/path/to/python chooses one). Spark needs Java >= 17: if there is none, one is
# installed from PyPI into .venv. Tests against Apache Kafka need Java and Maven and are skipped without them.

PY := .venv/bin/python
export PYTHON

# A test run starts a thousand Python processes, and without bytecode each compiles the sources anew: a third of what a
# Spark worker takes to be there.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv native run test lint coverage bench soak damage docs dist
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

venv:
	@./tools/make_venv.sh

# The Python sources name the crate that belongs to them: a module with another stamp is refused.
native:
	@./tools/make_venv.sh --native
	@$(PY) -m tools.native_stamp --write

run: venv
	@.venv/bin/fencepost demo $(ARGS)

lint: venv
	@echo "==> ruff" && $(PY) -m ruff check . && $(PY) -m ruff format --check .
	@echo "==> mypy" && $(PY) -m mypy $(TYPED)

TYPED = src lab/src tests tools $(foreach folder,bench examples,$(if $(wildcard $(folder)/*.py),$(folder)))

# Much of a test run is waiting, for Java to start and for timeouts: four processes, also on two cores. Six took 1,720 s
# there where four took 1,569 s. A file stays in one process, which shares its brokers and sessions.
WORKERS ?= 4
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# All three always run, so that one red line does not hide the others. mypy is one process: it runs beside pytest, rather
# than leave the other processors idle for a minute. What it finds comes after pytest's summary, which else is the last
# line, also when the run is ended: the shell waits for it.
test: venv
	@trap 'kill $$mypy 2>/dev/null' TERM INT; failed=""; types=$$(mktemp); \
	echo "==> ruff"; $(PY) -m ruff check . || failed="$$failed ruff"; \
	$(PY) -m ruff format --check . || failed="$$failed format"; \
	$(PY) -m mypy $(TYPED) >"$$types" 2>&1 & mypy=$$!; \
	echo "==> pytest, and mypy beside it"; $(PY) -m pytest $(PARALLEL) $(ARGS); pytest=$$?; \
	wait $$mypy || { failed="$$failed mypy"; echo "==> mypy"; cat "$$types"; }; rm "$$types"; \
	if [ -n "$$failed" ]; then echo "==> red:$$failed"; fi; \
	[ $$pytest -eq 0 ] && [ -z "$$failed" ]

# Not a part of `make test`: tracing takes a third more processor time, and the tests that start Spark, Kafka and other
# clients would show few lines for it.
COVERED ?= tests/unit tests/property
coverage: venv
	@$(PY) -m coverage erase; $(PY) -m coverage run -m pytest $(PARALLEL) $(ARGS) $(COVERED); status=$$?; \
	$(PY) -m coverage combine -q; $(PY) -m coverage report; exit $$status

bench: venv
	@if [ -f bench/__main__.py ]; then exec $(PY) -m bench $(ARGS); fi; \
	for script in bench/[a-z]*.py; do echo "==> $$script"; $(PY) "$$script" $(ARGS) || exit 1; done

docs: venv
	@$(PY) -m mkdocs build --strict

dist: venv
	@$(PY) -m tools.make_dist $(ARGS)

MINUTES ?= 60

damage: venv
	@$(PY) -m tests.support.damage_campaign $(ARGS)

# A third of the time is the damage campaign's: all its cases take one core about three hours. Brokers that stand still
# wait for wall clocks of foreign clients, so their five minutes come on top.
soak: venv
	@$(PY) -m tests.support.damage_campaign --minutes $$(( $(MINUTES) / 3 )) --resume .soak-damage
	@.venv/bin/fencepost simulate --minutes $$(( $(MINUTES) - $(MINUTES) / 3 )) --resume .soak $(ARGS)
	@$(PY) -m tests.support.long_stops
