# SieveMQ: everything a developer runs. `make` alone lists the targets.
# Only Python 3.11 or newer has to be there; PYTHON=/path/to/python chooses one.

BIN := .venv/bin
HOST ?= 127.0.0.1
PORT ?= 7672
HTTP_PORT ?= 7680
# A file for the numbers of tests that passed, failed and were skipped; `make test` names one for each part.
COUNTS ?=
# A test that hangs is ended by pytest-timeout (pyproject.toml), with every thread's traceback.
PYTEST := $(BIN)/python -m pytest -q $(COUNTS:%=--counts=%)
# Spark's tests have an environment of their own, which can be made while other tests run.
PYTEST_SPARK := .venv-spark/bin/python -m pytest -q $(COUNTS:%=--counts=%)
# The compiled build is asked about what it compiles, and what leans on that: SDK and behaviour are Python over it, and of
# their tests those with the most traffic suffice. It has last failures of its own.
PYTEST_COMPILED := .venv-compiled/bin/python -m pytest -q $(COUNTS:%=--counts=%) --compiled -o cache_dir=.pytest_cache/compiled
COMPILED_TESTS := tests/core/test_compiled.py tests/core/wire tests/core/message $(addprefix tests/broker/,domain matching protocols session) \
	$(addprefix tests/broker/server/test_,amqp_clients.py floods.py sockets.py stomp_clients.py stomp_protocol.py) \
	$(addprefix tests/client/,engine messages test_cut_anywhere.py test_ends.py test_failover.py test_blocked.py) \
	tests/behaviour/scenarios tests/behaviour/model \
	tests/hostile/fuzz/test_both_builds.py tests/hostile/fuzz/test_session.py
# Which build is measured: BENCH_PYTHON=.venv-compiled/bin/python is the compiled one (`make venv-compiled`).
BENCH_PYTHON ?= $(BIN)/python
export BENCH_PYTHON
# Folders that Ruff looks at; mypy and import-linter read theirs from pyproject.toml.
CODE := core client broker testkit pipeline tests benchmarks release examples website docker hatch_build.py

# The tests start Python again and again: where no bytecode is kept, each time compiles all of the sources.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run check test venv lint format fast coverage slow docker alerts chart image-requirements venv-compiled to-spark to-compile compiled soak kills backups takeovers cluster rolling simulate fuzz \
	release pythons platforms interop kits spark spark-slow spark-cluster coverage-map demo bench bench-growth bench-latency bench-floods bench-peers screenshots site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start a broker on the loopback, with its console (HOST, PORT, HTTP_PORT)
	@.ci/venv broker
	@exec $(BIN)/sievemq broker --host $(HOST) --port $(PORT) --http-port $(HTTP_PORT)

# How many tests run at a time: one more than processors, since many of them wait.
WORKERS ?= 3
# What runs the fast tests: .ci/run measures their coverage on the way.
FAST ?= fast

check: ## what every change should pass, in four minutes: linters, types, import contracts, the fast tests
	@.ci/venv dev
	@$(MAKE) --no-print-directory --keep-going --jobs 2 lint fast

test: ## linters, type checker and all tests, the rest too where one fails; installs what they need into .venv
	@.ci/venv dev
	@MAKE="$(MAKE)" FAST=$(FAST) .ci/test

venv: ## make .venv with everything for development
	@.ci/venv dev

lint: ## ruff, its formatter, generated text, mypy --strict, the import contracts, the console's JavaScript and CSS
	@.ci/venv dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/python client/generate_blocking.py --check
	$(BIN)/mypy --python-executable $(if $(wildcard .venv-spark/.installed),.venv-spark,.venv)/bin/python
	$(BIN)/lint-imports --no-cache
	.ci/console

format: ## let ruff rewrite what it can, and renew what is generated
	@.ci/venv dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)
	$(BIN)/python client/generate_blocking.py

fast: ## the tests that take seconds, some at a time (ARGS="-n 0" for one)
	@.ci/venv dev
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow and not docker and not spark" $(ARGS)

coverage: ## the fast tests, measured: which branches none of them takes; fails if they are too many
	@.ci/venv dev
	@.ci/coverage $(COUNTS:%=--counts=%) -n $(WORKERS) --dist worksteal -m "not slow and not docker and not spark" $(ARGS)

venv-compiled: LEVEL ?= 3
venv-compiled: ## make .venv-compiled: the wheel as users get it, its hot modules compiled
	@.ci/venv dev
	@LEVEL=$(LEVEL) .ci/compiled

to-spark: # what `spark` and `lint` ask: mypy checks the pipeline with Spark's types where they are
	@if .ci/java; then .ci/spark; fi

to-compile: LEVEL ?= 0
to-compile: # what `compiled` asks, before Spark's tests, which wait more than they compute
	@if .ci/compiler; then LEVEL=$(LEVEL) .ci/compiled; fi

compiled: LEVEL ?= 0
compiled: ## the fast tests of what is compiled, on a wheel that is (LEVEL=3: as users get it); without a compiler, none
	@.ci/venv dev
	@if .ci/compiler; then LEVEL=$(LEVEL) .ci/compiled && $(PYTEST_COMPILED) \
		-n $(WORKERS) --dist worksteal -m "not slow and not docker and not spark" $(COMPILED_TESTS) $(ARGS); fi

# The tests of a file stay together: what they share takes long to make. They wait more than others, and come last.
# Only files with slow tests are collected: all files take each worker longer than many a test.
slow: WORKERS := 5
slow: SLOW_TESTS = $(if $(findstring tests/,$(ARGS)),,$(shell grep -rl --include='test_*.py' 'mark\.slow' tests))
slow: ## the tests that take longer: whole demo, deep queues, killed brokers, the console in Chromium
	@.ci/venv dev
	@.ci/chromium || true
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "slow and not docker and not spark" $(SLOW_TESTS) $(ARGS)

docker: ## the tests of the image, where a Docker engine answers
	@.ci/venv dev
	$(PYTEST) -m docker tests/site/docker tests/testkit/test_container.py $(ARGS)

alerts: ## check and test the alerts and the dashboard with Prometheus' own tool, which is downloaded where it is missing
	@.ci/venv dev
	@.ci/promtool
	$(PYTEST) tests/broker/server/test_watching.py $(ARGS)

chart: ## check the chart for Kubernetes with helm and Kubernetes' schemas, which are downloaded where they are missing
	@.ci/venv dev
	@.ci/chart
	$(PYTEST) tests/site/packaging/test_chart.py $(ARGS)

image-requirements: ## renew docker/requirements.txt: what the image installs, pinned, with hashes
	@docker/renew-requirements

release: ## an sdist, wheels, SBOMs and notes in dist/, checked and installed; publishes nothing (ARGS="--level 0 --once")
	@.ci/venv dev
	@.ci/release
	@exec .venv-release/bin/python -m release.run $(ARGS)

pythons: ## the fast tests on each other Python of this machine, of pyenv or on PATH (ARGS="-k queue")
	@.ci/venv dev
	@.ci/release
	@exec .venv-release/bin/python -m release.pythons $(ARGS)

platforms: ## the types as on Windows, on macOS and with the newest Python: names that one of them lacks
	@.ci/venv dev
	@for platform in win32 darwin linux; do \
		$(BIN)/mypy --platform $$platform --python-version 3.14 --cache-dir build/mypy/$$platform \
			core client broker testkit pipeline || exit 1; \
	done

soak: ## clients in many processes, killed at random; every message is accounted for (ARGS="--seconds 600 --seed 7")
	@.ci/venv dev
	@exec $(BIN)/python tests/hostile/chaos/soak.py $(ARGS)

fuzz: ## hostile bytes for all that reads some: wire, STOMP, messages, selectors, store, HTTP (ARGS="--seconds 60 --target store")
	@.ci/venv dev fuzz
	@exec $(BIN)/python -m tests.hostile.fuzz.run $(ARGS)

interop: ## clients and test suites that others wrote, fetched on the way; writes docs/interop.md (ARGS="--only stompit")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.interop.run $(ARGS)

kits: ## the test kits of other languages, each with its own runner: node and npm, Go, Java and Maven
	@.ci/venv broker
	@export PATH="$(CURDIR)/$(BIN):$$PATH" && \
	(cd testkit/node && npm install --silent --no-audit --no-fund && npm test) && \
	(cd testkit/go && go vet ./... && go test ./...) && \
	(cd testkit/java && mvn -q -B test)

kills: ## a broker with a data directory, killed two hundred times under load (ARGS="--kills 50 --seed 7")
	@.ci/venv dev
	@exec $(BIN)/python tests/broker/store/kill.py $(ARGS)

backups: ## backups of a broker under load, each restored (ARGS="--backups 10 --messages 200000 --postgres")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.broker.store.backups $(ARGS)

takeovers: ## two brokers on a PostgreSQL of their own, two hundred faults under load (ARGS="--faults 50 --seed 7 --kinds kill")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.broker.store.takeover $(ARGS)

cluster: ## three shards on four brokers, a hundred faults under load, clients redirected (ARGS="--faults 20 --seed 7")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.broker.store.cluster $(ARGS)

rolling: ## a rolling upgrade of four brokers with three shards under load, and a step back (ARGS="--rounds 1")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.broker.store.rolling $(ARGS)

simulate: ## takeovers between brokers in two thousand simulated worlds (ARGS="--seeds 200 --loses", "--cluster")
	@.ci/venv dev
	@exec $(BIN)/python -m tests.broker.store.simulation $(ARGS)

# Two at a time: most of what Spark's tests take is waiting. Those of a file share a Spark that has seen their queries before.
spark: ## the tests of the Spark pipeline, where there are any and Java can be had
	@if [ -d tests/pipeline ] && .ci/java; then \
		.ci/spark && $(PYTEST_SPARK) -n 2 --dist loadfile --no-loadscope-reorder tests/pipeline -m "spark and not slow" $(ARGS); \
	fi

spark-slow: ## the Spark tests that take minutes: all flights, ten thousand random pairs
	@.ci/java && .ci/spark && $(PYTEST_SPARK) tests/pipeline -m "spark and slow" $(ARGS)

spark-cluster: ## a Spark cluster whose driver, workers and broker are killed, minutes; needs root and mvn (ARGS="--seed 7 --faults driver,broker")
	@if .ci/java; then .ci/cluster && exec $(BIN)/python -m tests.pipeline.cluster.run $(ARGS); fi

coverage-map: ## which test covers which rule of the API; fails on a rule without one
	@.ci/venv dev
	@$(BIN)/python tests/behaviour/rules/coverage_map.py

demo: ## 336,776 real flights through a queue and a topic, checked against SQLite (ARGS="--limit 20000")
	@.ci/venv demo
	@exec $(BIN)/sievemq demo flights $(ARGS)

bench: ## micro and macro benchmarks beside their baselines (ARGS=--quick)
	@.ci/venv broker
	@exec $(BENCH_PYTHON) -m benchmarks.run $(ARGS)

bench-growth: ## the cost of a message as size, queues, consumers, depth, connections, selectors grow; plots (ARGS=--quick)
	@.ci/venv dev spark
	@exec $(BENCH_PYTHON) -m benchmarks.growth $(ARGS)

bench-latency: ## send to receipt at shares of what is sustained (ARGS="--api aio"; beside others, tables, plot: PEERS=all)
	@.ci/venv broker
	@if [ -n "$(PEERS)" ]; then exec $(BENCH_PYTHON) -m benchmarks.peers.latency --peers "$(PEERS)" $(ARGS); \
	else exec $(BENCH_PYTHON) -m benchmarks.latency $(ARGS); fi

bench-floods: ## how long other clients wait during a flood, and the longest turns (ARGS="--rows commit,amqp --durable")
	@.ci/venv broker
	@exec $(BENCH_PYTHON) -m benchmarks.floods $(ARGS)

bench-peers: ## SieveMQ beside other brokers, fetched on the way (ARGS="--peers nats,redis --workloads W2 --repeats 3")
	@.ci/venv broker
	@exec $(BENCH_PYTHON) -m benchmarks.peers.run $(ARGS)

screenshots: ## the pictures of docs/console.md and docs/tutorial.md, from real brokers in a real Chromium
	@.ci/venv dev
	@.ci/chromium
	@$(BIN)/python -m tests.site.console.screenshots
	@$(BIN)/python -m tests.site.docs.tutorial

site: ## the documentation site, in build/site; fails on a dead link or an undocumented name (looked at in Chromium, if there is one)
	@.ci/venv dev
	@.ci/venv site
	@$(BIN)/python -m website.build
	@if .ci/chromium; then $(BIN)/python -m tests.site.docs.look build/site $(ARGS); fi

clean: ## remove caches and what was built, .venv too
	rm -rf .venv .venv-compiled .venv-pythons .venv-release .venv-spark build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis benchmarks/results testkit/node/node_modules testkit/java/target
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
