package cli_test

import (
	"strings"
	"testing"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestListsSayThatThereIsMore: a list that ends at its limit says so, also in JSON.
func TestListsSayThatThereIsMore(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'stock', order_key = 'order-18', lane = ?, rank = 3, parks = TRUE WHERE id = 3",
			store.Lane("order-18"))
		a.Exec("UPDATE consumer_messages SET headers = ?", `{"lot":"7"}`)
		if s.db.Dialect().Name() == dialect.MySQL {
			return // it has no event log
		}
		now := testapp.NowOf(s.db)
		a.Exec("INSERT INTO event_subscriptions (name, shards, filter, next_at, moved_at, version, shard, status, position, attempts) VALUES ('totals', 1, '', " + now + ", " + now + ", 1, 0, 'running', 9, 0)")
		for _, position := range []int{4, 5} {
			a.Exec("INSERT INTO event_parked (name, version, position, stream, reason, parked_at) VALUES ('totals', 1, ?, 'order-17', 'why', "+now+")", position)
		}
		for command, want := range map[string]struct{ text, line string }{
			"messages blocked-keys --limit 1":        {"More keys may be blocked: raise --limit.", `{"v":1,"more":true}`},
			"messages find --header lot=7 --limit 1": {"More messages may match: raise --limit.", `{"v":1,"more":true}`},
			"projections parked totals --limit 1":    {"There are more: --after 4", `{"v":1,"next":"4"}`},
		} {
			args := strings.Fields(command)
			if got := s.must(0, args...); !got.says(want.text) {
				s.Errorf("%s: got %+v, want %q", command, got, want.text)
			}
			if got := s.must(0, append(args, "--json")...); !strings.HasSuffix(got.out, "}\n"+want.line+"\n") {
				s.Errorf("%s as JSON: got %q, want that it ends with %s", command, got.out, want.line)
			}
		}
		for _, command := range []string{"messages blocked-keys --limit 2", "messages find --header lot=7 --limit 2",
			"projections parked totals --after 4 --limit 1"} {
			if got := s.must(0, append(strings.Fields(command), "--json")...); got.says("more") || got.says("next") {
				s.Errorf("%s: got %+v, want no word of more", command, got)
			}
		}
	})
}

// TestPoisonedByTrace: poisoned messages are selected by the trace that produced them.
func TestPoisonedByTrace(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		const trace = "0af7651916cd43dd8448eb211c80319c"
		a.Exec("UPDATE poisoned_messages SET headers = ? WHERE id = 2", `{"traceparent":"00-`+trace+`-b7ad6b7169203331-01"}`)
		if got := s.must(0, "poisoned", "list", "--trace-id", trace, "--json"); !got.says(`"id":2,`) || strings.Count(got.out, "\n") != 1 {
			s.Errorf("list: got %+v, want message 2 only", got)
		}
		if got := s.must(4, "requeue", "--trace-id", trace); !got.says("1 message will be requeued.") {
			s.Errorf("requeue: got %+v, want one message", got)
		}
		s.must(2, "poisoned", "list", "--trace-id", "7")
		s.must(2, "poisoned", "list", "--trace-id", "")
	})
}
