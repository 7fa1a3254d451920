package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		before := append([]float64(nil), c.values...)
		if got := report.Median(c.values); got != c.want {
			t.Errorf("median of %v: got %v, want %v", c.values, got, c.want)
		}
		if !reflect.DeepEqual(c.values, before) {
			t.Errorf("values after the median: got %v, want them as they were, %v", c.values, before)
		}
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := []float64{5, 3, 1, 2, 4, 10, 9, 8, 7, 6}
	for p, want := range map[float64]float64{0: 1, 10: 1, 11: 2, 50: 5, 99: 10, 100: 10} {
		if got := report.Percentile(values, p); got != want {
			t.Errorf("percentile %v: got %v, want %v", p, got, want)
		}
	}
	if got := report.Percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing: got %v, want 0", got)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.35: "0.35", 0.87512: "0.875", 3.14159: "3.14", 99.96: "100", 123456.7: "123457"} {
		if got := report.Number(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

// measured is a report of three rounds.
func measured() *report.Report {
	r := &report.Report{Environment: report.Environment{Go: "go1", System: "linux/amd64", Cores: 2, Postgres: "15", Rounds: 3, Seconds: 12}}
	for _, v := range []float64{90, 1000, 100} {
		r.Add("drain", "ours", "messages/s", v)
	}
	r.Add("wal", "ours", "bytes", 901)
	for _, v := range []float64{20, 25, 30} {
		r.Add("drain", "river", "messages/s", v)
	}
	return r
}

func judge(t *testing.T, r *report.Report, goals ...report.Goal) {
	t.Helper()
	for _, g := range goals {
		if err := r.Judge(g); err != nil {
			t.Fatal(err)
		}
	}
}

func goals() []report.Goal {
	return []report.Goal{
		{Name: "drain", Measurement: "drain", Against: "river", AtLeast: 4},
		{Name: "drain-high", Measurement: "drain", Against: "river", AtLeast: 4.1},
		{Name: "wal", Measurement: "wal", AtMost: 900},
		{Name: "peer", Measurement: "drain", Contender: "river", AtMost: 25},
	}
}

func TestBarsAreOneLineEach(t *testing.T) {
	t.Parallel()
	r := measured()
	judge(t, r, goals()...)
	var out strings.Builder
	if err := r.WriteBars(&out); err != nil {
		t.Fatal(err)
	}
	want := `drain 100messages/s 4 ≥4 ok
drain-high 100messages/s 4 ≥4.1 short
wal 901bytes - ≤900bytes short
peer 25messages/s - ≤25messages/s ok
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestBarOfSomethingNotMeasured(t *testing.T) {
	t.Parallel()
	for _, g := range []report.Goal{
		{Name: "b", Measurement: "latency", AtMost: 1},
		{Name: "b", Measurement: "drain", Contender: "raw", AtLeast: 1},
		{Name: "b", Measurement: "drain", Against: "raw", AtLeast: 1},
	} {
		r := measured()
		if err := r.Judge(g); err == nil || !strings.Contains(err.Error(), "was not measured") || len(r.Bars) != 0 {
			t.Errorf("%+v: got %v and bars %v, want an error and none", g, err, r.Bars)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := measured()
	judge(t, r, goals()[0])
	r.Curves = []report.Curve{{Title: "Drain by loops", X: "loops", Y: "messages/s", Points: []report.Point{{Series: "ours", X: 8, Y: 5000}}}}
	var out strings.Builder
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PostgreSQL 15, go1, linux/amd64, 2 cores, 3 rounds, 12 s, others had up to 0 % of the machine",
		"measurement contender median lowest highest unit ours is",
		"drain ours 100 90 1000 messages/s",
		"drain river 25 20 30 messages/s 4 ×",
		"wal ours 901 901 901 bytes",
		"bar value unit ratio goal",
		"drain 100 messages/s 4 ≥ 4 ok",
		"Drain by loops",
		"loops messages/s",
		"8 5000 ours",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if fields := strings.Join(strings.Fields(line), " "); fields != "" {
			got = append(got, fields)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestJSONHoldsEverything(t *testing.T) {
	t.Parallel()
	r := measured()
	judge(t, r, goals()...)
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got report.Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, r) {
		t.Errorf("got %+v, want %+v", got, *r)
	}
}

func TestPlots(t *testing.T) {
	t.Parallel()
	r := measured()
	r.Curves = []report.Curve{
		{Name: "handler", Title: "by time", X: "ms", Y: "messages/s", Points: []report.Point{{"ideal", 1, 10}, {"ideal", 2, 5}, {"ours", 0, 9}}},
		{Name: "backlog", Title: "by backlog", X: "messages", Y: "messages/s", LogX: true,
			Points: []report.Point{{"ours", 10, 9}, {"ours", 1000, 8}}},
	}
	dir := filepath.Join(t.TempDir(), "plots")
	if err := r.WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"curve-backlog.svg", "drain.svg"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(content, []byte("</svg>")) {
			t.Errorf("%s: got %d bytes and %v, want an SVG", name, len(content), err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "curve-handler.svg")); err == nil {
		t.Error("curve-handler.svg: got a chart that no page shows, want none")
	}
}

func TestWhatWasLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	r := measured()
	r.LeaveOut("relay-rabbitmq", errors.New("there is no RabbitMQ"))
	const want = "relay-rabbitmq is left out: there is no RabbitMQ\n"
	for name, write := range map[string]func(io.Writer) error{"table": r.WriteTable, "bars": r.WriteBars} {
		var out bytes.Buffer
		if err := write(&out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %v and\n%swant %q in it", name, err, &out, want)
		}
	}
}
