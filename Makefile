# Run `make help` for what there is. Everything that is built goes below .build and bin, and with make blobs to blobs; git ignores them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BUILD := .build
BIN := bin
# What `make up` deploys; OPS and VARS add to it: OPS="a.yml b.yml" VARS="k=v k=v" make up
OPS_FILES := ops-files/single-vm.yml ops-files/aws.yml ops-files/lab.yml ops-files/lab-aws.yml
LAB_ARGUMENTS := $(foreach file,$(OPS_FILES) $(OPS),-o $(file)) $(foreach variable,$(VARS),-v $(variable))
# Targets that deploy in a lab, or create its VMs.
IN_LABS := up test test-lab test-programs test-acceptance test-first-cluster soak cis conformance gateway-conformance csi-sanity \
  bench bench-deploy bench-updates bench-sizes bench-restore bench-faults bench-storage bench-pods bench-drill pictures \
  picture-of-dashboard
# Tests that start real programs find them here.
PROGRAMS := KUBERNETES_BIN_DIR=$(CURDIR)/$(BUILD)/components/kubernetes/bin ETCD_BIN=$(CURDIR)/$(BUILD)/components/etcd/bin/etcd \
  AWS_CLOUD_CONTROLLER_MANAGER_BIN=$(CURDIR)/$(BUILD)/components/cloud-provider-aws/bin/aws-cloud-controller-manager \
  COMPONENTS_DIR=$(CURDIR)/$(BUILD)/components PROMTOOL_BIN=$(CURDIR)/$(BUILD)/bin/promtool \
  HELM_BIN=$(CURDIR)/$(BUILD)/bin/helm
PROMETHEUS := PROMETHEUS_BIN=$(CURDIR)/$(BUILD)/bin/prometheus
CLOUD_CONTROLLERS := VSPHERE_CLOUD_CONTROLLER_MANAGER_BIN=$(CURDIR)/$(BUILD)/bin/vsphere-cloud-controller-manager \
  GCE_CLOUD_CONTROLLER_MANAGER_BIN=$(CURDIR)/$(BUILD)/bin/gce-cloud-controller-manager \
  AZURE_CLOUD_NODE_MANAGER_BIN=$(CURDIR)/$(BUILD)/bin/cloud-node-manager

# What the programs of one make have to do together, with the seconds that each step takes on two cores when nothing is built yet;
# they show how far the whole is, and keep the times for the next run. src/release/progress reads both.
RELEASE_STEPS := tools:30 components:1200 release-tool:60 helpers:40 vcenter:30 smoke-server:5 blobs:60 release:10
STEPS_release := $(RELEASE_STEPS)
STEPS_blobs := $(filter-out release:%,$(RELEASE_STEPS))
STEPS_final-release := $(RELEASE_STEPS)
STEPS_conformance := $(RELEASE_STEPS) preflight:5 lab:60 conformance-tool:20 deploy:120 conformance:3600
STEPS_up := $(RELEASE_STEPS) preflight:5 lab:60 deploy:60 smoke-tests:30
export PROGRESS_STEPS := $(STEPS_$(firstword $(MAKECMDGOALS)))
export PROGRESS_TIMES := $(CURDIR)/$(BUILD)/step-times

# The modules of src. READING are packages whose tests read jobs, manifests and documents. These are outside the module, so Go would
# reuse results of before a change. They have no goroutines of their own, so the race detector would only make them slow.
MODULES := helpers release testbed
READING := kubernetes-release/testbed/(acceptance|alerts|cis|docs|firstcluster|generate|layout|pipelines|templates)
UNCACHED := go test -count=1
# Go would also reuse results of tests that ran other programs: those that were built since this file was touched.
FORGOTTEN := $(BUILD)/tests-forgotten
FORGET_TESTS = if [[ ! -e $(FORGOTTEN) || -n $$(find $(BUILD)/components -name build.json -newer $(FORGOTTEN)) ]]; then \
  go clean -testcache; touch $(FORGOTTEN); fi
# Runs tests beside those of clusters, one package at a time: clusters come first.
BESIDE := nice -n 10 go test -p 1 -timeout 30m
# What is not for the race detector is compiled as the release is (src/release/components/build.go): each package once, for all.
# make lint runs vet.
export CGO_ENABLED := 0
export GOAMD64 := v1
export GOFLAGS := -trimpath -buildvcs=false -vet=off
# What a benchmark that is a test prints: what it logs, its figures and its result.
FIGURES := grep -E '_test\.go:[0-9]+: |^(Benchmark|---|ok|FAIL)'
# The versions from which tests and benchmarks upgrade; the first build takes half an hour.
PREVIOUS_KUBERNETES := $(BUILD)/bin/components kubernetes-previous-minor kubernetes-previous-patch
# The packages of a module with tests that test-unit leaves out, because they need programs, VMs or minutes.
PROGRAM_TESTS = grep -rlE 'testing\.Short\(\)|/(kubetest|networktest|vmtest)"|"[A-Z_]+_BIN(_DIR)?"|"COMPONENTS_DIR"' --include='*_test.go' . | \
  xargs -n 1 dirname | grep -vE 'testdata|/acceptance$$' | sort -u

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##: Try it

.PHONY: up
up: release lab ## Deploy the release in a lab on this machine, with AWS simulated (OPS="a.yml" VARS="k=v" add to it)
	@$(BIN)/lab up $(LAB_ARGUMENTS) --errand smoke-tests

.PHONY: down
down: lab ## Remove the lab and all that it made
	@$(BIN)/lab down

.PHONY: leftovers
leftovers: ## Fail if a lab has left anything on this machine, or is running
	@ci/leftovers.sh

##: Build

# What the machine lacks for a lab is said before anything is built: setup is the first prerequisite of all that build.
.PHONY: machine setup
machine: ## Say what this machine lacks for a lab, and what to do
	@cd src/testbed && go run ./cmd/machine "$(CURDIR)"
setup: $(if $(filter $(IN_LABS),$(MAKECMDGOALS)),machine)
setup: ## Install the Debian packages that everything else needs, if any is missing
	@ci/setup.sh

.PHONY: components
components: setup tools ## Build the upstream components from their pins in src/components
	@$(BUILD)/bin/components
	@$(FORGET_TESTS)

.PHONY: helpers
helpers: release-tool ## Build our programs that jobs run
	@$(BUILD)/bin/release helpers

.PHONY: images
images: components release-tool ## Write the container images that clusters need
	@$(BUILD)/bin/release images

.PHONY: release
ifdef CANDIDATE
ifneq ($(filter-out bench-drill bench-pods,$(filter bench bench-%,$(MAKECMDGOALS))),)
$(error CANDIDATE is "$(CANDIDATE)", but $(MAKECMDGOALS) measures what is built here: leave CANDIDATE out; only bench-drill and bench-pods take it)
endif
release:
	@install -D -m 644 "$(CANDIDATE)" $(BUILD)/release/kubernetes.tgz
	@echo "release: $(CANDIDATE), which was built before"
else
release: components release-tool ## Write the dev release, .build/release/kubernetes.tgz (CANDIDATE=FILE takes one that was built before)
	@$(BUILD)/bin/release helpers
	@$(BUILD)/bin/release images
	@$(BUILD)/bin/release tarball
endif

.PHONY: blobs
blobs: components release-tool ## Write blobs and config/blobs.yml, so that bosh create-release works here
	@$(BUILD)/bin/release helpers
	@$(BUILD)/bin/release images
	@$(BUILD)/bin/release blobs

# The check comes first: it takes a second, and the components may take twenty minutes.
.PHONY: final-release final-check
final-release: final-check components ## Upload a final release to the blobstore of config/final.yml (VERSION=1.0.0)
	@$(BUILD)/bin/release helpers
	@$(BUILD)/bin/release images
	@$(BUILD)/bin/release final --version "$(VERSION)"
final-check: release-tool
	@$(BUILD)/bin/release check-final --version "$(VERSION)"

# Needs no root and none of the Debian packages, so that it builds where operators work, also on macOS.
.PHONY: cloud-preflight
cloud-preflight: ## Build cloud-preflight for this machine, into bin
	@mkdir -p "$(BIN)"
	@cd src/helpers && go build -o "$(abspath $(BIN))/cloud-preflight" ./cmd/cloud-preflight

# The list of cloud providers comes first: the rest is generated by the program that has it.
.PHONY: generate generate-flags
generate: setup ## Write what is generated: parts of templates, pages and tables of docs, the list of cloud providers
	@cd src/testbed && go run ./cmd/generate list && go run ./cmd/generate
generate-flags: components ## Write the lists of the flags that the built programs know, and what is generated from them
	@cd src/testbed && go run ./cmd/generate flags --components $(CURDIR)/$(BUILD)/components
	@$(MAKE) generate

.PHONY: lab
lab: setup ## Build the lab and its tools for this machine, into bin
	@ci/go-build.sh preflight $(BIN) helpers ./cmd/cloud-preflight
	@ci/go-build.sh lab $(BIN) testbed ./cmd/lab ./cmd/bpm ./cmd/awssim

.PHONY: clean
clean: ## Remove what was built (a running lab is left alone; make down removes that)
	@rm -rf $(BUILD) $(BIN) blobs LICENSE-THIRD_PARTY.txt NOTICE-SBOM.spdx.json

# The programs that build; small ones first, so that components need not wait for bosh-cli to compile.
.PHONY: tools release-tool
tools:
	@ci/go-build.sh tools $(BUILD)/bin release ./cmd/components
release-tool:
	@ci/go-build.sh release-tool $(BUILD)/bin release ./cmd/release

.PHONY: pictures
pictures: release lab ## Draw the pictures of README.md from real runs in a lab, into docs/images; needs root
	@ci/go-build.sh pictures $(BUILD)/bin testbed ./cmd/pictures
	@ci/pictures.sh
.PHONY: picture-of-dashboard
picture-of-dashboard: export DASHBOARD := $(CURDIR)/docs/images/dashboard.svg
picture-of-dashboard: release lab ## Draw the dashboard from a real Prometheus in a lab, into docs/images; needs root
	@ci/setup.sh busybox-static
	@ci/prometheus.sh prometheus
	@cd src/testbed && $(PROGRAMS) $(PROMETHEUS) ACCEPTANCE=1 SOAK=1 $(UNCACHED) -timeout 60m -v -run '^TestSoakMonitoring$$' ./acceptance

##: Test

.PHONY: test
test: ## Run all tests: lint, test-unit, test-lab
	@mkdir -p $(BUILD); $(MAKE) lint test-unit test-lab 2>&1 | tee $(BUILD)/test.log; \
	  echo "test: what took longest"; ci/slowest.sh $(BUILD)/test.log $(BUILD)/test-programs.log

.PHONY: lint
lint: setup ## Check the code with golangci-lint and shellcheck
	@ci/lint-shell.sh
	@ci/lint-go.sh

.PHONY: test-unit
test-unit: setup ## Run the quick tests of src, with the race detector; needs no root and nothing built
	@ci/setup.sh awscli
	@echo "test-unit: compiling with the race detector; the first time takes some minutes"
	@for module in $(MODULES); do (cd src/$$module && CGO_ENABLED=1 go test -race -short -timeout 20m $$(go list ./... | grep -vE '^$(READING)$$')); done
	@cd src/testbed && $(UNCACHED) -short -timeout 20m $$(go list ./... | grep -E '^$(READING)$$')

.PHONY: test-ops-files
test-ops-files: setup ## Render the manifest with every ops-file, and check the documents that describe them
	@cd src/testbed && $(UNCACHED) -timeout 20m ./templates ./docs

# Tests of clusters mostly wait, and those with real programs compute: they run at the same time. What fails beside clusters runs again
# alone, which tells a fault from a lack of processors. Go keeps the results of packages that passed, but for TEMPLATES.
test-programs: TEMPLATES := ./templates
.PHONY: test-lab test-programs test-acceptance test-first-cluster
test-lab: components release lab ## Run test-acceptance and test-first-cluster, and test-programs beside them
	@echo "test-lab: test-programs runs beside the tests of clusters and writes to $(BUILD)/test-programs.log"
	@log=$(BUILD)/test-programs.log; clusters=0; \
	  $(MAKE) test-programs >$$log 2>&1 & programs=$$!; \
	  $(MAKE) test-acceptance test-first-cluster || clusters=$$?; \
	  wait $$programs && echo "test-lab: test-programs passed" || { cat $$log; \
	    echo "test-lab: test-programs failed beside the tests of clusters and runs again, alone"; \
	    $(MAKE) test-programs $$(awk '$$1 == "ok" && $$2 ~ /testbed\/templates$$/ { print "TEMPLATES=" }' $$log); } && exit $$clusters
test-programs: components release lab ## Run the tests with real programs and VMs; needs root
	@ci/setup.sh rsyslog rsyslog-gnutls awscli
	@ci/prometheus.sh promtool
	@ci/helm.sh
	@status=0; \
	  (cd src/components/network-policy && $(BESIDE) .) || status=1; \
	  for module in $(MODULES); do (cd src/$$module && $(PROGRAMS) $(BESIDE) $$($(PROGRAM_TESTS) | grep -vx ./templates)) || status=1; done; \
	  $(if $(TEMPLATES),(cd src/testbed && $(PROGRAMS) $(BESIDE) -count=1 $(TEMPLATES)) || status=1;) exit $$status
test-acceptance: release lab ## Deploy in labs and look at the clusters; needs root
	@ci/setup.sh busybox-static
	@cd src/testbed && $(PROGRAMS) ACCEPTANCE=1 $(UNCACHED) -timeout 60m -v ./acceptance
test-first-cluster: release lab ## Run the commands of docs/first-cluster.md with a cluster in a lab; needs root
	@ci/setup.sh busybox-static
	@cd src/testbed && $(PROGRAMS) ACCEPTANCE=1 $(UNCACHED) -timeout 20m -v -run 'InLab$$' ./firstcluster

.PHONY: test-systemd
test-systemd: export SYSTEMD_DIR := $(CURDIR)/$(BUILD)/systemd
test-systemd: release lab ## Boot a stock Debian in QEMU, with its kernel and systemd, and deploy there; needs root (85 minutes without KVM, TEST="name" runs one)
	@ci/setup.sh qemu-system-x86 debootstrap busybox-static
	@ci/go-build.sh guest $(SYSTEMD_DIR)/bin testbed ./cmd/guest ./cmd/machine
	@cd src/testbed && $(UNCACHED) -timeout 5h -v -run '$(or $(TEST),.)' ./debian

.PHONY: soak
soak: components release lab ## Run the tests that are slow by nature, in labs, as the pipeline does at night; needs root
	@ci/setup.sh strace busybox-static
	@ci/prometheus.sh promtool prometheus
	@ci/cloud-controllers.sh
	@ci/metallb.sh
	@$(PREVIOUS_KUBERNETES)
	@cd src/helpers && CGO_ENABLED=1 $(PROGRAMS) $(CLOUD_CONTROLLERS) $(UNCACHED) -race -timeout 60m $$($(PROGRAM_TESTS))
	@cd src/components/kubernetes && $(UNCACHED) -timeout 30m .
	@cd src/testbed && $(PROGRAMS) $(PROMETHEUS) ACCEPTANCE=1 SOAK=1 go test -count=1 -timeout 4h -v -run '^TestSoak' ./acceptance
	@cd src/testbed && $(PROGRAMS) ACCEPTANCE=1 SOAK=1 go test -count=1 -timeout 30m -v -run '^TestSoak' ./firstcluster
	@$(MAKE) csi-sanity
	@$(MAKE) storage-conformance
	@$(MAKE) gateway-conformance
	@$(MAKE) test-systemd

.PHONY: csi-sanity
csi-sanity: components ## Test the EBS CSI driver against the Container Storage Interface with csi-sanity; needs root
	@ci/csi-sanity.sh
	@cd src/testbed && $(PROGRAMS) CSI_SANITY_BIN=$(CURDIR)/$(BUILD)/bin/csi-sanity $(UNCACHED) -timeout 30m -v ./csisanity

.PHONY: cis
cis: release lab ## Check a cluster against the CIS Kubernetes Benchmark with kube-bench; report in .build/cis; needs root
	@ci/go-build.sh cis $(BUILD)/bin testbed ./cmd/cis
	@ci/cis.sh

.PHONY: conformance
conformance: release lab ## Run the conformance tests of Kubernetes; results in .build/conformance; needs root (an hour; FOCUS="regexp" SKIP="regexp")
	@ci/setup.sh busybox-static bind9-dnsutils netcat-openbsd wget
	@ci/go-build.sh conformance-tool $(BUILD)/bin testbed ./cmd/conformance
	@ci/conformance.sh

.PHONY: storage-conformance
storage-conformance: export DRIVER := $(CURDIR)/src/testbed/conformance/ebs-driver.yml
storage-conformance: export LABELS :=
storage-conformance: export WORKERS := 4
storage-conformance: ## Run the External Storage tests of Kubernetes with the EBS CSI driver, as conformance; needs root (FOCUS SKIP)
	@$(MAKE) conformance FOCUS='External.Storage.*$(FOCUS)' SKIP='stale subpath bind mount|any volume data source$(if $(SKIP),|$(SKIP))'

.PHONY: gateway-conformance
gateway-conformance: export GATEWAY_CONFORMANCE_DIR := $(CURDIR)/$(BUILD)/gateway-conformance
gateway-conformance: export GATEWAY_CONFORMANCE_TEST := $(TEST)
gateway-conformance: components ## Run the conformance tests of Gateway API; results in .build/gateway-conformance; needs root (TEST="name" runs one)
	@ci/gateway-conformance.sh
	@cd src/testbed && $(PROGRAMS) $(UNCACHED) -timeout 60m -v -run 'TestGatewayConformance$$' ./templates

.PHONY: bench bench-size bench-deploy bench-updates bench-sizes bench-restore bench-faults bench-storage bench-providers bench-preflight bench-joins bench-pods bench-drill bench-defragment bench-rotation bench-tool
bench: release lab bench-tool ## Measure all; prints ratios (two hours; BENCH_CLONE=1 adds clone to cluster, an hour)
	@ci/setup.sh strace
	@$(PREVIOUS_KUBERNETES)
	@status=0; \
	  $(BUILD)/bin/bench --accounts 2000 size deploy sizes updates restore faults storage preflight $(if $(filter 1,$(BENCH_CLONE)),clone) || status=1; \
	  $(MAKE) --no-print-directory --keep-going bench-providers bench-joins bench-pods bench-drill bench-defragment bench-rotation || status=1; \
	  $(if $(filter 1,$(BENCH_CLONE)),true,echo "Left out: clone to cluster against go build of the components; BENCH_CLONE=1 make bench measures it too (an hour)"); \
	  echo "2,000 random accounts; make bench-preflight tries 10,000"; exit $$status
bench-size: release bench-tool ## Measure the tarball against the bare upstream programs
	@$(BUILD)/bin/bench size
bench-deploy: release lab bench-tool ## Measure a deploy against a start by hand, and memory
	@$(BUILD)/bin/bench deploy
bench-updates: release lab bench-tool ## Measure failed API requests and the longest gap while VMs are updated, upgraded and recreated
	@$(PREVIOUS_KUBERNETES)
	@$(BUILD)/bin/bench updates
bench-sizes: release lab bench-tool ## Measure deploys of one, three and five VMs
	@$(BUILD)/bin/bench sizes
bench-restore: release lab bench-tool ## Measure the restore of a snapshot of etcd, per 100 MB
	@$(BUILD)/bin/bench restore
bench-faults: release lab bench-tool ## Measure the time to recover from faults: processes, VMs, networks
	@ci/setup.sh strace
	@$(BUILD)/bin/bench faults
bench-storage: release lab bench-tool ## Measure claims, calls of EC2, and what storage adds in memory and size
	@$(BUILD)/bin/bench storage
bench-providers: release bench-tool ## Measure what each cloud adds in size, time to build, and the preflights of OpenStack and vSphere
	@$(BUILD)/bin/bench providers
	@cd src/testbed && go test -run '^$$' -bench Preflight -benchtime 3x ./openstacksim
	@cd src/helpers && go test -run '^$$' -bench Preflight -benchtime 3x ./cloud/vsphere/vcenter
bench-preflight: bench-tool ## Measure the preflights of 1,000 workers at once, its results in 10,000 random accounts, and advice for 10,000 broken ones
	@$(BUILD)/bin/bench preflight
	@if [ -x $(BUILD)/components/cloud-provider-aws/bin/aws-cloud-controller-manager ]; then cd src/testbed/accounts/results && \
	  $(PROGRAMS) go test -count=1 -timeout 40m -run 'TestRealCloudController$$' -v . -args -real 50 | grep -v '^ *--- PASS\|^=== '; \
	  else echo "Left out: 50 random accounts with the real cloud controller; make components builds it"; fi
	@cd src/testbed/preflight && go test -count=1 -timeout 120m -run 'TestAdviceLeadsToAPass$$' -v . -args -advice-accounts 10000 | grep -v '^ *--- PASS\|^=== '
	@cd src/testbed/preflight && go test -count=1 -timeout 120m -run 'TestAccountAdviceLeadsToAPass$$' -v . -args -advice-accounts 1000 | grep -v '^ *--- PASS\|^=== '
bench-joins: release ## Measure joins a second and the time to a certificate under attack against the same without one
	@cd src/helpers && $(PROGRAMS) go test -run '^$$' -bench JoinsUnderAttack -benchtime 1x ./control/nodes/join | \
	  $(FIGURES)
bench-pods: components release lab ## Measure what pods cost beside upstream's API server, and have on AWS: time to credentials, load balancers, KMS, DNS
	@cd src/testbed && $(PROGRAMS) SOAK=1 $(UNCACHED) -timeout 30m -v -run '^(TestPodCostsAsMuchAsUpstreams|TestManyServiceAccounts)$$' \
	  ./templates | $(FIGURES)
	@cd src/testbed && $(PROGRAMS) ACCEPTANCE=1 SOAK=1 $(UNCACHED) -timeout 90m -v -run '^TestSoak(PodRoles|LoadBalancers|Gateways|KMS|NodeDNS)$$' \
	  ./acceptance | $(FIGURES)
bench-drill: release lab ## Measure how long it takes until a cluster is back that lost its quorum, or all control VMs and disks
	@cd src/testbed && $(PROGRAMS) ACCEPTANCE=1 SOAK=1 $(UNCACHED) -timeout 90m -v -run '^TestSoakEtcdRestore$$' \
	  ./acceptance | grep -E 'after the loss|^(---|ok|FAIL)'
bench-defragment: release ## Measure how long three full databases of etcd are defragmented, and what clients of the API notice
	@cd src/helpers && $(PROGRAMS) go test -count=1 -v -run 'TestFullEtcdUnderLoad$$' ./control/etcd/members -full-mib 1024 | \
	  $(FIGURES)
bench-rotation: bench-tool ## Measure what logrotate loses of a log to which 10,000 lines a second are written
	@ci/setup.sh logrotate
	@$(BUILD)/bin/bench rotation
bench-tool: setup
	@ci/go-build.sh bench $(BUILD)/bin testbed ./cmd/bench

##: Continuous integration (ci/README.md)

.PHONY: aws-deploy aws-test aws-upgrade aws-delete aws-sweep
aws-deploy: ## Deploy CANDIDATE as CLUSTER to AWS, through the Director of the bosh CLI's environment
	@ci/aws.sh deploy "$(CLUSTER)" "$(CANDIDATE)"
aws-test: ## Run the errands of CLUSTER
	@ci/aws.sh test "$(CLUSTER)"
aws-upgrade: ## Deploy FINAL with the manifest in the tarball SOURCE as CLUSTER, and upgrade it to CANDIDATE
	@ci/aws.sh upgrade "$(CLUSTER)" "$(SOURCE)" "$(FINAL)" "$(CANDIDATE)"
aws-delete: setup ## Delete CLUSTER, its release on the Director, and what it created in the account
	@ci/setup.sh awscli
	@ci/aws.sh delete "$(CLUSTER)"
aws-sweep: setup ## Delete what CLUSTER has left in the account, if it is not deployed
	@ci/setup.sh awscli
	@ci/aws.sh sweep "$(CLUSTER)"

.PHONY: bump ship-check vulnerabilities
bump: setup ## Pin the newest patch versions of the shipped programs
	@ci/bump.sh
ship-check: release ## Compare the release that is built here with TESTED
	@ci/ship-check.sh "$(TESTED)" $(BUILD)/release/kubernetes.tgz
vulnerabilities: release release-tool ## List known vulnerabilities of the release's modules (CANDIDATE=FILE DATABASE=URL)
	@$(BUILD)/bin/release vulnerabilities $(if $(DATABASE),--database "$(DATABASE)") $(BUILD)/release/kubernetes.tgz
