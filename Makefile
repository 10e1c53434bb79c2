# Lazaret: build, install and test. `make help` lists the targets.

GO      ?= $(shell command -v go 2>/dev/null || echo /usr/local/go/bin/go)
# Security fixes of the standard library come with the toolchain; Go fetches this
# one by itself. TOOLCHAIN=local builds with whatever is installed.
TOOLCHAIN ?= go1.26.10
export GOTOOLCHAIN := $(TOOLCHAIN)
GOARCH  ?= $(shell $(GO) env GOARCH)
PREFIX  ?= /usr/local
DESTDIR ?=

BINARIES := lazaret lazaret-runtime lazaret-hook lazaret-coordinator lazaret-netrouter lazaret-escalate
# What a user types is on PATH; what Lazaret starts itself is not.
ON_PATH  := lazaret lazaret-runtime
LIBEXEC  := $(filter-out $(ON_PATH),$(BINARIES))

VERSION_PKG := github.com/lazaret-dev/lazaret/internal/version
COMMIT      := $(shell git describe --always --abbrev=12 --dirty --match '' 2>/dev/null || echo unknown)
VERSION     := $(shell git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null | sed 's/^v//' | grep . || echo 0.0.0-dev)
LDFLAGS     := -s -w -X $(VERSION_PKG).Version=$(VERSION) -X $(VERSION_PKG).Commit=$(COMMIT)
GOBUILD      = CGO_ENABLED=0 GOOS=linux GOARCH=$(GOARCH) $(GO) build -trimpath -ldflags '$(LDFLAGS)$(1)'
# What these do most often is done before Go's runtime starts; see internal/early.
EARLY       := lazaret-runtime lazaret-escalate

# bin/ holds this machine's binaries, bin/<arch>/ another architecture's.
HOST_ARCH := $(shell $(GO) env GOHOSTARCH)
BIN        = bin$(if $(filter-out $(HOST_ARCH),$(GOARCH)),/$(GOARCH))

FUZZTIME ?= 30s
TOGETHER ?= 10m
# Two packages of end-to-end tests at a time; each runs two tests at a time. Those
# that load the machine by themselves come alone, at the end. The comparison of
# git's everyday workflow (make everyday) and the attacks in sandboxes (make
# attacks) take longer than all of them; what the guard must withstand is in its
# unit tests as well.
E2E_PKGS ?= $$($(GO) list ./test/e2e/... | grep -v -e /chaos -e /workflow) ./test/attacks/escalate ./test/runtimetools
E2E_LAST ?= ./test/e2e/chaos
E2E_RUN  ?= .
# Rounds of SIGKILL; a hundred take a quarter of an hour on two slow cores.
CHAOS_ROUNDS ?= 25

.DEFAULT_GOAL := build
.PHONY: build build-all install uninstall test unit e2e fuzz lint vet vuln bench demo together clients agents attacks flood kills everyday posix tree engines record dist reproduce test-packages setup setup-tools clean help

build: ## the six static binaries, into bin/ (GOARCH=arm64: into bin/arm64/)
	@mkdir -p $(BIN)
	$(call GOBUILD,) -o $(BIN)/ $(addprefix ./cmd/,$(filter-out $(EARLY) lazaret-netrouter,$(BINARIES)))
	$(call GOBUILD,) -tags nethttpomithttp2 -o $(BIN)/ ./cmd/lazaret-netrouter
	$(call GOBUILD, -E _lazaret_entry) -o $(BIN)/ $(addprefix ./cmd/,$(EARLY))

build-all: ## the binaries for amd64 and arm64
	$(MAKE) build GOARCH=amd64
	$(MAKE) build GOARCH=arm64

# As sudo it installs what the user has built: root needs no compiler, and leaves no
# file of its own in the checkout.
install: $(if $(SUDO_UID),$(if $(wildcard $(BIN)/lazaret),,build),build) ## binaries, man pages, completions under $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/lazaret
	install -m 0755 $(addprefix $(BIN)/,$(ON_PATH)) $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 $(addprefix $(BIN)/,$(LIBEXEC)) $(DESTDIR)$(PREFIX)/libexec/lazaret/
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' packaging/docs.sh install

uninstall: ## remove what install put there
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(ON_PATH)) $(addprefix $(DESTDIR)$(PREFIX)/libexec/lazaret/,$(LIBEXEC))
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' packaging/docs.sh uninstall
	-rmdir $(DESTDIR)$(PREFIX)/libexec/lazaret 2>/dev/null

setup: ## install what tests and demo need on a Debian machine (idempotent)
	@GO='$(GO)' test/scripts/setup.sh

setup-tools: ## setup, and the image for the git tests and the benchmark (minutes, once)
	@GO='$(GO)' test/scripts/setup.sh --tools

test: setup vet build-all lint unit fuzz e2e ## everything, as CI runs it

vet:
	$(GO) vet ./...

unit: ## tests that need neither podman nor runsc
	$(GO) test -short -timeout 10m ./...

e2e: setup-tools ## end-to-end tests on real podman and runsc (E2E_PKGS, E2E_RUN narrow it)
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 40m -p 2 -parallel 2 -run '$(E2E_RUN)' $(E2E_PKGS)
	test -z '$(E2E_LAST)' || GO='$(GO)' CHAOS_ROUNDS='$(CHAOS_ROUNDS)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 40m -run '$(E2E_RUN)' $(E2E_LAST)

attacks: setup-tools ## every technique of an attacker, against Lazaret and naive mounts (ATTACKS: those tests)
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 6h -parallel 2 $(if $(ATTACKS),-v -run '$(ATTACKS)') ./test/attacks/git

flood: setup ## an attacker's 10,000 escalation requests from a sandbox, and the coordinator's memory
	GO='$(GO)' LAZARET_ATTACK_REQUESTS=10000 test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 60m -v -run 'TestAttacks/.*/many' ./test/attacks/escalate

everyday: setup-tools ## git's everyday workflow with and without the guard (LAZARET_EVERYDAY_OLDER=1: in old gVisor too)
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 5h -parallel 2 ./test/e2e/git/workflow

together: setup-tools ## host and sandbox use one repository at the same time, for TOGETHER (ten minutes)
	GO='$(GO)' LAZARET_TOGETHER='$(TOGETHER)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 60m -v ./test/e2e/git/together

clients: setup-tools ## apt-get, npm, git, curl, Python, Node, Go and Java through the filtered network
	GO='$(GO)' LAZARET_TEST_CLIENTS=1 test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 60m -parallel 2 -v -run TestClients ./test/e2e/network

engines: setup ## docker and containerd with lazaret as a runtime, which it installs
	command -v dockerd containerd >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker.io containerd
	GO='$(GO)' LAZARET_TEST_ENGINES=1 test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 30m -v ./test/e2e/engines

agents: setup ## the agents' images, and the real programs in them (needs Debian's mirror and npm's registry)
	GO='$(GO)' LAZARET_TEST_AGENTS=1 test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 3h -v -run '$(E2E_RUN)' ./test/e2e/agents

posix: setup-tools ## pjdfstest in a guarded workspace and a plain one; LAZARET_PJDFSTEST names a checkout of it
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 3h -v ./test/e2e/git/posix

tree: setup-tools ## a hundred thousand files in kept directories, with both drivers, and a kill in an install
	GO='$(GO)' STATE_FILES=100000 test/scripts/with-prefix.sh $(GO) test -count=1 -timeout 90m -v -run '^(TestAllOfATreeComesBack|TestKilledInTheMiddleOfAnInstall)$$' ./test/e2e/state

kills: ## a thousand SIGKILLs of a store and of a coordinator under load, and every byte of a store's file changed
	LAZARET_KILLS=1000 $(GO) test -count=1 -timeout 180m -v -run '^(TestKilledUnderLoad|TestDamagedFileIsTold)$$' ./internal/store
	LAZARET_KILLS=1000 $(GO) test -count=1 -timeout 120m -v -run '^TestCoordinatorKilledUnderLoad$$' ./internal/coordinator

fuzz: ## every fuzz target for FUZZTIME, two at a time
	GO='$(GO)' test/scripts/fuzz.sh $(FUZZTIME)

lint: vuln ## golangci-lint, govulncheck, shellcheck
	GO='$(GO)' test/scripts/lint.sh

vuln: ## known vulnerabilities that our code reaches
	GO='$(GO)' test/scripts/vuln.sh

bench: setup-tools ## what Lazaret costs, as ratios to plain runsc (BENCH=git, state, escalate, network, many: one part)
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) run ./test/bench

demo: setup ## the main job on a throw-away repository, step by step
	GO='$(GO)' test/scripts/with-prefix.sh test/demo/demo.sh

record: setup ## make demo as an asciicast, into docs/demo.cast: play it with asciinema
	GO='$(GO)' test/scripts/with-prefix.sh $(GO) run ./test/demo/record -out docs/demo.cast -title 'Lazaret: make demo' test/demo/demo.sh

dist: ## deb, rpm, archives, SBOM and release notes for amd64 and arm64, into dist/
	@GO='$(GO)' VERSION='$(VERSION)' packaging/dist.sh

reproduce: ## dist twice, from two directories, and the bytes compared
	@GO='$(GO)' VERSION='$(VERSION)' packaging/reproduce.sh

test-packages: setup ## install, use, upgrade, remove and purge the packages in clean Debian trees (SUITES; ALONE=1)
	GO='$(GO)' ALONE='$(ALONE)' test/scripts/packages.sh

clean: ## remove what was built here
	rm -rf bin dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
