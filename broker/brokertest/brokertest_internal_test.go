package brokertest

import (
	"slices"
	"testing"
	"testing/synctest"
)

// These tests are internal: they run single cases against brokers with a flaw, which must not pass.

func TestABrokerWithoutFlawsPasses(t *testing.T) {
	Run(t, func(t *testing.T) Setup { return newMemory("").setup(t) })
}

// flaws has for each case what it must find.
func flaws() map[string][]string {
	return map[string][]string{
		"a record comes as it was sent":                           {"loses keys"},
		"a missing body and an empty one stay apart":              {"takes a missing body for an empty one"},
		"hostile text comes as it was sent":                       {"replaces line breaks", "loses keys"},
		"headers are no attributes and no settings of the broker": {"takes headers for attributes"},
		"publishing changes no record":                            {"writes into records"},
		"a large batch comes whole":                               {"has room for 1000 in a batch"},
		"no records are no error":                                 {"fails for no records"},

		"a record that is too large is refused, and no other":  {"calls too large unavailable", "has one result for all"},
		"headers that make a record too large have it refused": {"does not count headers"},
		"a record without a destination waits, and no other": {"drops what has no destination",
			"has no class for a missing destination"},
		"bad records of both kinds share a batch with good ones": {"has one result for all", "calls too large unavailable"},
		"who publishes in order sends nothing behind a record that fails": {"sends what is behind a record that fails",
			"passes over a record that fails"},
		"several publish at once":                       {"loses one of many batches"},
		"a ctx that has ended publishes nothing unsaid": {"says yes although ctx has ended"},

		"what is acknowledged does not come again":       {"does not acknowledge"},
		"what is given back comes again, all of it":      {"acknowledges before fn"},
		"what is given back often comes again":           {"drops after three times", "acknowledges before fn"},
		"batches follow one another":                     {"calls fn for several batches at once"},
		"records of a key come in their order":           {"brings the newest first"},
		"what fn is given is its own":                    {"gives what it keeps"},
		"a record comes soon to who waits":               {"waits for a full batch"},
		"a subscription that does not exist is an error": {"waits for a subscription that never was"},

		"Subscribe waits for fn":                       {"leaves while fn runs"},
		"what the end interrupts comes again":          {"acknowledges at its end"},
		"what fn has taken at the end is acknowledged": {"gives back at its end", "does not acknowledge"},
		"Subscribe with nothing to bring ends at once": {"notices its end late"},
		"nothing is lost over many ends":               {"acknowledges before fn"},

		"what the broker has said it has survives its crash":                                {"keeps records in memory only"},
		"a broker that is gone is unavailable, in time":                                     {"refuses while it is away"},
		"a broker that hangs is unavailable, in time":                                       {"waits for ever", "refuses while it is away"},
		"what fills every buffer on the way to a broker that hangs is unavailable, in time": {"waits for ever"},
		"the ctx of Publish is a deadline for a broker that hangs":                          {"knows only its own deadline"},
		"Subscribe ends while the broker is gone":                                           {"waits for the broker at its end"},
		"Subscribe ends while the broker hangs":                                             {"waits for the broker at its end"},
		"all goes on by itself after the broker was gone":                                   {"does not come back"},
		"all goes on by itself after the broker hung":                                       {"does not come back"},
		"it is told that the broker is back after it was gone": {"does not say that it is back",
			"says that it is back too early", "tells the last who asked alone"},
		"it is told that the broker is back after it hung":          {"does not say that it is back", "says that it is back too early"},
		"who subscribes is told that the broker is gone, and back":  {"does not say that it is away", "is away for ever", "is always away"},
		"who subscribes is told that the broker hangs, and is back": {"does not say that it is away", "is away for ever"},
		"nothing is lost when connections break":                    {"says yes while the connection breaks"},
	}
}

func TestEachCaseFindsItsFlaws(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		if len(flaws()[c.name]) == 0 {
			t.Errorf("case %q: no flaw is known that it finds", c.name)
		}
		for _, flaw := range flaws()[c.name] {
			t.Run(c.name+": "+flaw, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { find(t, c, flaw) })
			})
		}
	}
}

// find runs a case against a broker with a flaw, which must not pass.
func find(t *testing.T, c aCase, flaw string) {
	broker := newMemory(flaw)
	err := c.check(t, broker.setup(t))
	if err == nil {
		t.Fatalf("a broker that %s passes", flaw)
	}
	t.Logf("found: %v", err)
	_ = broker.become(func() { broker.away, broker.wasAway = false, false }) // what still waits ends
}

func TestEachFlawBelongsToACase(t *testing.T) {
	t.Parallel()
	for name := range flaws() {
		if !slices.ContainsFunc(cases(), func(c aCase) bool { return c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
}

func TestASetupNamesWhatItNeeds(t *testing.T) {
	t.Parallel()
	if err := cases()[0].check(t, Setup{}); err == nil {
		t.Error("an empty Setup: got nil, want an error")
	}
}

func TestGoroutinesThatAreLeftAreFound(t *testing.T) {
	left := leftovers()
	if err := left(); err != nil {
		t.Errorf("nothing was started: got %v, want nil", err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-end
	}()
	if err := left(); err == nil {
		t.Error("a goroutine is left: got nil, want an error")
	}
	close(end)
	<-ended
}
