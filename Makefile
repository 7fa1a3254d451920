# The modules of this repository, each with its own go.mod. `make modules` fails when the list is wrong.
ADAPTERS := broker/kafka broker/nats broker/rabbitmq
MODULES := . notify/pgxnotify pgxtx $(ADAPTERS) cmd/asyncmonolith examples examples/services examples/transactions integration integration/bench

CACHE := $(CURDIR)/.cache
STATICCHECK := $(CACHE)/bin/staticcheck
WITH_POSTGRES := scripts/with-postgres.sh
WITH_DATABASES := scripts/with-postgres.sh scripts/with-mariadb.sh
# Tests have their servers' files in memory where there is room; what measures, and chaos, has them on a disk.
TEST_DATABASES := env ASYNCMONOLITH_TEST_IN_MEMORY=1 $(WITH_DATABASES)

# Nothing built here is shipped, and version stamping fails in a checkout owned by someone else.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
# The steps print under headings: keep them in order, even under make -j.
.NOTPARALLEL:

# $(call step,TEXT,COMMAND) runs COMMAND under a heading and prints how long it took. $(call in-each,MODULES,TEXT,COMMAND)
# does so inside each module, and $(call packages,MODULES) names their packages for one run over the workspace.
step = @scripts/step.sh '$(1)' $(2)
in-each = @set -e; for m in $(1); do (cd "$$m" && "$(CURDIR)/scripts/step.sh" "$(2) ($$m)" $(3)); done
packages = $(patsubst %,./%/...,$(1))
comma := ,
space := $(subst ,, )

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# On a fresh machine it compiles while it installs the servers.
.PHONY: test
test: ## Check and test on SQLite and PostgreSQL, and the store on MariaDB: what a change needs (4 minutes)
	@scripts/need-gcc.sh
	@go list -export -deps -test $(CHECKED) >/dev/null & $(TEST_DATABASES) $(MAKE) --no-print-directory check; status=$$?; wait; exit $$status

.PHONY: test-all
test-all: test test-rest ## Run make test, and make test-rest (16 minutes)

.PHONY: test-rest
test-rest: ## Test what make test leaves out: MariaDB, the browser, brokers, the pooler, a terminal, crashes (12 minutes)
	@scripts/need-gcc.sh
	@scripts/need-pgbouncer.sh
	@scripts/need-tmux.sh
	@scripts/need-chromium.sh
	@scripts/need-rabbitmq.sh
	@$(TEST_DATABASES) $(MAKE) --no-print-directory rest

.PHONY: quick
quick: modules fmt ## Check and test what needs no server, within a minute on a warm cache
	$(call step,go vet,go vet $(call packages,$(MODULES)))
	$(call step,go test,go test $(call packages,$(UNIT_MODULES)) ./examples/first ./examples/guide ./examples/ledger ./examples/plain \
		./examples/quickstart ./examples/services/... ./integration/mutants)
	$(call step,go test: what reads the guides$(comma) which go test does not see change,go test -count=1 -run 'Snippets|Guide|Table' ./examples ./cmd/asyncmonolith)

.PHONY: lint
lint: modules fmt vet-all tidy-diff builds alerts ## Run the static checks, and build each module by itself

.PHONY: run
run: ## Run the quickstart example
	go run ./examples/quickstart

.PHONY: bench-go
bench-go: ## Run the Go benchmarks, on a throw-away PostgreSQL and MariaDB
	@$(WITH_DATABASES) scripts/with-rabbitmq.sh $(MAKE) --no-print-directory bench-all

.PHONY: bench
bench: ## Measure against the peers, on a throw-away PostgreSQL, MariaDB and brokers
	@$(WITH_DATABASES) go run ./integration/bench -json docs/performance.json -plots docs/performance

.PHONY: bench-quick
bench-quick: ## Print one line per speed bar, within four minutes
	@$(WITH_POSTGRES) go run ./integration/bench -quick

.PHONY: chaos
chaos: ## Put the promises to the test with crashes and faults (20 minutes)
	@$(WITH_DATABASES) $(MAKE) --no-print-directory chaos-bars TIER=chaos

.PHONY: chaos-long
chaos-long: ## All of that, longer, and with everything else we know (200 minutes)
	@$(WITH_DATABASES) $(MAKE) --no-print-directory chaos-bars TIER=long

# What one fuzz target gets. Each runs in turn: a session of `go test -fuzz` takes one target.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s), on a throw-away PostgreSQL and MariaDB
	@$(TEST_DATABASES) $(MAKE) --no-print-directory fuzz-all FUZZTIME=$(FUZZTIME)

.PHONY: mutants
mutants: ## Break the library on purpose, and check that the tests report it (10 minutes)
	@$(TEST_DATABASES) go run ./integration/mutants $(MUTANTS_ARGS)

.PHONY: freeze
freeze: ## Stop a process at each statement of the library's transactions: others go on in time (12 minutes)
	@cd integration && env ASYNCMONOLITH_TEST_IN_MEMORY=1 ../$(WITH_POSTGRES) go test -count=1 -timeout 60m -run '^TestAFrozenClient' ./txn -args -freeze.all $(FREEZE_ARGS)

.PHONY: relay-test
relay-test: ## Run the adapters of brokers on clusters of RabbitMQ and NATS (5 minutes)
	@scripts/need-gcc.sh
	@scripts/need-rabbitmq.sh
	$(call in-each,integration,NATS on three nodes,../$(WITH_POSTGRES) $(RELAY_TEST) ./broker/nats -args -clusters)
	$(call in-each,integration,RabbitMQ on three nodes,../scripts/with-rabbitmq.sh 3 $(RELAY_TEST) ./broker/rabbitmq)

# The versions of PostgreSQL to test beside the installed one: any of 13 to 18.
VERSIONS ?= 13 18

.PHONY: test-versions
test-versions: ## Run what depends most on the server, on PostgreSQL 13 and 18 (VERSIONS)
	@scripts/need-pgbouncer.sh
	@scripts/test-versions.sh $(VERSIONS)

.PHONY: console-test
console-test: ## Look at every page of the console in Chromium, with all data, widths and themes (10 minutes)
	@scripts/need-gcc.sh
	@scripts/need-chromium.sh
	@$(TEST_DATABASES) $(MAKE) --no-print-directory console-all

.PHONY: incident
incident: ## Find and solve troubles by the command alone, and in the browser alone
	@scripts/need-gcc.sh
	@scripts/need-chromium.sh
	@cd integration && ../scripts/with-postgres.sh ../scripts/with-mariadb.sh go test -count=1 -run 'TestAnIncident' ./cli ./console

.PHONY: pictures
pictures: ## Take the pictures of the console that the guides show
	@scripts/need-chromium.sh
	go run ./integration/pictures

.PHONY: alerts
alerts: ## Check the example alerts and run their tests
	$(call step,alerts,scripts/check-alerts.sh)

.PHONY: tidy
tidy: ## Run go mod tidy in every module
	$(call in-each,$(MODULES) tools,go mod tidy,env GOWORK=off go mod tidy)

.PHONY: clean
clean: ## Remove the built tools
	rm -rf "$(CACHE)"

# The steps of the targets above. Each can be run alone; check, rest and the benchmarks expect
# ASYNCMONOLITH_TEST_POSTGRES and ASYNCMONOLITH_TEST_MARIADB to name servers.

.PHONY: check
check: modules fmt vet staticcheck unit databases
	$(call step,all checks passed,true)

.PHONY: rest
rest: tidy-diff vet-all race mariadb apart tools some-mutants bench-once
	$(call step,the rest has passed,true)

.PHONY: modules
modules:
	$(call step,modules,scripts/check-modules.sh $(MODULES) tools)

.PHONY: fmt
fmt:
	$(call step,gofmt,scripts/check-gofmt.sh)

# What make test checks is what it tests; make test-rest and make lint check every module.
.PHONY: vet
vet:
	$(call step,go vet,go vet $(CHECKED))

.PHONY: staticcheck
staticcheck: $(STATICCHECK)
	$(call step,staticcheck,"$(STATICCHECK)" $(CHECKED))

.PHONY: vet-all
vet-all: $(STATICCHECK)
	$(call step,go vet: every module,go vet $(call packages,$(MODULES)))
	$(call step,staticcheck: every module,"$(STATICCHECK)" $(call packages,$(MODULES)))

# Always asked, so that a new Go toolchain rebuilds it; the build cache makes that a matter of a moment.
.PHONY: $(STATICCHECK)
$(STATICCHECK):
	@cd tools && GOWORK=off go build -o "$@" honnef.co/go/tools/cmd/staticcheck

.PHONY: tidy-diff
tidy-diff:
	$(call in-each,$(MODULES) tools,go mod tidy -diff,env GOWORK=off go mod tidy -diff)

# The race detector looks at our code, and at that of the driver, but not into SQLite itself: that is C in the words
# of Go, which it would slow down four times, and finds nothing in.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false -gcflags=modernc.org/memory=-race=false
RACE_TEST := env CGO_ENABLED=1 scripts/race-test.sh $(RACE) -vet=off -parallel 8 -timeout 20m
RELAY_TEST := env CGO_ENABLED=1 go test -race -count=1 -timeout 20m
# Every module is vetted in a step of its own.
# Most of these tests wait for leases, polls and locks, so more of them run at a time than there are cores.
TEST := go test -vet=off -count=1 -p 3 -parallel 6 -timeout 20m

# Tests that need a pooler or a terminal, and those whose point is many rows, every pair of options, or a client that stands still.
APART_NAMES := StoreUnderOtherSettings|Pooler|OnATerminal|DeafNotifiers|OnlyTheListener|BoundedReads|AFrozenClient|DueMessagesStartSoon|ExplainLedger|PagesRead|AdminFinds$$|MariaDBPlans|MariaDBStatementsFit
APART := ^Test[A-Za-z0-9]*($(APART_NAMES))
APART_PACKAGES = $(shell grep -rlE --include='*_test.go' 'func Test[A-Za-z0-9]*($(APART_NAMES))' cmd integration | xargs -n1 dirname | sort -u | sed 's|^|./|')

# What make test goes by.
ON_MARIADB := $(foreach test,TestStore TestDriverErrorsAreClassified TestMissingTablesHaveOneName TestMariaDBHasNoEventLog TestNotifiersThatCannotBeMade,$(comma)mariadb:$(test))
SMALL := env ASYNCMONOLITH_TEST_DATABASES=sqlite$(comma)postgres$(subst $(space),,$(ON_MARIADB))

UNIT_MODULES := . notify/pgxnotify pgxtx $(ADAPTERS) cmd/asyncmonolith
# Packages of integration that run on several databases.
DATABASE_PACKAGES := $(addprefix ./integration/,bustest dberr eventlog/... fxmodule handles notify ops otel outbox poison relay schedule store testdb txn)
# Those that need more than a database: browsers, brokers, crashes of servers, programs.
TOOL_PACKAGES := $(addprefix ./integration/,chaos broker/rabbitmq cli console model newer broker/kafka broker/nats broker/sdkevents)
# The units where goroutines meet. The others of the root module are functions of their arguments.
RACE_PACKAGES = $(filter-out %/internal/arch %/schedule/cron,$(shell go list ./... ./notify/pgxnotify/...))
PLAIN_PACKAGES := ./internal/arch ./schedule/cron ./cmd/asyncmonolith/... ./examples/... ./examples/transactions/... ./integration/mutants $(DATABASE_PACKAGES)
# The packages that have Go benchmarks.
BENCHMARKED = $(shell grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u)
# The benchmarks of the steps apart and tools run at one iteration after the tests, which spares a link of each package.
# go test would run its packages one after the other if it knew of them.
BENCH_ALONG := -args -test.bench=. -test.benchtime=1x
BENCH_ROWS := env ASYNCMONOLITH_BENCH_ROWS=1000
CHECKED := ./... ./notify/pgxnotify/... $(filter-out ./internal/arch ./schedule/cron,$(PLAIN_PACKAGES))

# go test knows what these depend on, and runs again what a change may have broken.
.PHONY: unit
unit:
	$(call step,go test -race: units,$(RACE_TEST) $(RACE_PACKAGES))

.PHONY: databases
databases:
	$(call step,go test: SQLite and PostgreSQL$(comma) the store on MariaDB too,$(SMALL) $(TEST) -skip '$(APART)' $(PLAIN_PACKAGES))

# What make test runs without the race detector, or not at all.
.PHONY: race
race:
	$(call step,go test -race: adapters$(comma) the command$(comma) examples,$(RACE_TEST) -count=1 -p 4 -skip '$(APART)' \
		$(call packages,$(ADAPTERS) cmd/asyncmonolith examples examples/services examples/transactions) ./integration/bustest ./integration/fxmodule)

# What is about MariaDB in the first five runs in make test, and in the others in the step race.
NO_MARIADB := %/dberr %/eventlog/... %/notify %/otel %/testdb %/bustest %/fxmodule
.PHONY: mariadb
mariadb:
	$(call step,go test -race: MariaDB,env ASYNCMONOLITH_TEST_DATABASES=mariadb $(RACE_TEST) -count=1 -skip '$(APART)|^TestStore$$' $(filter-out $(NO_MARIADB),$(DATABASE_PACKAGES)))

.PHONY: apart
apart:
	$(call step,go test: a pooler$(comma) a terminal$(comma) much data,$(BENCH_ROWS) $(TEST) -run '$(APART)' $(APART_PACKAGES) $(BENCH_ALONG))

.PHONY: tools
tools:
	$(call step,go test: browsers$(comma) brokers$(comma) crashes$(comma) programs,$(BENCH_ROWS) scripts/with-rabbitmq.sh $(TEST) -p 4 -skip '$(APART)' $(TOOL_PACKAGES) $(BENCH_ALONG))

.PHONY: some-mutants
some-mutants:
	$(call step,mutants: a sample,go run ./integration/mutants -sample 8)

.PHONY: console-all
console-all:
	$(call in-each,integration,the console with all data,env CGO_ENABLED=1 go test $(RACE) -count=1 -timeout 40m ./console -args -all)

.PHONY: bench-once
bench-once:
	$(call step,benchmarks at one iteration,$(BENCH_ROWS) go test -vet=off -run '^$$' -bench . -benchtime 1x -timeout 10m \
		$(filter-out $(APART_PACKAGES) $(TOOL_PACKAGES),$(BENCHMARKED)))

.PHONY: bench-all
bench-all:
	$(call step,benchmarks,go test -run '^$$' -bench . -benchmem -p 1 -timeout 60m $(BENCHMARKED))

# Run inside the package, since go test then passes on what a bar prints as it goes. Without -race: the
# workers are real processes, and the detector would only slow them down. Without a timeout of go test,
# which runs no cleanups: each bar ends itself.
.PHONY: chaos-bars
chaos-bars:
	cd integration/chaos && go test -count=1 -timeout 0 -run '^TestBars$$' -args -tier $(TIER) $(CHAOS_ARGS)

.PHONY: fuzz-all
fuzz-all:
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r target; do \
			printf '\n== %s (%s)\n' "$$target" "$$(dirname "$$file")"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null; \
		done; \
	done

# go list -export compiles the packages as go build does, and links no program.
.PHONY: builds
builds:
	$(call in-each,$(MODULES),compile without the workspace,env GOWORK=off go list -export -f '{{""}}' ./...)
