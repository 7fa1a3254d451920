package ops

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPaceBrakes is of the inside, since it goes by a clock of its own: what was saved up at a higher rate is not
// spent at a lower one.
func TestPaceBrakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		if got := p.now(5000); got != 1000 {
			t.Errorf("at first: got %d, want those of a tick", got)
		}
		<-time.After(3 * time.Second)
		if got := p.now(5000); got != 5000 {
			t.Errorf("after 3 s: got %d, want those of a second", got)
		}
		p.passed(500)
		if got := p.now(100); got != 20 {
			t.Errorf("after braking: got %d, want 20", got)
		}
		p.passed(20)
		total := 0
		for range 50 { // 10 s
			<-time.After(tick)
			n := p.now(100)
			p.passed(n)
			total += n
		}
		if total < 950 || total > 1050 {
			t.Errorf("in 10 s at 100/s: got %d", total)
		}
	})
}

// TestSamples is of the inside, too: what is looked at is spread over all that was requeued, and bounded.
func TestSamples(t *testing.T) {
	var few, many trial
	for i := range int64(400) {
		few.sample(i)
	}
	for i := range int64(100_000) {
		many.sample(i)
	}
	if len(few.Sample) != 400 || few.Each != 1 {
		t.Errorf("of 400: got %d, each %d", len(few.Sample), few.Each)
	}
	n := len(many.Sample)
	if n < mostSampled/2 || n > mostSampled || many.Sample[0] != 0 || many.Sample[n-1] < 99_000 {
		t.Errorf("of 100,000: got %d from %d to %d", n, many.Sample[0], many.Sample[n-1])
	}
	for i, id := range many.Sample {
		if id != int64(i*many.Each) {
			t.Fatalf("of 100,000: the %d. is %d, want %d", i, id, i*many.Each)
		}
	}
}
