package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuickstartTellsItsStory(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	text := out.String()
	for line, times := range map[string]int{
		`shop +order o-1 is committed`:                                           1,
		`shop +the same insert id once more: 0 written, 1 dup`:                   1,
		`shop +order o-2 is rolled back`:                                         1,
		`send-receipt +receipt for o-1 sent`:                                     1,
		`reserve-stock +stock for o-1 reserved`:                                  1,
		`charge-card +attempt [12] for tenant acme failed`:                       2,
		`charge-card +card charged for o-1`:                                      1,
		`notify-warehouse +attempt [123] for tenant acme failed`:                 3,
		`shop +the fire is out: 1 poisoned message is requeued`:                  1,
		`notify-warehouse +the warehouse packs o-1`:                              1,
		`ask-for-feedback +how did you like o-1`:                                 1,
		`shop +enough counting: 1 schedule deleted`:                              1,
		`at the end: order o-1 reserved: true, messages waiting: 0, poisoned: 0`: 1,
		`o-2`: 1, // only the line that says it was rolled back
		`(?m)^    process order.placed  send-receipt, 1, done$`:                 1,
		`(?m)^    process order.placed  charge-card, 2, retried, linked$`:       1,
		`(?m)^    process order.placed  notify-warehouse, 3, poisoned, linked$`: 1,
		`(?m)^    process order.placed  notify-warehouse, 1, done, linked$`:     1, // requeued
	} {
		if got := len(regexp.MustCompile(line).FindAllString(text, -1)); got != times {
			t.Errorf("line %q: got %d, want %d; the story:\n%s", line, got, times, text)
		}
	}
	if fires := strings.Count(text, "    process stock.count_due  count-stock, 1, done"); fires < 2 {
		t.Errorf("traces of scheduled messages: got %d, want at least 2; the story:\n%s", fires, text)
	}
}
