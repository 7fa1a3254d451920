package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLedgerTellsItsStory(t *testing.T) {
	var out strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, &out); err != nil {
		t.Fatalf("run: %v; the story:\n%s", err, out.String())
	}
	for _, line := range []string{
		`three accounts with 100 each`,
		`bob may not withdraw 500`,
		`rebuilt from the start`,
		`ann had 100 before all that, at position 6, and has 1\d\d now`,
		`projection: map\[account-ann:1\d\d account-bob:1\d\d account-cem:1\d\d\]`,
		`the projection equals the fold of the log`,
	} {
		if !regexp.MustCompile(line).MatchString(out.String()) {
			t.Errorf("line %q: got none; the story:\n%s", line, out.String())
		}
	}
}

// snippet: test

func TestAccounts(t *testing.T) {
	t.Parallel()
	open := bustest.Decider(t, accounts()).Given(Opened{"ann"}, Deposited{10})
	open.When(Command{Withdrawn{10}}).Then(Withdrawn{10})
	open.When(Command{TransferSent{"bob", 11}}).ThenError(errOverdrawn)
	bustest.Decider(t, accounts()).When(Command{Deposited{1}}).ThenError(errNotOpen)
}

// end
