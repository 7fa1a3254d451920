package otel

// The names of instruments and attributes are not exported.

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// TestReferenceHasAllMetrics compares the tables of docs/reference/metrics.md with the instruments that are made.
func TestReferenceHasAllMetrics(t *testing.T) {
	t.Parallel()
	page := read(t, "../docs/reference/metrics.md")
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| ([a-z -]+, \\S+) \\|").FindAllStringSubmatch(page, -1) {
		got[row[1]] = row[2]
	}
	r := recorder{made: map[string]string{}}
	_, err := newInstruments(r)
	for _, register := range []func(metric.Meter) ([]metric.Observable, error){
		(&gauges{}).register, (&readerGauges{}).register, (&receiverGauges{}).register,
	} {
		if _, failed := register(r); failed != nil {
			err = failed
		}
	}
	if err != nil || len(r.made) < 40 {
		t.Fatalf("got %d instruments, error %v", len(r.made), err)
	}
	if !maps.Equal(got, r.made) {
		for _, name := range slices.Sorted(maps.Keys(r.made)) {
			if got[name] != r.made[name] {
				t.Errorf("docs/reference/metrics.md: %s: got %q, want %q", name, got[name], r.made[name])
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("docs/reference/metrics.md: %s is not in the code", name)
		}
	}
}

// TestReferenceHasAllNames looks up attributes, operations and kinds of errors in the code, and their names in the page.
func TestReferenceHasAllNames(t *testing.T) {
	t.Parallel()
	page := read(t, "../docs/reference/metrics.md")
	for file, name := range map[string]string{
		"semconv.go":                     `system \+ "(\.[a-z_.]+)"|op[A-Z]\w+ += "(\w+)"`,
		"../internal/errtype/errtype.go": `"\.([a-z_]+)"`,
	} {
		found := regexp.MustCompile(name).FindAllStringSubmatch(read(t, file), -1)
		if len(found) < 10 {
			t.Errorf("%s: got %d names, want more", file, len(found))
		}
		for _, m := range found {
			want := m[1]
			switch {
			case want == "":
				want = m[2] + "[` ]"
			case want[0] == '.':
				want = regexp.QuoteMeta(system+want) + "`"
			default:
				want += "`"
			}
			if !regexp.MustCompile("`" + want).MatchString(page) {
				t.Errorf("docs/reference/metrics.md has no `%s of %s", want, file)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recorder is a meter that records which instruments it makes.
type recorder struct {
	noop.Meter

	made map[string]string // kind and unit by name
}

func (r recorder) add(kind, name, unit string) { r.made[name] = fmt.Sprintf("%s, %s", kind, unit) }

func (r recorder) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	r.add("counter", name, metric.NewInt64CounterConfig(o...).Unit())
	return r.Meter.Int64Counter(name, o...)
}

func (r recorder) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	r.add("histogram", name, metric.NewFloat64HistogramConfig(o...).Unit())
	return r.Meter.Float64Histogram(name, o...)
}

func (r recorder) Int64Histogram(name string, o ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	r.add("histogram", name, metric.NewInt64HistogramConfig(o...).Unit())
	return r.Meter.Int64Histogram(name, o...)
}

func (r recorder) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	r.add("up-down counter", name, metric.NewInt64UpDownCounterConfig(o...).Unit())
	return r.Meter.Int64UpDownCounter(name, o...)
}

func (r recorder) Int64ObservableUpDownCounter(
	name string, o ...metric.Int64ObservableUpDownCounterOption,
) (metric.Int64ObservableUpDownCounter, error) {
	r.add("up-down counter", name, metric.NewInt64ObservableUpDownCounterConfig(o...).Unit())
	return r.Meter.Int64ObservableUpDownCounter(name, o...)
}

func (r recorder) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	r.add("gauge", name, metric.NewInt64ObservableGaugeConfig(o...).Unit())
	return r.Meter.Int64ObservableGauge(name, o...)
}

func (r recorder) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	r.add("gauge", name, metric.NewFloat64ObservableGaugeConfig(o...).Unit())
	return r.Meter.Float64ObservableGauge(name, o...)
}

func (r recorder) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	r.add("counter", name, metric.NewInt64ObservableCounterConfig(o...).Unit())
	return r.Meter.Int64ObservableCounter(name, o...)
}

func (r recorder) Float64ObservableCounter(
	name string, o ...metric.Float64ObservableCounterOption,
) (metric.Float64ObservableCounter, error) {
	r.add("counter", name, metric.NewFloat64ObservableCounterConfig(o...).Unit())
	return r.Meter.Float64ObservableCounter(name, o...)
}
