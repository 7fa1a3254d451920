//go:build unix

package chaos_test

import "github.com/asyncmonolith/asyncmonolith-go/integration/chaos"

// Bar 19: workers are killed in the middle of consumers with steps. A step whose result was stored is not
// called again, and only what was in flight is.
func barSteps(b *bar) {
	dsn := b.dsn()
	config := chaos.WorkerConfig{Plain: []string{"one"}, Stepped: []string{"one"}}
	r := kills(b, dsn, config, pick(b, 400, 4000, 10_000), pick(b, 4, 20, 50))
	for _, c := range []struct {
		what, query string
	}{
		{"calls of a step after its result was stored",
			"SELECT count(*) FROM step_calls c JOIN step_results r ON r.job = c.job AND r.step = c.step WHERE c.at > r.at"},
		{"results of steps that were not called", `SELECT count(*) FROM step_results r WHERE NOT EXISTS (
			SELECT 1 FROM step_calls c WHERE c.job = r.job AND c.step = r.step)`},
	} {
		if n := r.count(c.query); n != 0 {
			b.Errorf("%s: got %d, want none", c.what, n)
		}
	}
	all := len(r.jobs) * chaos.StepsOfJob
	if n := r.count("SELECT count(*) FROM (SELECT DISTINCT job, step FROM step_calls) x"); n != all {
		b.Errorf("steps that were called: got %d, want %d", n, all)
	}
	calls := r.count("SELECT count(*) FROM step_calls")
	_, running := r.evidence().Strikes(r.killed)
	inFlight := 0
	for _, n := range running {
		inFlight += n
	}
	if calls > all+inFlight {
		b.Errorf("calls of steps: got %d for %d steps, want at most %d more, which were in flight at the kills", calls, all, inFlight)
	}
	b.figure("%d steps, called %d times; %d jobs in flight at kills", all, calls, inFlight)
}
