# make demo       build gpurun, run it on a small sample, show the result
# make test       run the tests; make test-all leaves nothing out
# make race       look for data races where they are likely; make test-race does so everywhere
# make install    install gpurun, man pages and completions below PREFIX (/usr/local)
# make wheel      build a wheel for pip in dist/, for this machine; ARCH="amd64 arm64" names others
# make check      check formatting, vet, staticcheck, generated code, imports, types on other platforms
# make gpu-test   run the tests that need a GPU; make gpu-bench runs the benchmarks
# make web        build the page of jobs from web/src; make browser-test tests it in Chromium
# make site       build the manual in site/; broken links fail
# make deploy-test  run the alert rules, the dashboard and the manifests in deploy/
# make api-test   check /openapi.json with a validator, a generated client and a fuzzer
# make slurm-test run jobs on a real Slurm and break it; make k8s-test the same on a real Kubernetes
# make llm-test   run real model servers with tiny models through gpurun; downloads gigabytes
# make orchestrators-test  run the examples for Airflow, Dagster, Prefect, Ray and Dask; downloads 2 GB
# make fuzz       run every fuzz target for a minute; make soak kills a job a thousand times
# make random-jobs  compare random jobs with a model
# make house      measure the structure of the code: size, types, mode checks
# make flat       show that memory stays flat on 10 GB and on 10,000 files
#
# Go, git and make are required. Other missing tools are installed with apt when possible, and
# named before that; anything skipped is reported.

SHELL := /bin/bash
GO    ?= go

# go-nvml wraps calls that NVIDIA has deprecated; silence a page of warnings.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
# One kind of build, so that nothing is compiled twice; make build trims paths.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS 2>/dev/null) -trimpath)
# Child processes of tests must not sleep at exit for the race detector.
export GORACE := atexit_sleep_ms=0

FUZZTIME ?= 60s
PREFIX ?= /usr/local

.PHONY: build install wheel packages package-test reproducible conda-test release lint workflows vulncheck demo test test-all race test-race cross venv gpu-test gpu-bench check generate fuzz soak random-jobs house flat bench bench-floats bench-parts compiler tools web browser-test deploy-test api-test llm-test orchestrators-test readers-test notebook-test map-bench site slurm-test k8s-test clean

build: compiler
	@if [ -x bin/gpurun ]; then echo "building bin/gpurun"; \
		else echo "building bin/gpurun; the first build downloads and compiles its dependencies, which takes a minute or two"; fi
	@GO='$(GO)' ./scripts/build.sh bin/gpurun

# Installs the program, man pages, shell completions, and the folder of leases at each boot.
install: build
	install -D -m 755 bin/gpurun $(DESTDIR)$(PREFIX)/bin/gpurun
	umask 022 && bin/gpurun generate $(DESTDIR)$(PREFIX)/share
	install -D -m 644 deploy/gpurun.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gpurun.conf

# Builds wheels whose program lands on PATH, for ARCH: this machine unless it names others. They
# depend on the commit and the compilers alone: two builds are identical. GPUs need NVML, which
# needs a C compiler for the target; scripts/sysroot.sh has the C library of old systems.
HOSTARCH := $(shell $(GO) env GOHOSTARCH 2>/dev/null)
ARCH := $(HOSTARCH)
CROSS_amd64 := gcc-x86-64-linux-gnu:x86_64-linux-gnu-gcc libc6-dev-amd64-cross:/usr/x86_64-linux-gnu/include/stdio.h
CROSS_arm64 := gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc libc6-dev-arm64-cross:/usr/aarch64-linux-gnu/include/stdio.h
cross-tools = $(foreach arch,$(filter-out $(HOSTARCH),$(1)),$(CROSS_$(arch)))
wheel: compiler
	@$(if $(call cross-tools,$(ARCH)),./scripts/tools.sh $(call cross-tools,$(ARCH)))
	@GO='$(GO)' ARCH='$(ARCH)' ./scripts/wheel.sh

# Builds tarballs, Debian packages and wheels with GoReleaser, without publishing them.
# package-test unpacks them and runs what is inside.
# GoReleaser does not read the commit of a repository without a remote.
REMOTE = $(if $(shell git remote),,GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/gpurun/gpurun)
goreleaser = GO='$(GO)' ./scripts/gotool.sh github.com/goreleaser/goreleaser/v2@v2.14.1
compilers = ./scripts/sysroot.sh amd64 arm64
packages: compiler
	@./scripts/tools.sh $(call cross-tools,amd64 arm64)
	@if goreleaser=$$($(goreleaser)) && compilers=$$($(compilers)); then rm -rf dist/packages && $(REMOTE) PATH="$$compilers:$$PATH" "$$goreleaser" release --snapshot --clean; \
		else echo "SKIPPED: no GoReleaser, or no compilers for old systems: the packages are not built"; fi

package-test:
	@if [ -e dist/packages/checksums.txt ]; then GPURUN_PACKAGES=$(CURDIR)/dist/packages $(GO) test -count=1 -v ./deploy; \
		else echo "SKIPPED: there are no packages in dist/packages: run make packages"; fi

# Builds one commit twice, in different folders with empty caches, and compares the packages.
reproducible: compiler
	@./scripts/tools.sh $(call cross-tools,amd64 arm64)
	@if goreleaser=$$($(goreleaser)) && compilers=$$($(compilers)); then \
		PATH="$$compilers:$$PATH" GPURUN_GORELEASER=$$goreleaser $(GO) test -count=1 -v -timeout 60m -run TestReproduciblePackages ./deploy; \
		else echo "SKIPPED: no GoReleaser, or no compilers for old systems: comparing the program and the wheel only"; \
		GPURUN_DIST=1 $(GO) test -count=1 -v -timeout 30m -run TestReproducible ./python/wheel; fi

# Renders the recipe for conda, and builds and tests it with stand-ins for conda's compilers.
conda-test: compiler
	@python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
	@if [ -e .venv-conda/ready ] || { python3 -m venv .venv-conda && \
		.venv-conda/bin/pip install -q --disable-pip-version-check py-rattler-build==0.73.0 cloudpickle && touch .venv-conda/ready; }; then \
		GO='$(GO)' .venv-conda/bin/python deploy/conda/test.py; \
		else echo "SKIPPED: no rattler-build: the recipe for conda is not tested"; fi

# Publishes the packages of a tag.
release:
	goreleaser=$$($(goreleaser)) && compilers=$$($(compilers)) && PATH="$$compilers:$$PATH" "$$goreleaser" release --clean

demo: build
	@rm -rf demo && mkdir -p demo
	@awk 'BEGIN { for (i = 0; i < 20000; i++) printf "{\"id\":%d,\"text\":\"record number %d of the sample\"}\n", i, i; \
		print "this line is not JSON" }' > demo/in.jsonl
	@echo "\$$ gpurun run -k minhash --kernel-config '{\"num_perm\":8}' demo/in.jsonl -o demo/out.jsonl --gpus cpu:2"
	@bin/gpurun run -k minhash --kernel-config '{"num_perm":8}' demo/in.jsonl -o demo/out.jsonl --gpus cpu:2 || test $$? = 3
	@echo; echo '$$ tail -n 2 demo/out.jsonl'
	@tail -n 2 demo/out.jsonl

test: tools
	@echo "running all tests; the first time, compiling them takes a few minutes"
	@command -v cc >/dev/null || echo "NOTE: no C compiler found: testing without NVML"
	@GO='$(GO)' ./scripts/test.sh

# Looks for data races in packages that start goroutines, and in a selection of jobs and commands;
# test-race does so in everything.
race: tools
	@if command -v cc >/dev/null; then GO='$(GO)' ./scripts/test.sh race; \
		else echo "SKIPPED: no C compiler, which the race detector needs"; fi

# What make test samples or leaves out, in full: every pair of a death and a kind of job,
# damage at every byte, measurements, a program without cgo.
test-all: tools
	GPURUN_TEST_ALL=1 TIMEOUT=90m GO='$(GO)' ./scripts/test.sh

test-race: tools venv
	CGO_ENABLED=1 $(GO) test -race -timeout 60m ./...

# Tests of Python kernels need numpy, those of the example with images Pillow, those of Parquet
# files pyarrow. Torch is tested if $$GPURUN_TEST_PYTHON has it.
venv: .venv/ready
.venv/ready: scripts/test-requirements.txt
	@echo "creating .venv with numpy, pyarrow and others for the tests of Python kernels"
	@python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
	@if command -v python3 >/dev/null && python3 -m venv .venv >/dev/null && .venv/bin/pip install -q --disable-pip-version-check -r scripts/test-requirements.txt; then \
		touch $@; \
	else \
		echo "NOTE: cannot create a Python environment with numpy: skipping the tests of its arrays"; \
	fi

# Tests NVML on this machine's GPUs and runs a job on them. Without Go it uses binaries
# built elsewhere: bin/gpu.test and bin/gpurun.
gpu-test:
	@if command -v $(GO) >/dev/null; then $(MAKE) build && $(GO) test -c -tags gpu -o bin/gpu.test ./gpu; \
		else echo "NOTE: Go is not installed: using the existing bin/gpu.test and bin/gpurun"; fi
	bin/gpu.test -test.v -test.run '^TestCard'
	@rm -rf demo && mkdir -p demo
	@awk 'BEGIN { for (i = 0; i < 200000; i++) printf "{\"id\":%d}\n", i }' > demo/in.jsonl
	bin/gpurun plan -k echo demo/in.jsonl
	bin/gpurun run -k echo demo/in.jsonl -o demo/out.jsonl --json-events=demo/events.jsonl --report demo/report.json
	cmp demo/in.jsonl demo/out.jsonl
	@grep device_sample demo/events.jsonl | tail -n 1
	$(MAKE) -C examples/cuda-kernel gpu-test

# Compiling staticcheck takes half a minute: use the program if this machine has it.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@$(shell $(GO) list -m -f '{{.Version}}' honnef.co/go/tools)
check: tools
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags gpu ./gpu ./examples/...
	cd bench && $(GO) vet ./...
	@if staticcheck=$$(GO='$(GO)' ./scripts/gotool.sh $(STATICCHECK)); then echo "$$staticcheck ./..." && "$$staticcheck" ./...; \
		else $(GO) tool staticcheck ./...; fi
	@$(MAKE) --no-print-directory lint workflows
	$(GO) mod tidy -diff
	$(GO) test -count=1 ./internal/arch
	@if command -v protoc >/dev/null; then ./plugins/kernelpb/check.sh; \
		else echo "SKIPPED: protoc is not installed: cannot check whether the generated code is up to date"; fi
	@if command -v npm >/dev/null; then ./web/check.sh; \
		else echo "SKIPPED: npm is not installed: cannot check whether web/dist is up to date"; fi
	@if .venv/bin/python -c 'import mypy' 2>/dev/null; then cd python && ../.venv/bin/python -m mypy --strict tests/typed.py && \
		../.venv/bin/python -m mypy.stubtest gpurun --mypy-config-file tests/stubtest.ini --ignore-missing-stub \
			--allowlist tests/stubtest-allow.txt --ignore-unused-allowlist --concise; \
		else echo "SKIPPED: mypy is not in .venv: cannot check the types of the Python package"; fi
	@echo "check: all good"

# Builds everything for other platforms; make check checks its types only (TestPlatforms).
cross:
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build ./...

# Linters beyond vet and staticcheck (.golangci.yaml).
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2
lint:
	@if linter=$$(GO='$(GO)' ./scripts/gotool.sh $(GOLANGCI)); then "$$linter" run ./...; \
		else echo "SKIPPED: no golangci-lint: the linters of .golangci.yaml did not run"; fi

# Checks the workflows: their syntax, expressions and the names that they use.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
workflows:
	@if actionlint=$$(GO='$(GO)' ./scripts/gotool.sh $(ACTIONLINT)); then "$$actionlint"; \
		else echo "SKIPPED: no actionlint: the workflows are not checked"; fi

# Reports known vulnerabilities that the program can reach; it needs the database of Go.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
vulncheck:
	@GO='$(GO)' ./scripts/vulncheck.sh $(GOVULNCHECK)

generate: tools
	$(GO) generate ./...

# Builds the page of jobs, web/dist, which is committed: go build does not need npm.
web:
	cd web && npm ci --ignore-scripts --no-audit --no-fund && npm run build

# Tests the page in a real browser, in all sizes; make test does so in a few. With
# GPURUN_SHOTS=FOLDER it keeps pictures.
browser-test: tools
	@./scripts/tools.sh chromium:chromium
	$(GO) vet -tags browser ./web
	GPURUN_BROWSER=all $(GO) test -tags browser -count=1 -v -run Browser ./web

# Runs each fuzz target for a minute; FUZZTIME=10s is shorter, GUIDED=no builds faster.
fuzz:
	@GO='$(GO)' GUIDED='$(GUIDED)' ./scripts/fuzz.sh $(FUZZTIME)

# Kills a job at random, repeatedly, which make test does for a minute; then runs random jobs.
SOAK_KILLS ?= 1000
soak: tools
	GPURUN_SOAK_KILLS=$(SOAK_KILLS) $(GO) test -v -count=1 -run Soak -timeout 6h ./orchestrator
	$(MAKE) random-jobs JOBS=500

# Runs random jobs, of every kind and with kills, and compares their outputs with a model that
# shares no code with gpurun. AGAINST=PROGRAM also compares them with another build's.
JOBS ?= 50
JOBS_SECONDS ?= 36000
random-jobs: build venv
	@if .venv/bin/python -c 'import numpy, pyarrow, zstandard' 2>/dev/null; then \
		.venv/bin/python scripts/randomjobs --jobs $(JOBS) --seconds $(JOBS_SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(AGAINST),--against $(AGAINST)); \
		else echo "SKIPPED: no pyarrow in .venv: no random jobs"; fi

# Measures the structure of the code. CHECKS=1 lists every mode check with its place.
house:
	@$(GO) run ./scripts/house $(if $(CHECKS),-checks)

# Shows that memory stays flat on a stream of 10 GB and on 10,000 compressed files.
flat: build
	./scripts/flat.sh

# Compares gpurun with peers and limits, in one table (docs/internals/measurements.md);
# QUICK=1 runs a small version. bench-parts runs Go benchmarks of the parts, and of whole jobs as ratios.
bench: build venv
	@./scripts/tools.sh parallel:parallel python3:python3
	@.venv/bin/python -c 'import aiohttp' 2>/dev/null || .venv/bin/pip install -q --disable-pip-version-check aiohttp
	cd bench && CGO_ENABLED=0 $(GO) build -trimpath -o ../bin/bench-sleep ./sleep && $(GO) build -o ../bin/bench .
	PATH=$(CURDIR)/.venv/bin:$$PATH bin/bench $(if $(QUICK),-quick -rounds 1) -json bin/bench.json

# Compares ways to format numbers.
bench-floats:
	cd bench && $(GO) test -run '^$$' -bench . -count 3 ./floats

bench-parts:
	$(GO) test -run '^$$' -bench . -benchmem ./chunk/... ./internal/jsonline ./plugins/...
	$(GO) test -run '^$$' -bench . -benchtime 5x ./orchestrator

# Tests deploy/: alert rules and dashboard with a real Prometheus, manifests against the
# types of the Kubernetes API.
deploy-test: tools
	@./scripts/tools.sh prometheus:promtool
	@if command -v promtool >/dev/null; then promtool test rules deploy/prometheus/gpurun.test.yml; \
		else echo "SKIPPED: promtool is not installed: cannot test the alert rules"; fi
	$(GO) test -count=1 -vet=off -run 'TestPrometheus$$' ./cmd/gpurun
	cd deploy/check && $(GO) test -count=1 -vet=off .
	@validate=$$(PATH="$$PWD/.venv/bin:$$PATH" command -v kubernetes-validate); \
		if [ -n "$$validate" ]; then \
			for version in 1.31 1.33 1.35; do "$$validate" --strict -k $$version internal/cluster/k8s/testdata/*.yaml || exit 1; done; \
		else echo "SKIPPED: kubernetes-validate is not installed: manifests are not compared with the schemas of Kubernetes (pip install kubernetes-validate)"; fi

# Checks the document of the API with tools of others, in an environment of their own, and
# fuzzes a host and a job for API_SECONDS each. make test checks names and shapes alone.
API_SECONDS ?= 30
api-test: build .venv-api/ready
	.venv-api/bin/python scripts/apitest.py bin/gpurun $(API_SECONDS)
.venv-api/ready: scripts/api-requirements.txt
	@python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
	python3 -m venv --clear .venv-api
	.venv-api/bin/pip install -q --disable-pip-version-check -r scripts/api-requirements.txt
	touch $@

# Runs jobs on a real Slurm, two nodes on this machine, and breaks it; make test does one
# of these tests. It needs root.
slurm-test: tools
	@./scripts/tools.sh slurm-wlm:slurmctld
	GPURUN_SLURM=all $(GO) test -count=1 -v -timeout 30m -run 'TestSlurm|TestCluster' ./cmd/gpurun

# Runs the Job of gpurun submit k8s on a real control plane. Pods are processes in namespaces of
# their own, which need Linux.
k8s-test: build
	@servers=$$(GO='$(GO)' ./scripts/k8s-build.sh) && cd deploy/cluster && \
		GPURUN_K8S=$$servers GPURUN=$(CURDIR)/bin/gpurun CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 20m .

# Starts the server of Hugging Face transformers with serve:, on the CPU, and checks the
# output with OpenAI's own types. make test does the same with a stub.
llm-test: build
	@./scripts/llm-test.sh

# Runs the examples for schedulers of tasks with the real packages, each in an environment of its
# own, kills their jobs, and checks that a retry resumes. make test runs the shards by hand.
orchestrators-test: build
	@./scripts/orchestrators-test.sh

# Opens outputs with pandas, polars, DuckDB, datasets, pyarrow, DataFusion and Spark (which needs
# Java), in a Python environment of its own with 1.5 GB. make test reads them with gpurun itself, and with what python3 has of these.
readers-test: tools
	@[ -e .venv-readers/ready ] || { python3 -m venv .venv-readers && \
		.venv-readers/bin/pip install -q --disable-pip-version-check numpy pyarrow pandas polars duckdb datasets datafusion pyspark && touch .venv-readers/ready; }
	GPURUN_TEST_PYTHON=$(CURDIR)/.venv-readers/bin/python $(GO) test -count=1 -v \
		-run 'TestReaders|TestFoldersAreData|TestTextOfEveryReader|TestDeclared|TestPython|TestLive' ./orchestrator ./chunk/encode/parquet ./chunk/input/parquet

# gpurun.map in real notebooks: nbclient, and JupyterLab in Chromium. Needs torch, 3 GB.
notebook-test: build tools
	@./scripts/tools.sh chromium:chromium
	@[ -e .venv-notebook/ready ] || { python3 -m venv .venv-notebook && .venv-notebook/bin/pip install -q --disable-pip-version-check \
		cloudpickle datasets ipykernel jupyterlab nbclient playwright pyarrow torch && touch .venv-notebook/ready; }
	PYTHONPATH=$(CURDIR)/python .venv-notebook/bin/python scripts/notebooktest.py bin/gpurun bin/notebooks "$$(command -v chromium)"

# gpurun.map against gpurun run and Dataset.map.
map-bench: build tools
	@[ -e .venv-map/ready ] || { python3 -m venv .venv-map && .venv-map/bin/pip install -q --disable-pip-version-check cloudpickle datasets && touch .venv-map/ready; }
	.venv-map/bin/python bench/map/run.py --gpurun bin/gpurun

# Benchmarks that need a GPU; without Go they use binaries built elsewhere.
gpu-bench:
	$(MAKE) -C examples/cuda-kernel gpu-bench
	python3 bench/encoder/run.py --gpurun bin/gpurun
	for shape in minilm base; do python3 bench/natural/run.py --gpurun bin/gpurun --shape $$shape --results bin/natural.json; done
	python3 bench/images/run.py --gpurun bin/gpurun
	python3 bench/llm/continuous.py --gpurun bin/gpurun --results bin/continuous.json

# Installs the C compiler that a build needs for GPUs, and the further tools that tests need:
# only missing ones, and only if apt works without a prompt (as root, or with passwordless sudo).
compiler:
	@./scripts/tools.sh gcc:cc libc6-dev:/usr/include/stdio.h
tools:
	@./scripts/tools.sh gcc:cc libc6-dev:/usr/include/stdio.h protobuf-compiler:protoc coreutils:stdbuf util-linux:setsid

# Builds the manual as a static site with mkdocs, in an environment of its own.
site: .venv-site/ready
	.venv-site/bin/mkdocs build --strict --clean
.venv-site/ready: scripts/site-requirements.txt
	@python3 -c 'import ensurepip' 2>/dev/null || ./scripts/tools.sh python3:python3 python3-venv:/not/there
	python3 -m venv --clear .venv-site
	.venv-site/bin/pip install -q --disable-pip-version-check -r scripts/site-requirements.txt
	touch $@

clean:
	rm -rf bin demo dist site
