package arch_test

import (
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/asyncmonolith/asyncmonolith-go"

// An allowance says what the packages that match a pattern may import besides the standard library:
// packages of this repository by their directory, third-party packages by their import path. Patterns
// are those of matches; the first row that matches a package decides.
type allowance struct {
	packages   string
	project    []string
	thirdParty []string
}

// public are the packages that users import, but for console, fxmodule and bustest.
func public() []string {
	return []string{"bus", "middleware", "admin", "outbox", "schedule", "schedule/cron", "poison", "notify", "otel", "eventlog/...",
		"broker", "inbox", "relay", "ops"}
}

// ground is what bus stands on. Who may import bus may import that, and package access, too.
func ground() []string {
	return []string{"internal/limits", "internal/errorlog", "internal/wakeup", "internal/handoff"}
}

// law is the import law. A package that no row names is a violation: where it stands is decided here
// before it is written.
func law() []allowance {
	const (
		uuid    = "github.com/google/uuid"
		backoff = "github.com/cenkalti/backoff/v4"
	)
	// Nobody gets bun/driver/..., and only one database's package gets its dialect; bun/dialect itself is their names.
	bun := []string{"github.com/uptrace/bun", "github.com/uptrace/bun/dialect", "github.com/uptrace/bun/schema"}
	otelAPI := []string{
		"go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/attribute",
		"go.opentelemetry.io/otel/baggage",
		"go.opentelemetry.io/otel/codes",
		"go.opentelemetry.io/otel/metric/...",
		"go.opentelemetry.io/otel/propagation",
		"go.opentelemetry.io/otel/semconv/...",
		"go.opentelemetry.io/otel/trace/...",
	}
	fx := []string{"go.uber.org/fx", "go.uber.org/fx/fxevent", "go.uber.org/dig"}
	return []allowance{
		{"bus", append(ground(), "internal/hooks"), []string{uuid, "github.com/uptrace/bun/schema"}},
		{"internal/access", []string{"bus", "internal/hooks"}, []string{"github.com/uptrace/bun/schema"}},
		{"internal/hooks", nil, nil},
		{"internal/limits", nil, nil},
		{"internal/errorlog", nil, nil},
		{"internal/wakeup", nil, nil},
		{"internal/handoff", nil, []string{uuid, "github.com/uptrace/bun"}},
		{"internal/paging", []string{"internal/limits"}, nil},
		{"middleware", []string{"bus", "internal/isolate"}, []string{backoff}},
		{"outbox", []string{"bus", "admin", "internal/engine", "internal/flow", "internal/hooks", "internal/steps", "internal/store",
			"internal/txn", "internal/dberr"}, bun},
		{"internal/engine", []string{"bus", "middleware", "internal/flow", "internal/store", "internal/txn", "internal/dberr",
			"internal/outage", "internal/alarm", "internal/isolate", "internal/heartbeat", "internal/errtype",
			"internal/steps"}, append([]string{uuid, backoff}, bun...)},
		{"internal/flow", []string{"bus", "internal/store"}, nil},
		{"internal/steps", []string{"bus", "internal/store"}, nil},
		{"admin", []string{"bus", "internal/flow", "internal/names", "internal/paging", "internal/heartbeat", "internal/steps",
			"internal/hooks", "internal/store", "internal/txn", "internal/dberr", "internal/outage"}, bun},
		{"internal/names", []string{"bus", "internal/heartbeat", "internal/store"}, []string{"github.com/uptrace/bun"}},
		{"internal/contract", []string{"bus", "internal/logaccess"}, nil},
		{"internal/minutes", []string{"internal/store", "internal/dberr"}, []string{"github.com/uptrace/bun"}},
		{"internal/pending", []string{"bus", "admin", "internal/hooks", "internal/store", "internal/dberr"},
			[]string{"github.com/uptrace/bun"}},
		{"schedule", []string{"bus", "admin", "schedule/cron", "internal/paging", "internal/isolate",
			"internal/heartbeat", "internal/lifecycle", "internal/store", "internal/txn",
			"internal/dberr", "internal/outage", "internal/alarm"}, append([]string{backoff}, bun...)},
		{"schedule/cron", nil, nil},
		{"poison", []string{"bus", "admin", "internal/names", "internal/paging", "internal/heartbeat", "internal/hooks", "internal/store",
			"internal/txn", "internal/dberr"}, bun},
		{"internal/poisoned", []string{"bus", "poison", "internal/store", "internal/txn", "internal/dberr", "internal/hooks"}, bun},
		{"ops", []string{"bus", "outbox", "admin", "poison", "schedule", "eventlog/projection", "internal/hooks",
			"internal/opsaccess", "internal/overview", "internal/flow", "internal/lifecycle", "internal/minutes", "internal/pending",
			"internal/poisoned", "internal/projections", "internal/store", "internal/dberr", "internal/txn", "internal/heartbeat",
			"internal/isolate"}, append([]string{uuid}, bun...)},
		{"internal/overview", []string{"bus", "admin", "internal/dberr", "internal/flow", "internal/minutes", "internal/store"}, nil},
		{"internal/opsaccess", []string{"admin", "poison", "schedule", "internal/pending", "internal/poisoned", "internal/projections",
			"internal/store"}, []string{"github.com/uptrace/bun"}},
		{"internal/operator", []string{"bus", "ops", "admin", "poison", "schedule", "eventlog/projection", "internal/opsaccess",
			"internal/overview", "internal/minutes", "internal/pending", "internal/poisoned", "internal/projections",
			"internal/contract", "internal/errtype", "internal/heartbeat", "internal/hooks", "internal/paging", "internal/store"},
			[]string{uuid, "github.com/uptrace/bun"}},
		{"console", []string{"bus", "admin", "outbox", "poison", "schedule", "eventlog/projection", "ops", "internal/operator",
			"internal/dberr"}, nil},
		{"broker", nil, nil},
		{"relay", []string{"bus", "broker", "outbox", "eventlog", "internal/cloudevents", "internal/contract", "internal/heartbeat",
			"internal/lifecycle", "internal/logpoll", "internal/store", "internal/logaccess",
			"internal/txn", "internal/dberr", "internal/isolate", "internal/outage"}, append([]string{uuid}, bun...)},
		{"inbox", []string{"bus", "broker", "outbox", "eventlog", "internal/logaccess", "internal/cloudevents", "internal/contract",
			"internal/heartbeat", "internal/lifecycle", "internal/store",
			"internal/txn", "internal/dberr", "internal/isolate", "internal/outage"}, append([]string{uuid}, bun...)},
		{"internal/cloudevents", nil, nil},
		{"notify", []string{"bus", "internal/store", "internal/outage", "internal/isolate"}, append([]string{backoff}, bun...)},
		{"notify/pgxnotify", nil, []string{"github.com/jackc/pgx/v5"}}, // a module of its own, for the driver's sake
		{"pgxtx", []string{"bus", "outbox", "internal/access", "internal/txn"}, []string{"github.com/jackc/pgx/v5/...", "github.com/uptrace/bun/dialect/pgdialect",
			"github.com/uptrace/bun/schema"}}, // alike
		{"internal/logaccess", []string{"bus", "eventlog", "internal/store", "internal/hooks"}, []string{"github.com/uptrace/bun"}},
		{"internal/projections", []string{"bus", "eventlog/projection", "internal/store", "internal/dberr", "internal/hooks"},
			[]string{"github.com/uptrace/bun"}},
		{"otel", []string{"bus", "admin", "outbox", "eventlog/projection", "inbox", "relay", "internal/errtype",
			"internal/projections"}, otelAPI},
		{"fxmodule", append([]string{"internal/store"}, public()...), slices.Concat(bun, fx, otelAPI)},
		{"bustest", append([]string{"internal/store", "internal/txn", "internal/isolate", "internal/flow",
			"internal/contract", "internal/hooks", "internal/steps"}, public()...), bun},
		{"eventlog", []string{"bus", "internal/store", "internal/txn", "internal/dberr", "internal/outage", "internal/hooks"}, bun},
		{"eventlog/projection", []string{"bus", "middleware", "eventlog", "internal/heartbeat", "internal/lifecycle", "internal/logpoll",
			"internal/store", "internal/txn", "internal/logaccess", "internal/hooks", "internal/dberr", "internal/outage", "internal/isolate"},
			append([]string{backoff}, bun...)},
		{"eventlog/decider", []string{"bus", "eventlog", "internal/logaccess", "internal/store", "internal/txn", "internal/outage"},
			append([]string{backoff}, bun...)},
		{"broker/internal/adapter", []string{"broker"}, nil},
		{"broker/brokertest", []string{"broker"}, []string{"go.uber.org/goleak"}},
		// Modules of their own, for their clients' sake.
		{"broker/nats", []string{"broker", "broker/internal/adapter"}, []string{"github.com/nats-io/nats.go/..."}},
		{"broker/kafka", []string{"broker", "broker/internal/adapter"}, []string{"github.com/twmb/franz-go/..."}},
		{"broker/rabbitmq", []string{"broker", "broker/internal/adapter"}, []string{"github.com/rabbitmq/amqp091-go"}},
		{"internal/dberr", []string{"bus"}, nil},
		{"internal/txn", []string{"bus", "internal/dberr"}, bun},
		{"internal/store/dialect", []string{"bus", "internal/txn"}, []string{"github.com/uptrace/bun"}},
		{"internal/store/postgres", []string{"bus", "internal/store/dialect", "internal/txn", "internal/dberr"},
			[]string{"github.com/uptrace/bun", "github.com/uptrace/bun/dialect/pgdialect"}},
		{"internal/store/sqlite", []string{"bus", "internal/store/dialect", "internal/dberr"}, []string{"github.com/uptrace/bun"}},
		{"internal/store/mariadb", []string{"bus", "internal/store/dialect", "internal/txn", "internal/dberr"},
			[]string{"github.com/uptrace/bun"}},
		{"internal/store", []string{"bus", "internal/store/dialect", "internal/store/postgres", "internal/store/sqlite",
			"internal/store/mariadb", "internal/txn", "internal/dberr"}, bun},
		{"internal/outage", []string{"bus", "internal/store", "internal/dberr"}, []string{backoff}},
		{"internal/alarm", nil, nil},
		{"internal/errtype", []string{"bus", "internal/isolate"}, nil},
		{"internal/lifecycle", []string{"bus", "internal/heartbeat", "internal/outage"}, nil},
		{"internal/logpoll", []string{"bus", "internal/store", "internal/outage", "internal/alarm"}, []string{"github.com/uptrace/bun"}},
		{"internal/heartbeat", []string{"bus", "internal/contract", "internal/store", "internal/errtype"},
			[]string{"github.com/uptrace/bun"}},
		{"internal/isolate", []string{"bus"}, nil},
		{"internal/store/storetest", []string{"bus", "internal/store", "internal/txn", "internal/dberr"}, bun},
		{"internal/arch", nil, nil},
		// The modules beside the root: examples show what a user can write, integration is free.
		{"examples/...", append([]string{"bustest", "console", "fxmodule", "broker/nats", "pgxtx", "examples/..."}, public()...),
			[]string{"..."}},
		{"cmd/asyncmonolith/internal/connect", []string{"internal/dberr"}, []string{"..."}},
		{"cmd/asyncmonolith/internal/show", nil, []string{"github.com/charmbracelet/x/ansi"}},
		{"cmd/asyncmonolith/internal/demo", append([]string{"cmd/asyncmonolith/internal/connect", "internal/operator"}, public()...), bun},
		{"cmd/asyncmonolith/internal/top", []string{"cmd/asyncmonolith/internal/show", "admin", "ops", "internal/operator"},
			[]string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi"}},
		{"cmd/...", append([]string{"cmd/...", "console", "internal/operator"}, public()...), []string{"..."}},
		{"integration/...", []string{"..."}, []string{"..."}},
	}
}

// row returns the allowance for a package.
func rowOf(dir string) (allowance, bool) {
	i := slices.IndexFunc(law(), func(a allowance) bool { return matches(dir, []string{a.packages}) })
	if i < 0 {
		return allowance{}, false
	}
	return law()[i], true
}

func importLaw(t *tree) []string {
	var violations []string
	unknown := map[string]bool{}
	for _, s := range t.sources {
		if s.test {
			continue
		}
		row, known := rowOf(s.dir)
		if !known {
			if !unknown[s.dir] {
				unknown[s.dir] = true
				violations = append(violations, t.at(s.file, "package %s is not in the import law: name it in internal/arch/imports_test.go", s.dir))
			}
			continue
		}
		for _, spec := range s.file.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if !row.permits(target) {
				violations = append(violations, t.at(spec, "%s may not import %s (the law is in internal/arch/imports_test.go)", s.dir, target))
			}
		}
	}
	return violations
}

// permits reports whether the allowance covers an import path.
func (a allowance) permits(target string) bool {
	if dir, ok := strings.CutPrefix(target, modulePath+"/"); ok {
		return matches(dir, a.project) || slices.Contains(a.project, "bus") && slices.Contains(append(ground(), "internal/access"), dir)
	}
	if target == modulePath {
		return matches(".", a.project)
	}
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return matches(target, a.thirdParty) || slices.Contains(a.project, "bus") && target == "github.com/google/uuid"
}
