package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// around is what a reader of the README has to add for its code to compile, block by
// block: where "%" is stands the block as it is printed. Nothing in it uses what a block
// declares but what a reader is bound to use, an error and what is returned with it.
var around = map[string]string{
	"examples/quickstart/shop.go payload":    `%`,
	"examples/quickstart/shop.go consumers":  `%`,
	"examples/quickstart/tell.go produce":    `func produce(ctx context.Context, p *parts, order Order) error { % return err }`,
	"examples/quickstart/tell.go schedule":   `func schedules(ctx context.Context, p *parts) error { % return err }`,
	"examples/quickstart/tell.go requeue":    `func requeue(ctx context.Context, p *parts) (poison.Result, error) { % return result, err }`,
	"examples/quickstart/shop.go middleware": `%`,
	"examples/quickstart/main.go wiring":     `func wiring() fx.Option { % }`,
	"examples/plain/main.go wiring":          `%`,
	"examples/guide/opening.go postgres":     `func postgres() (*bun.DB, error) { % return db, nil }`,
}

// mentioned are the things of the reader's own that the blocks mention.
const mentioned = `package readme

import ("context"; "database/sql"; "errors"; "log/slog"; "time"
_ "github.com/jackc/pgx/v5/stdlib"
"github.com/uptrace/bun"; "github.com/uptrace/bun/dialect/pgdialect"; "go.uber.org/fx"
"github.com/asyncmonolith/asyncmonolith-go/admin"
"github.com/asyncmonolith/asyncmonolith-go/bus"; "github.com/asyncmonolith/asyncmonolith-go/fxmodule"
"github.com/asyncmonolith/asyncmonolith-go/ops"; "github.com/asyncmonolith/asyncmonolith-go/outbox"; "github.com/asyncmonolith/asyncmonolith-go/poison"
"github.com/asyncmonolith/asyncmonolith-go/schedule")

type Order struct { ID string }
type (FeedbackDue struct{ OrderID string }; StockCountDue struct{})
func (FeedbackDue) PayloadType() string { return "" }
func (StockCountDue) PayloadType() string { return "" }
type Story struct{}
func (*Story) tell(_, _ string, _ ...any) {}
func (*Story) mark(string) {}
type Shop struct{ story *Story }
func (*Shop) SendReceipt(context.Context, OrderPlaced) error { return nil }
func (*Shop) ChargeCard(context.Context, OrderPlaced) error { return nil }
func (*Shop) NotifyWarehouse(context.Context, OrderPlaced) error { return nil }
func NewFeedbackConsumer(*Shop) (c bus.Consumer) { return }
func NewStockConsumer() (c bus.Consumer) { return }
func stampTenant(next bus.ProduceFunc) bus.ProduceFunc { return next }

// The blocks are parts of one program.
func program(ctx context.Context, db *bun.DB, shop *Shop) error {
	p, err := wire(ctx, db, append(NewOrderConsumers(shop), NewFeedbackConsumer(shop))...)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	return errors.Join(produce(ctx, p, Order{ID: "o-1"}), <-ended)
}
`

// TestReadmeCompiles compiles the README's Go code as it is printed.
func TestReadmeCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	program.WriteString(mentioned)
	found := regexp.MustCompile("(?s)<!-- snippet: (\\S+ \\S+) -->\n```go\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	for _, block := range found {
		before, after, ok := strings.Cut(around[block[1]], "%")
		if !ok {
			t.Errorf("block %q of the README is not compiled: say what is around it", block[1])
		}
		program.WriteString(before + "\n" + block[2] + "\n" + after + "\n")
	}
	if len(found) != len(around) {
		t.Errorf("blocks: got %d, want %d", len(found), len(around))
	}
	if out, err := compile(t.Context(), t.TempDir(), program.String()); err != nil {
		t.Errorf("the README does not compile: %v\n%s", err, out)
	}
}

// compile builds a package that is not there, beside this one.
func compile(ctx context.Context, dir, program string) (string, error) {
	source := filepath.Join(dir, "readme.go")
	here, err := filepath.Abs("readme/readme.go")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{here: source}})
	if err != nil {
		return "", err
	}
	for file, text := range map[string]string{source: program, filepath.Join(dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "./readme").CombinedOutput()
	return string(out), err
}
