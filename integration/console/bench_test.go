package console_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const (
	viewers   = 20
	viewEvery = 2 * time.Second
)

// BenchmarkConsole is what it takes until those who look have their page, on PostgreSQL. ASYNCMONOLITH_BENCH_ROWS
// says how many messages there are: 20,000 unless set, a million for the figures of docs/performance.md.
func BenchmarkConsole(b *testing.B) {
	rows := testapp.BenchRows(b, 20_000)
	db := migrated(b, testdb.Postgres(b))
	testapp.NewCrowd(b, db, testapp.Crowd{Pending: rows, Poisoned: rows / 10})
	b.Run("overview", func(b *testing.B) { benchViewers(b, db) })
	b.Run("pages", func(b *testing.B) { benchPages(b, db) })
}

// benchViewers has viewers look at the overview, each at times of its own. An operation is a look of each.
func benchViewers(b *testing.B, db *bun.DB) {
	address := newSite(b, db, ops.Viewer).serve()
	looked := make(chan time.Duration, viewers)
	look := func() {
		began := time.Now()
		r, err := http.Get(address)
		if err != nil {
			b.Error(err)
			return
		}
		_, err = io.Copy(io.Discard, r.Body)
		looked <- time.Since(began)
		if err := cmp.Or(err, r.Body.Close()); err != nil || r.StatusCode != http.StatusOK {
			b.Errorf("got status %d, error %v", r.StatusCode, err)
		}
	}
	look() // the first one waits for what others see
	cold := <-looked
	var took []time.Duration
	for b.Loop() {
		var all sync.WaitGroup
		next := time.NewTicker(viewEvery / viewers)
		for range viewers {
			<-next.C
			all.Go(look)
		}
		next.Stop()
		all.Wait()
		for len(looked) > 0 {
			took = append(took, <-looked)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	report(b, "", took)
	b.ReportMetric(milliseconds(cold), "ms-first")
}

// assetsOf finds what a page brings along, which browsers keep.
var assetsOf = regexp.MustCompile(`"([^"]+\.(?:css|js|svg))"`) // immutable

// benchPages opens each kind of page as the first one that anybody opens. An operation is a look at each.
func benchPages(b *testing.B, db *bun.DB) {
	paths := ofEachKind(crawl(newSite(b, db, ops.Administrator), 2))
	took, weighs := map[string][]time.Duration{}, map[string]int{}
	for b.Loop() {
		for _, path := range paths {
			s := newSite(b, db, ops.Administrator)
			r := request(http.MethodGet, path, nil)
			began := time.Now()
			a := s.ask(r)
			took[path] = append(took[path], time.Since(began))
			weighs[path] = zipped(b, a.body)
			for _, with := range assetsOf.FindAllStringSubmatch(a.body, -1) {
				weighs[path] += zipped(b, s.must(with[1]).body)
			}
		}
	}
	slow := func(x, y string) int { return cmp.Compare(quantile(took[y], 0.5), quantile(took[x], 0.5)) }
	all := slices.SortedFunc(maps.Keys(took), slow)
	for _, path := range all[:min(len(all), 10)] {
		b.Logf("%6.1f ms, %6.1f at most, %5.1f KB: %.60q", milliseconds(quantile(took[path], 0.5)), milliseconds(quantile(took[path], 1)),
			float64(weighs[path])/1000, path)
	}
	report(b, "", slices.Concat(slices.Collect(maps.Values(took))...))
	report(b, "-worst", took[all[0]])
	b.ReportMetric(float64(slices.Max(slices.Collect(maps.Values(weighs))))/1000, "KB-at-most")
}

func report(b *testing.B, of string, took []time.Duration) {
	b.ReportMetric(milliseconds(quantile(took, 0.5)), "ms-p50"+of)
	b.ReportMetric(milliseconds(quantile(took, 0.99)), "ms-p99"+of)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile is the least of them that so many are not above.
func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[max(0, min(len(sorted)-1, int(float64(len(sorted))*q)))]
}

// zipped is how many bytes of a page travel, behind what compresses.
func zipped(b *testing.B, body string) int {
	b.Helper()
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	_, err := io.WriteString(z, body)
	if err := cmp.Or(err, z.Close()); err != nil {
		b.Fatal(err)
	}
	return to.Len()
}
