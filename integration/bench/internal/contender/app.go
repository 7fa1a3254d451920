package contender

import (
	"context"
	"fmt"
	"time"
)

// App is an application under load: its transactions insert a row and write a message, and its
// consumers work as [Kind] says. Any number of goroutines may call Do.
type App interface {
	// Do inserts a row and writes a message in one transaction.
	Do(ctx context.Context, t Task) error
	// Start begins to consume. The stop it returns ends that, and waits for what runs.
	Start(ctx context.Context) (stop func() error, err error)
	// Close closes the connections.
	Close() error
}

// AppWork is what an [App] reports.
type AppWork struct {
	// Begun is called when a consumer begins, Done when it has ended, by many goroutines.
	Begun, Done func(Task)
	// Fail is told of a failure in the background, which ends the measurement.
	Fail func(error)
}

// run is a consumer that needs no transaction.
func (w AppWork) run(t Task) {
	w.Begun(t)
	<-time.After(KindOf(t.N).Takes())
	w.Done(t)
}

// NameBare is the application alone: the same transactions and waits, and no messages.
const NameBare = "bare"

// openApps are those that may be measured.
var openApps = map[string]func(ctx context.Context, dsn string, work AppWork) (App, error){
	NameBare: openBareApp,
	NameOurs: openOursApp,
	NameRiver: func(ctx context.Context, dsn string, work AppWork) (App, error) {
		return openRiverApp(ctx, dsn, work, Tuned())
	},
	NameRiverDefaults: func(ctx context.Context, dsn string, work AppWork) (App, error) {
		return openRiverApp(ctx, dsn, work, Defaults())
	},
}

// OpenApp installs an application in an empty database.
func OpenApp(ctx context.Context, name, dsn string, work AppWork) (App, error) {
	open, ok := openApps[name]
	if !ok {
		return nil, fmt.Errorf("no application is called %q", name)
	}
	return open(ctx, dsn, work)
}

const (
	createTasks = "CREATE TABLE bench_tasks (id bigserial PRIMARY KEY, n bigint NOT NULL, email text NOT NULL);" +
		"CREATE TABLE bench_task_effects (n bigint PRIMARY KEY, at timestamptz NOT NULL)"
	// TaskEffects is the table into which consumers insert.
	TaskEffects = "bench_task_effects"

	insertTask       = "INSERT INTO bench_tasks (n, email) VALUES ($1, $2)"
	insertTaskEffect = "INSERT INTO bench_task_effects (n, at) VALUES ($1, $2)"
)
