# The modules of this repository, each with its own go.mod. `make modules` fails when the list is wrong.
ADAPTERS := relay/kafka relay/nats relay/rabbitmq relay/watermill
MODULES := . notify/pgxnotify $(ADAPTERS) cmd/asyncmonolith examples examples/services integration integration/bench
BENCH_MODULES := . integration
PLATFORMS := linux darwin windows

CACHE := $(CURDIR)/.cache
STATICCHECK := $(CACHE)/bin/staticcheck
WITH_POSTGRES := scripts/with-postgres.sh
WITH_DATABASES := scripts/with-postgres.sh scripts/with-mariadb.sh

# Nothing built here is shipped, and version stamping fails in a checkout owned by someone else.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
# The steps print under headings: keep them in order, even under make -j.
.NOTPARALLEL:

# $(call heading,TEXT) and $(call in-each,MODULES,TEXT,COMMAND): runs COMMAND inside each module.
heading = @printf '\n== %s\n' '$(1)'
in-each = @set -e; for m in $(1); do printf '\n== %s (%s)\n' '$(2)' "$$m"; (cd "$$m" && $(3)); done

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## Run every check and every test, on a throw-away PostgreSQL and MariaDB
	@scripts/need-gcc.sh
	@scripts/need-pgbouncer.sh
	@scripts/need-tmux.sh
	@scripts/need-chromium.sh
	@$(WITH_DATABASES) $(MAKE) --no-print-directory check

.PHONY: quick
quick: modules fmt ## Check and test what needs no server, within a minute on a warm cache
	$(call in-each,. notify/pgxnotify $(ADAPTERS),go vet and go test,go vet ./... && go test ./...)
	$(call in-each,examples,go vet and go test,go vet ./... && go test . ./guide ./ledger ./plain ./quickstart)
	$(call in-each,examples/services,go vet and go test,go vet ./... && go test ./...)
	$(call in-each,integration,go vet and go test,go vet ./... && go test ./mutants)

.PHONY: lint
lint: modules fmt vet staticcheck tidy-diff builds alerts ## Run the static checks and build for every platform

.PHONY: run
run: ## Run the quickstart example
	go run ./examples/quickstart

.PHONY: bench-go
bench-go: ## Run the Go benchmarks, on a throw-away PostgreSQL and MariaDB
	@$(WITH_DATABASES) $(MAKE) --no-print-directory bench-all

.PHONY: bench
bench: ## Measure against the peers, on a throw-away PostgreSQL, MariaDB and brokers
	@$(WITH_DATABASES) go run ./integration/bench -json docs/performance.json -plots docs/performance

.PHONY: bench-quick
bench-quick: ## Print one line per speed bar, within a minute
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
	@$(WITH_DATABASES) $(MAKE) --no-print-directory fuzz-all FUZZTIME=$(FUZZTIME)

.PHONY: mutants
mutants: ## Break the library on purpose, and check that the tests report it (10 minutes)
	@$(WITH_DATABASES) go run ./integration/mutants $(MUTANTS_ARGS)

.PHONY: relay-test
relay-test: ## Run the adapters of brokers on RabbitMQ, and on clusters of it and of NATS (7 minutes)
	@scripts/need-gcc.sh
	@scripts/need-rabbitmq.sh
	$(call in-each,integration,NATS on three nodes,../$(WITH_POSTGRES) $(RELAY_TEST) ./relay/nats -args -clusters)
	$(call in-each,integration,RabbitMQ on a node,../scripts/with-rabbitmq.sh $(RELAY_TEST) ./relay/rabbitmq -args -clusters)
	$(call in-each,integration,RabbitMQ on three nodes,../scripts/with-rabbitmq.sh 3 $(RELAY_TEST) ./relay/rabbitmq -args -clusters)

.PHONY: console-test
console-test: ## Look at every page of the console in Chromium, with all data, widths and themes (10 minutes)
	@scripts/need-gcc.sh
	@scripts/need-chromium.sh
	@$(WITH_DATABASES) $(MAKE) --no-print-directory console-all

.PHONY: pictures
pictures: ## Take the pictures of the console that the guides show
	@scripts/need-chromium.sh
	go run ./integration/pictures

.PHONY: alerts
alerts: ## Check the example alerts and run their tests
	$(call heading,alerts)
	@scripts/check-alerts.sh

.PHONY: tidy
tidy: ## Run go mod tidy in every module
	$(call in-each,$(MODULES) tools,go mod tidy,GOWORK=off go mod tidy)

.PHONY: clean
clean: ## Remove the built tools
	rm -rf "$(CACHE)"

# The steps of the targets above. Each can be run alone; check, race and the benchmarks expect
# ASYNCMONOLITH_TEST_POSTGRES and ASYNCMONOLITH_TEST_MARIADB to name servers.

.PHONY: check
check: modules fmt vet staticcheck tidy-diff race bench-once
	$(call heading,all checks passed)

.PHONY: modules
modules:
	$(call heading,modules)
	@want=$$(printf '%s\n' $(MODULES) tools | sort); \
	have=$$(find . -name '.?*' -prune -o -name testdata -prune -o -name go.mod -print | \
		sed -e 's|/go.mod$$||' -e 's|^\./||' | sort); \
	if [ "$$want" != "$$have" ]; then \
		echo "the Makefile lists:" $$want; echo "the repository has:" $$have; exit 1; \
	fi

.PHONY: fmt
fmt:
	$(call heading,gofmt)
	@files=$$(gofmt -l .) || exit; if [ -n "$$files" ]; then echo "not formatted:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet:
	$(call in-each,$(MODULES),go vet,go vet ./...)

.PHONY: staticcheck
staticcheck: $(STATICCHECK)
	$(call in-each,$(MODULES),staticcheck,"$(STATICCHECK)" ./...)

# Always asked, so that a new Go toolchain rebuilds it; the build cache makes that a matter of a moment.
.PHONY: $(STATICCHECK)
$(STATICCHECK):
	@cd tools && GOWORK=off go build -o "$@" honnef.co/go/tools/cmd/staticcheck

.PHONY: tidy-diff
tidy-diff:
	$(call in-each,$(MODULES) tools,go mod tidy -diff,GOWORK=off go mod tidy -diff)

# The detector looks at our code, and at that of the driver, but not into SQLite itself: that is C in the words
# of Go, which it would slow down four times, and finds nothing in.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false -gcflags=modernc.org/memory=-race=false

RELAY_TEST = env CGO_ENABLED=1 go test -race -count=1 -timeout 20m

.PHONY: race
race:
	$(call in-each,$(MODULES),go test -race,CGO_ENABLED=1 "$(CURDIR)/scripts/race-test.sh" $(RACE) -count=1 -parallel 4 -timeout 20m ./...)

.PHONY: console-all
console-all:
	$(call in-each,integration,the console with all data,CGO_ENABLED=1 go test $(RACE) -count=1 -timeout 40m ./console -args -all)

.PHONY: bench-once
bench-once:
	$(call in-each,$(BENCH_MODULES),benchmarks at one iteration,go test -run '^$$' -bench . -benchtime 1x -timeout 10m ./...)

.PHONY: bench-all
bench-all:
	$(call in-each,$(BENCH_MODULES),benchmarks,go test -run '^$$' -bench . -benchmem -timeout 60m ./...)

# Run inside the package, since go test then passes on what a bar prints as it goes. Without -race: the
# workers are real processes, and the detector would only slow them down. Without a timeout of go test,
# which runs no cleanups and knows nothing of -slow: each bar ends itself.
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

.PHONY: builds
builds:
	@set -e; for os in $(PLATFORMS); do \
		printf '\n== go build for %s\n' "$$os"; GOOS=$$os CGO_ENABLED=0 go build ./...; done
	$(call in-each,$(MODULES),go build without the workspace,GOWORK=off go build -o /dev/null ./...)
