package guide_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

// snippet: attempts
func TestRemindSleepsForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mails := 0
		r := guide.Reminders{Mail: func(context.Context, guide.OrderPlaced) error { mails++; return nil }}
		attempt := bustest.Steps(t.Context())
		for range 2 { // the time of the first attempt counts
			err := r.Remind(attempt(), guide.OrderPlaced{OrderID: "o-1"})
			if v := bus.OutcomeOf(err); v.Outcome != bus.Snoozed {
				t.Fatalf("outcome: got %s, want snoozed", &v)
			}
			<-time.After(12 * time.Hour)
		}
		if err := r.Remind(attempt(), guide.OrderPlaced{OrderID: "o-1"}); err != nil || mails != 1 {
			t.Errorf("after a day: got %d mails, %v, want 1", mails, err)
		}
	})
}

// end
