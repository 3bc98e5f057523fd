# Commensal. `make` or `make help` lists the targets.
#
# Every recipe that needs Go asks scripts/setup for it: a go command that is new enough
# for go.mod, installed or fetched when the machine has none.

SHELL        := bash
.SHELLFLAGS  := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS    += --no-print-directory

# The agent is one static binary; nothing here needs a C compiler but test-race.
export CGO_ENABLED = 0

PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= /etc/systemd/system
CONFDIR := /etc/commensal

# An archive without git's history has no description.
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)
LDFLAGS := -X main.version=$(VERSION)

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := .tools/golangci-lint-$(GOLANGCI_VERSION)

VULNCHECK_VERSION := v1.9.0
VULNCHECK         := .tools/govulncheck-$(VULNCHECK_VERSION)

# What a developer may set: ARGS of the demo, PKG and TESTFLAGS of tests, times.
ARGS      ?=
PKG       ?= ./...
TESTFLAGS ?=
FUZZTIME  ?= 5s
BENCHTIME ?= 1s
FORCE     ?=
# Seeds that nobody has played: they begin with the minute in which they are drawn.
DRAWN     := $(shell date -u +%y%m%d%H%M)
SEEDS     ?= $(DRAWN)0000..$(DRAWN)1999

# Code that touches no kernel state, which other tests on the machine could disturb.
PURE := ./model/... ./policy/... ./engine/... ./record/... ./node/journal/... ./internal/glob/... ./node/source/... ./node/match/... ./agent/config/...

# The rig: which kernel its guests run, on which machine, and which tests.
KERNEL  ?= 6.12
KERNELS := 6.1 6.12
MACHINE ?= rdt
RUN     ?=

.PHONY: help build hub guest demo fleet fleet-demo bench-fleet web pages-test boards-test spark-test bucket-test test lint test-race docs bpf rig rig-test rig-exec rig-demo rig-systemd clean-rig soak reliability release-test reproducible results fuzz bench microbench install install-hub uninstall clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) |
		while IFS=$$'\t' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

build: ## Build bin/commensal and bin/commensal-lab
	@go=$$(scripts/setup build)
	"$$go" build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/commensal ./cmd/commensal-lab
	echo "bin/commensal bin/commensal-lab ($(VERSION))"

guest: ## Build bin/commensal-guest, static, which answers inside virtual machines (docs/GUESTS.md)
	@go=$$(scripts/setup build)
	CGO_ENABLED=0 "$$go" build -trimpath -buildvcs=false -ldflags '-s -w $(LDFLAGS)' -o bin/ ./cmd/commensal-guest
	echo "bin/commensal-guest ($(VERSION))"

# The query engine is C++ behind a Go module of its own (sql/); nothing else needs a compiler.
hub: ## Build bin/commensal-hub, the fleet's service, and bin/commensal-sql, its query engine (docs/OPERATIONS.md)
	@go=$$(scripts/setup hub)
	"$$go" build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/commensal-hub
	cd sql && CGO_ENABLED=1 "$$go" build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o ../bin/commensal-sql .
	echo "bin/commensal-hub bin/commensal-sql ($(VERSION))"

# What npm gives is committed, so that nobody needs npm; the pages ask nothing of the network.
web: ## Fetch the pages' charting library anew (needs npm): fleet/hub/web/uPlot.*
	@scratch=$$(mktemp -d)
	trap 'rm -rf "$$scratch"' EXIT
	(cd "$$scratch" && npm pack --silent uplot@1.6.32 >/dev/null && tar xzf uplot-1.6.32.tgz)
	cp "$$scratch"/package/dist/uPlot.iife.min.js "$$scratch"/package/dist/uPlot.min.css fleet/hub/web/
	cp "$$scratch"/package/LICENSE fleet/hub/web/uPlot.LICENSE

# A browser is 300 MB of packages that nothing else needs: so its test is no part of `make test`, where it skips without one.
pages-test: ## Look at the hub's pages in a headless Chromium (installs one)
	@go=$$(scripts/setup pages)
	"$$go" test -count=1 -v -run Pages ./fleet/hub

# What `make test` cannot say of deploy/ without Prometheus's own program.
boards-test: ## Check alert rules and an example of Prometheus's configuration with promtool (installs it), the dashboards with Grafana's model
	@go=$$(scripts/setup boards)
	promtool check rules deploy/alerts.yaml
	promtool check config deploy/prometheus.yaml
	promtool test rules deploy/alerts_test.yaml
	"$$go" test -count=1 -v -run 'CheckExpr|Dashboards|Alerts' ./internal/repository

# Spark is half a gigabyte of Java that no hub needs: so its test is no part of `make test`, where it skips without.
SPARK := .tools/spark
spark-test: $(SPARK)/lock ## Ask Spark what the hub's own engine answers, and compare (installs Java and Spark)
	@go=$$(scripts/setup spark)
	"$$go" test -count=1 -v -run Spark ./fleet/hub

$(SPARK)/lock: scripts/spark.lock
	@scripts/setup spark >/dev/null
	rm -rf $(SPARK)
	python3 -m venv $(SPARK)
	pip='$(SPARK)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --no-build-isolation'
	grep '^setuptools' $< | $$pip -r /dev/stdin
	$$pip -r $<
	cp $< $@

# The server is a hundred modules that nothing else needs: so its tests are no part of `make test`, where they skip without one.
VERSITYGW_VERSION := v1.8.0
VERSITYGW         := .tools/versitygw-$(VERSITYGW_VERSION)
bucket-test: $(VERSITYGW) ## Test the hub's bucket against a real S3 server (builds one)
	@go=$$(scripts/setup build)
	VERSITYGW='$(CURDIR)/$(VERSITYGW)' "$$go" test -count=1 -v -run RealServer ./fleet/bucket/s3

$(VERSITYGW):
	@go=$$(scripts/setup build)
	mkdir -p .tools/new
	GOBIN="$(CURDIR)/.tools/new" "$$go" install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION) \
		2> >(grep -v '^go: downloading' >&2)
	mv .tools/new/versitygw $@

fleet: build hub ## Run a hub and an agent that only observes this machine (as root), until Ctrl-C; ARGS="--dir ..." keeps what they have
	@exec bin/commensal-hub try $(ARGS)

fleet-demo: build hub ## Play a hub with 200 simulated nodes and two real agents (as root; some minutes); ARGS="--stay" leaves its pages open
	@scripts/setup demo >/dev/null
	exec bin/commensal-lab run fleet $(ARGS)

# A target of its own: it needs the hub beside the lab, takes some ten minutes, and wants a machine that nothing else uses; no test waits for it.
bench-fleet: build hub ## Print what the hub's work costs beside its goals and two rivals (which root installs); ARGS="--quick"
	@scripts/setup rivals >/dev/null || true # a rival that is not there has a row that says so
	@exec bin/commensal-lab run fleet-bench $(ARGS)

demo: ## Show interference found and held back on this machine (as root); ARGS="..." go to commensal-lab demo
	@if [ "$$(id -u)" != 0 ]; then
		echo "make demo makes cgroups and limits them: run it as root (sudo make demo)" >&2
		exit 4
	fi
	scripts/setup demo >/dev/null
	$(MAKE) build
	exec bin/commensal-lab demo $(ARGS)

# Tests of simulations, of pure code, of the hub and of sources of latency over loopback, which disturb nobody: three packages at a time, since the hub's mostly wait.
SIMULATED := $(PURE) ./twin/... ./fleet/... ./slo $(addprefix ./cmd/commensal-,hub lab) $(addprefix ./lab/,balm cache calibrate coldpages cpi2 disk drc fleet headroom oracle rdt scenario)

# -p 1: tests against the real kernel share one machine. Two packages at a time would be
# each other's interference: load, cgroups and a scheduler delay that neither made.
# -count=1: what the kernel says is no input that Go's test cache knows of.
# -vet=off: lint comes first, and vets them all.
# Fuzz targets run on their seeds here; `make fuzz` goes on from them.
test: lint supply ## Vet, lint and test; what CI runs. As root, or the kernel's tests skip
	@go=$$(scripts/setup test)
	simulated=$$("$$go" list $(SIMULATED))
	failed=0
	collect=GOGC=400 # simulations make much garbage of little that stays; what runs on nodes is tested as it runs there
	for way in '-xF -p=3' '-vxF -p=1'; do
		packages=$$("$$go" list $(PKG) | grep "$${way% *}" -e "$$simulated") &&
			{ env $$collect "$$go" test "$${way#* }" -vet=off -count=1 $(TESTFLAGS) $$packages || failed=1; }
		collect=
	done
	exit $$failed

# The one program in Python is a page long, and asks Spark (make spark-test).
PYLINT := .tools/pylint
lint: $(GOLANGCI) $(PYLINT)/lock ## Vet and lint
	@go=$$(scripts/setup test)
	export PATH="$$(dirname "$$go"):$$PATH"
	"$$go" vet $(PKG)
	$(GOLANGCI) run $(PKG)
	cd sql && CGO_ENABLED=1 ../$(GOLANGCI) run --config ../.golangci.yml ./...
	cd ..
	$(PYLINT)/bin/ruff check --quiet --select E,F,I,B,UP,D,SIM,RET --ignore D203,D213,D103,D401 --line-length 120 scripts/*.py
	$(PYLINT)/bin/ruff format --check --quiet --line-length 100 scripts/*.py
	$(PYLINT)/bin/mypy --strict --no-error-summary --cache-dir $(PYLINT)/cache --disable-error-code import-not-found scripts/*.py

$(PYLINT)/lock: scripts/lint.lock
	@scripts/setup lint >/dev/null
	rm -rf $(PYLINT)
	python3 -m venv $(PYLINT)
	$(PYLINT)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	cp $< $@

# go.sum has the checksum of every module; a finding of govulncheck is a failure.
supply: $(VULNCHECK) ## Verify the modules, look for known vulnerabilities in what the programs call
	@go=$$(scripts/setup test)
	export PATH="$$(dirname "$$go"):$$PATH"
	"$$go" mod verify
	(cd sql && "$$go" mod verify)
	scripts/vulncheck $(VULNCHECK) ./cmd/...

$(VULNCHECK):
	@go=$$(scripts/setup test)
	mkdir -p .tools/new
	GOBIN="$(CURDIR)/.tools/new" "$$go" install golang.org/x/vuln/cmd/govulncheck@$(VULNCHECK_VERSION) \
		2> >(grep -v '^go: downloading' >&2)
	mv .tools/new/govulncheck $@

# Built from source with the project's own Go: a linter built with an older one refuses
# newer code. About three minutes on two cores, once.
$(GOLANGCI):
	@go=$$(scripts/setup test)
	echo "building golangci-lint $(GOLANGCI_VERSION) into .tools (once, some minutes)"
	mkdir -p .tools/new
	GOBIN="$(CURDIR)/.tools/new" "$$go" install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) \
		2> >(grep -v '^go: downloading' >&2)
	mv .tools/new/golangci-lint $@

# With the agent, whose sockets, log, record and learned state are goroutines beside its loop. The pure packages have none but
# the record's queue, so that there is nothing to find in them. The detector allocates by itself.
test-race: ## Test the agent and what has goroutines beside it under the race detector (needs a C compiler)
	@go=$$(scripts/setup build)
	if ! command -v "$$(CGO_ENABLED=1 "$$go" env CC)" >/dev/null; then
		echo "skipped: the race detector needs cgo, and this machine has no C compiler"
		exit 0
	fi
	CGO_ENABLED=1 "$$go" test -p 1 -race -skip DoesNotAllocate $(TESTFLAGS) ./agent ./agent/learned ./kernel/hostfs ./record/... ./slo/histogram

docs: ## Write the tables of parameters in docs/ anew, from the policies' own descriptions
	@"$$(scripts/setup build)" test ./agent/config -run TestDocs -update

# What clang makes is committed, so that nobody needs it to build or to test; a test fails when
# the sources are others than those it was made from.
SCHEDWAIT := kernel/schedwait
bpf: ## Build the BPF programs in kernel/schedwait anew (installs clang)
	@scripts/setup bpf >/dev/null
	clang -O2 -g -fdebug-prefix-map=$(CURDIR)=. -target bpf -mcpu=v3 -Wall -Werror -c $(SCHEDWAIT)/bpf/schedwait.bpf.c -o $(SCHEDWAIT)/schedwait.bpf.o
	llvm-strip -g $(SCHEDWAIT)/schedwait.bpf.o
	cat $(SCHEDWAIT)/bpf/kernel.h $(SCHEDWAIT)/bpf/schedwait.bpf.c | sha256sum | cut -d ' ' -f 1 >$(SCHEDWAIT)/bpf/built-from

notice: ## Write cmd/commensal/NOTICE anew: the licenses of what the agent's binary links
	@"$$(scripts/setup build)" test ./internal/repository -run TestNotice -update

sbom: build ## Write bin/commensal.cdx.json: which modules are in bin/commensal (CycloneDX)
	@bin/commensal licenses --sbom >bin/commensal.cdx.json

# An hour of CI has no room for these: they look at what changes seldom, and wait here for whoever makes a release.
release-test: reproducible test-race ## What a release is to pass beside CI: two equal builds, the race detector, the demo on a cgroup v2 kernel (make rig first)
	@$(MAKE) rig-demo KERNEL=6.12 ARGS="--seed 7 --brief"

reproducible: ## Build the programs twice, in two folders with empty caches, and compare them
	@scripts/reproducible

rig: ## Fetch kernels and build the emulator for rig-test (as root; once, some minutes)
	@rig/prepare $(MACHINE) $(KERNELS)

# PKG is all packages when it is not set.
rig-test: ## Test on a real kernel under emulation: KERNEL=6.1|6.12 MACHINE=rdt|stock PKG=... RUN=... (docs/RIG.md)
	@go=$$(scripts/setup build)
	rig/prepare $(MACHINE) $(KERNEL)
	"$$go" build -o .rig/rig ./rig/cmd/rig
	.rig/rig -go "$$go" -kernel $(KERNEL) -machine $(MACHINE) -packages '$(filter-out ./...,$(PKG))' -run '$(RUN)' $(ARGS)
	# Last, how the rig takes guests that panic and steps that hang, and guests of the host's own agent: on the older kernel only that memory comes back.
	if [ '$(RUN)$(MACHINE)' = rdt ] && [ '$(PKG)' = ./... ]; then
		RIG_LIVE=$(KERNEL) "$$go" test -count=1 -run Live -skip '$(if $(filter 6.1,$(KERNEL)),LiveIdleAgent|LiveIdleMemory/reporting.off)' ./rig
	fi

rig-exec: ## Run SCRIPT in a guest, with ARGS="-file /in/guest=here"; without SCRIPT: a shell (KERNEL=, MACHINE=)
	@go=$$(scripts/setup build)
	rig/prepare $(MACHINE) $(KERNEL)
	"$$go" build -o .rig/rig ./rig/cmd/rig
	.rig/rig -go "$$go" -kernel $(KERNEL) -machine $(MACHINE) -exec '$(or $(SCRIPT),-)' $(ARGS)

rig-demo: ## Play the demo in a guest with a real cgroup v2 kernel: KERNEL=, MACHINE=, ARGS="--seed 7"
	@go=$$(scripts/setup build)
	scripts/setup demo >/dev/null
	rig/prepare $(MACHINE) $(KERNEL)
	$(MAKE) build
	"$$go" build -o .rig/rig ./rig/cmd/rig
	exec rig/demo $(KERNEL) $(MACHINE) $(ARGS)

rig-systemd: ## Test the service under the distribution's systemd in a guest: KERNEL=, PLAY="stop kill_agent" (docs/RIG.md)
	@go=$$(scripts/setup build)
	rig/prepare $(MACHINE) $(KERNEL) systemd
	RIG_SYSTEMD=$(KERNEL) RIG_PLAY='$(PLAY)' "$$go" test -count=1 -v -timeout 1h -run TestSystemd ./rig

clean-rig: ## Remove what the rig fetched, built and wrote (.rig)
	@rm -rf .rig

soak: build ## Run the agent on simulated machines with faults, by seed; SEEDS=A..B: those, else new ones; ARGS=... (docs/TWIN.md)
	@echo "seeds $(SEEDS)"
	exec bin/commensal-lab twin soak --seeds $(SEEDS) $(ARGS)

reliability: build ## One fault after the other, until all is put back: on the twin, and with real agents on this host (as root)
	@exec bin/commensal-lab run reliability --into docs/RELIABILITY.md $(ARGS)

# Minutes with SIZE=quick, hours with SIZE=full. ARGS=--update writes down what came out.
SIZE ?= quick
results: build ## Play the runs behind the pages' headlines again, SIZE=quick|full; fail when one moved by more than its interval
	@exec bin/commensal-lab results $(if $(filter full,$(SIZE)),,--quick) --into docs/results.json $(ARGS)

fuzz: ## Run every fuzz test for FUZZTIME (5s)
	@go=$$(scripts/setup build)
	grep -rl --include='*_test.go' --exclude-dir='.[!.]*' '^func Fuzz' . | sort | while read -r file; do
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r name; do
			echo "$$(dirname "$$file") $$name"
			"$$go" test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x "$$(dirname "$$file")" </dev/null
		done
	done

bench: build ## Print what a cycle costs beside its floor (as root); ARGS="..." go to commensal-lab bench
	@exec bin/commensal-lab bench $(ARGS)

microbench: ## Run the Go benchmarks of PKG (./...)
	@go=$$(scripts/setup build)
	"$$go" test -p 1 -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKG)

# With DESTDIR it only lays files out, as a package build does. The service is neither
# enabled nor started: first look at the configuration.
install: ## Install binary, unit, example configuration and group (PREFIX, DESTDIR)
	@[ -x bin/commensal ] || $(MAKE) build
	install -D -m 755 bin/commensal '$(DESTDIR)$(PREFIX)/bin/commensal'
	install -D -m 644 deploy/config.yaml '$(DESTDIR)$(CONFDIR)/config.example.yaml'
	if [ -n '$(DESTDIR)' ] || [ -d '$(UNITDIR)' ]; then
		install -d '$(DESTDIR)$(UNITDIR)'
		sed 's#/usr/local/bin/#$(PREFIX)/bin/#' deploy/commensal.service >'$(DESTDIR)$(UNITDIR)/commensal.service'
		chmod 644 '$(DESTDIR)$(UNITDIR)/commensal.service'
	fi
	if [ -n '$(DESTDIR)' ]; then exit 0; fi
	getent group commensal >/dev/null || groupadd --system commensal
	if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	echo "installed $(PREFIX)/bin/commensal; next:"
	if [ -e '$(CONFDIR)/config.yaml' ]; then
		echo "  $(PREFIX)/bin/commensal config check $(CONFDIR)/config.yaml (it was there, and was kept)"
	else
		echo "  $(PREFIX)/bin/commensal init (looks at this host, writes $(CONFDIR)/config.yaml, which only observes)"
	fi
	echo "  systemctl enable --now commensal, or $(PREFIX)/bin/commensal agent"

install-hub: ## Install the hub, its query engine and its unit (PREFIX, DESTDIR)
	@[ -x bin/commensal-hub ] && [ -x bin/commensal-sql ] || $(MAKE) hub
	install -D -m 755 bin/commensal-hub '$(DESTDIR)$(PREFIX)/bin/commensal-hub'
	install -D -m 755 bin/commensal-sql '$(DESTDIR)$(PREFIX)/bin/commensal-sql'
	if [ -n '$(DESTDIR)' ] || [ -d '$(UNITDIR)' ]; then
		install -d '$(DESTDIR)$(UNITDIR)'
		sed 's#/usr/local/bin/#$(PREFIX)/bin/#' deploy/commensal-hub.service >'$(DESTDIR)$(UNITDIR)/commensal-hub.service'
		chmod 644 '$(DESTDIR)$(UNITDIR)/commensal-hub.service'
	fi
	if [ -n '$(DESTDIR)' ]; then exit 0; fi
	getent passwd commensal-hub >/dev/null || useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin commensal-hub
	if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	echo "installed $(PREFIX)/bin/commensal-hub; next: systemctl enable --now commensal-hub, and docs/OPERATIONS.md"

# The binary goes last, and only once the kernel has back what it was found with.
uninstall: ## Stop the service, restore every limit, remove what install put (FORCE=1: even if restore fails)
	@if [ -z '$(DESTDIR)' ]; then
		if [ -d /run/systemd/system ] && [ -e '$(UNITDIR)/commensal.service' ]; then
			systemctl disable --now commensal.service
		fi
		if [ -x '$(PREFIX)/bin/commensal' ] && ! '$(PREFIX)/bin/commensal' restore; then
			echo "restore failed: limits of ours may still be in force" >&2
			[ -n '$(FORCE)' ] || { echo "nothing was removed; put that right, or run make uninstall FORCE=1" >&2; exit 5; }
		fi
	fi
	rm -f '$(DESTDIR)$(UNITDIR)/commensal.service' '$(DESTDIR)$(PREFIX)/bin/commensal'
	if [ -z '$(DESTDIR)' ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	echo "kept: $(DESTDIR)$(CONFDIR) (configuration), $(DESTDIR)/var/lib/commensal (state), the group commensal"

clean: ## Remove bin/ (.tools/ and .toolchain/ are kept: they are slow to make)
	@rm -rf bin
