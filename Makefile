# Onceway. `make` lists the targets. Everything is installed by the project itself: Debian packages (.setup/debian-packages.txt) and .venv.
SHELL := /bin/sh
PYTHON ?= /usr/bin/python3
BIN := .venv/bin
ARGS ?=
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Without bytecode files each of a thousand programs compiles its modules itself: 0.9 s a start in place of 0.3 s.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test docs coverage model lint firmware dist hil soak bench bench-ingest size wheel deb lock audit try-install try-clone install clean firmware-test hexes

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: debian-run .venv/ready ## install what is missing (Debian packages, .venv); a second run does nothing

debian-run:
	@.setup/debian.sh gateway build centre

debian-%:
	@.setup/debian.sh $*

.venv/ready: pyproject.toml .setup/constraints.txt | debian-run
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than Python 3.11; name another one: make setup PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing Python packages into .venv"
	@{ $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .setup/constraints.txt --upgrade pip setuptools wheel && \
	   $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation --constraint .setup/constraints.txt --editable '.[dev]'; } >.venv/install.log 2>&1 || \
	   { tail -n 20 .venv/install.log >&2; echo "error: pip could not install the Python packages (its whole output: .venv/install.log)" >&2; exit 1; }
	@touch $@

firmware: setup hexes ## build the sensor's HEX for the Uno, the host build, the simulated board and its boot loader

hexes: | debian-run
	@$(MAKE) --no-print-directory -s -C firmware
	@$(MAKE) --no-print-directory -s -C firmware/sim

dist: setup ## the Arduino library as a ZIP, in build/dist
	@$(MAKE) --no-print-directory -s -C firmware dist

demo: firmware ## the main job, on this machine, with faults: make demo ARGS="--seed 7 --readings 50 --keep"
	@$(BIN)/onceway hil demo $(ARGS)

lint: setup ## ruff, mypy --strict, that imports go one way, the figures of the house, its words, and the evidence for what the guides promise
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell *.md .setup firmware gateway hil provisioning systemd tests
	@$(BIN)/mypy
	@mkdir -p build && $(BIN)/lint-imports --no-cache >build/imports.txt || { cat build/imports.txt; exit 1; }
	@$(BIN)/python -m tests.house >build/house.txt || { cat build/house.txt; exit 1; }
	@$(BIN)/python -m tests.prose >build/prose.txt || { cat build/prose.txt; exit 1; }
	@$(BIN)/python -m tests.promises --check >build/promises.txt || { cat build/promises.txt; exit 1; }

test: ## lint, build, and run all tests
	@$(MAKE) --no-print-directory -s -j$$(( $$(nproc) + 1 )) -Otarget debian-test size firmware-test
	@$(BIN)/python -m tests $(ARGS)

debian-test: | debian-run

# These programs are built while pip and apt wait for the network. No other target writes them.
firmware-test: | debian-run
	@$(MAKE) --no-print-directory -s -C firmware test

coverage: firmware ## which branches the tests take, by package (an hour): the table, and build/coverage/holes.txt (ARGS="tests/broker": of these tests)
	@$(BIN)/python -m tests.coverage $(ARGS)

model: setup ## TLC looks at every state of the models in tests/models (some minutes)
	@$(BIN)/python -m tests.models.check

docs: setup ## write the generated pages (configuration keys, metrics, statements of MQTT), and figures of guides
	@mkdir -p build
	@$(BIN)/python -m tests.config.reference_page
	@$(BIN)/python -m tests.web.metrics_page
	@$(BIN)/python -m tests.mqtt.statements
	@$(BIN)/python -m tests.clients.page
	@$(BIN)/python -m tests.promises --write >build/promises.txt
	@$(BIN)/python -m tests.states
	@$(BIN)/python -m tests.hil.inputs
	@$(BIN)/python -m tests.hil.outputs

size: firmware ## flash, RAM and stack of the firmware against their budgets; writes build/size.json
	@$(MAKE) --no-print-directory -s -C firmware size

build/labgrid: .setup/constraints.txt | setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .setup/constraints.txt --upgrade --target $@ labgrid && touch $@

hil: debian-hil firmware build/labgrid ## the rig's core, which judges each claim (ARGS=--all: every bench), two more at once than there are cores (as root), then a look at a report in a browser, and a run on a foreign board; reports in build/hil
	@$(BIN)/onceway hil run --jobs $$(( $$(nproc) + 2 )) $(if $(filter --all,$(ARGS)),,--core) $(filter-out --all,$(ARGS)); ran=$$?; [ $$ran -lt 128 ] || exit $$ran; $(BIN)/python -m pytest tests/hil/look.py tests/hil/real.py && exit $$ran

soak: debian-test debian-soak firmware ## hours (as root; MQTT clients of npm, go, cargo and Python 3.13 where these are): power cuts and kills under load (TRACES=a folder of recorded links), fuzzing, random schedules of the link
	@$(BIN)/python -m tests.durability.outages --cuts 200 --kills 100
	@$(BIN)/python -m tests.broker.fuzz --inputs 1000000
	@$(BIN)/python -m tests.mqtt.fuzz --inputs 1000000
	@$(BIN)/python -m tests.links.soak --device python $(ARGS)
	@$(BIN)/python -m tests.links.soak --device c $(ARGS)
	@$(BIN)/python -m tests.links.fuzz
	@$(BIN)/python -m tests.bridge.faults
	@$(BIN)/python -m tests.site.soak --seeds 100000
	@$(BIN)/python -m tests.clients --install
	@$(BIN)/python -m tests.sim.whole.soak --seeds 100000
	@$(BIN)/python -m tests.sim.whole.sabotages
	@$(MAKE) --no-print-directory -s -C firmware size READINGS=20000
	@$(BIN)/python -m tests.hil.sabotages
	@$(BIN)/onceway hil run hil/campaigns/cuts.toml --repeat 10 --dir build/cuts $(if $(TRACES),--trace $(TRACES))
	@$(BIN)/onceway hil run hil/campaigns/steady.toml --keep --dir build/steady
	@$(BIN)/python -m tests.service.year
	@$(BIN)/python -m pytest -m soak
	@$(BIN)/python -m pytest tests/ingest/soak_processes.py tests/ingest/soak_s3.py tests/ingest/soak_moved.py
	@$(MAKE) --no-print-directory try-clone

bench: debian-bench firmware ## measure, beside Debian's mosquitto where there is a peer; prints tables, writes build/bench.json (ARGS="throughput fan")
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-ingest: setup ## measure the ingest alone: make bench-ingest ARGS="--history 5000000"; writes build/bench.json
	@$(BIN)/python tests/benchmarks/bench_ingest.py $(ARGS)

clean: ## remove what was built (not .venv)
	rm -rf build

wheel: firmware ## build/wheel/onceway-VERSION-py3-none-any.whl, with the boards' HEX files
	@rm -rf build/lib build/bdist.* build/wheel provisioning/hex && mkdir -p provisioning/hex
	@for board in uno nano nano-old pro-mini mega2560; do cp build/firmware/$$board/sensor.hex provisioning/hex/$$board.hex; done
	@cp build/firmware/uno/sensor-lora.hex provisioning/hex/uno-lora.hex
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .

deb: debian-package wheel ## the Debian package of a gateway for this machine: build/onceway_VERSION_ARCH.deb (ARGS=--all: for Debian 12 and 13, amd64 and arm64)
	@$(BIN)/python .setup/deb.py $(ARGS)

lock: setup ## write .setup/gateway.txt: what the Debian package holds, with hashes
	@$(BIN)/python .setup/lock.py

build/audit: .setup/audit.py | setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $@ pip-audit==2.10.1 && touch $@

audit: build/audit ## compare the packages of the Debian package with known faults (exit code 3: some could not be looked up); ARGS="--vulnerability-service osv": another source
	@PYTHONPATH=build/audit $(BIN)/python .setup/audit.py $(ARGS)

try-install: debian-try debian-package wheel ## the package in bare Debian 12 and 13 userlands (as root): install, boot, a reading, upgrade, roll back, remove, purge
	@$(BIN)/python .setup/deb.py --all
	@$(MAKE) --no-print-directory -s -C firmware BUILD=../build/hasty DEFINES=-DSENSOR_INTERVAL_MS=500 ../build/hasty/uno/sensor.hex
	@$(BIN)/python .setup/try_install.py $(ARGS)

try-clone: debian-try ## a clone in bare Debian 12 and 13 userlands (as root): make demo and make test, by root and by a user; hours (ARGS="13 user": one of them)
	@$(PYTHON) .setup/try_clone.py $(ARGS)

install: deb ## build the Debian package and install it here (as root)
	apt-get install -y ./$$(ls -t build/onceway_*_$$(dpkg --print-architecture).deb | head -1)
