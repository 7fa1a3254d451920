package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestJudgements is of the inside, since no test has a server that is out of connections, a standby
// whose slot was left behind, or a MariaDB with a long history. The others are in integration/ops.
func TestJudgements(t *testing.T) {
	t.Parallel()
	warns, bad := Warning, Critical
	for _, test := range []struct {
		name string
		got  []Finding
		want Severity // empty: nothing
		says string
	}{
		{"connections left", connections(store.Diagnosis{Used: 89, Most: 100}), OK, "89 of the server's 100"},
		{"connections nearly used", connections(store.Diagnosis{Used: 90, Most: 100}), bad, "90 of the server's 100"},
		{"a server that does not say", connections(store.Diagnosis{Used: 90}), OK, "90"},
		{"a history", deadRows(store.Diagnosis{HistoryList: 99_999}), "", ""},
		{"a long history", deadRows(store.Diagnosis{HistoryList: 100_000}), warns, "100000 transactions"},
		{"dead rows beside many", deadRows(store.Diagnosis{DeadRows: []store.DeadTable{{Name: "t", Live: 60_000, Dead: 59_999}}}), "", ""},
		{"few dead rows", deadRows(store.Diagnosis{DeadRows: []store.DeadTable{{Name: "t", Dead: 49_999}}}), "", ""},
		{"a slot in use", holders(store.Diagnosis{Holders: []store.Holder{{Kind: store.OfSlot, Name: "s", PID: 7, Behind: 1000}}}), "", ""},
		{"a slot left behind", holders(store.Diagnosis{Holders: []store.Holder{{Kind: store.OfSlot, Name: "s", Behind: 2_000_000}}}),
			warns, "for 2000000 transactions"},
		{"a prepared transaction", holders(store.Diagnosis{Holders: []store.Holder{{Kind: store.OfPrepared, Name: "g",
			Micros: time.Hour.Microseconds()}}}), warns, "ROLLBACK PREPARED"},
		{"a session whose age is hidden", holders(store.Diagnosis{Holders: []store.Holder{{Kind: "transaction", PID: 7,
			Behind: 1_000_000}}}), warns, "for 1000000 transactions"},
		{"no autovacuum", []Finding{weakness(store.Weakness{Name: "autovacuum", Value: "off", Want: "on", Idles: true})}, bad, "never removed"},
		{"no fsync", []Finding{weakness(store.Weakness{Name: "fsync", Value: "off", Want: "on", Damages: true})}, bad, "damage"},
		{"late commits", []Finding{weakness(store.Weakness{Name: "innodb_flush_log_at_trx_commit", Value: "2", Want: "1"})}, warns, "to 1."},
		{"a slow answer", clock(2*time.Second, 1500*time.Millisecond), OK, "within 3.5s"},
		{"a clock behind", clock(-2*time.Second, time.Millisecond), warns, "2s behind the"},
	} {
		switch {
		case test.want == "" && len(test.got) == 0:
		case len(test.got) != 1, test.got[0].Severity != test.want, !strings.Contains(test.got[0].Text+test.got[0].Remedy, test.says):
			t.Errorf("%s: got %+v, want %q that says %q", test.name, test.got, test.want, test.says)
		}
	}
}

// TestRoughly says durations as people do.
func TestRoughly(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{time.Millisecond: "1s", 119 * time.Second: "1m59s", 5 * time.Minute: "5 minutes",
		119 * time.Minute: "119 minutes", 47 * time.Hour: "47 hours", 49 * time.Hour: "2 days"} {
		if got := roughly(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}
