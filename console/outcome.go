package console

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// outcome is what came of a change: a code of those below, with counts. It goes to the next page in a
// cookie, so that no link can make a page say it.
type outcome struct {
	code    string
	numbers []int
}

const (
	outcomeCookie  = "asyncmonolith-did"
	outcomeSeconds = 30
)

// tell has the next page say it.
func (v *request) tell(o outcome) {
	parts := []string{o.code}
	for _, n := range o.numbers {
		parts = append(parts, strconv.Itoa(n))
	}
	v.setCookie(outcomeCookie, strings.Join(parts, "."), outcomeSeconds)
}

// told is what the page before has done, once.
func (v *request) told() string {
	cookie, err := v.r.Cookie(v.cookieName(outcomeCookie))
	if err != nil || v.isFragment() || cookie.Value == "" {
		return ""
	}
	v.setCookie(outcomeCookie, "", -1)
	parts := strings.Split(cookie.Value, ".")
	o := outcome{code: parts[0]}
	for _, text := range parts[1:] {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || len(o.numbers) == 3 {
			return ""
		}
		o.numbers = append(o.numbers, n)
	}
	return o.text()
}

// text is the outcome as a sentence, or empty if there is no such code.
func (o outcome) text() string {
	said := map[string]string{
		"due": "%s due now.", "rescheduled": "%s rescheduled.", "cancelled": "%s cancelled.", "requeued": "%s requeued.", "discarded": "%s discarded.",
		"paused": "The consumer is paused.", "resumed": "The consumer is resumed.", "probed": "One message of the consumer is tried within about a second.",
		"fires": "The schedule fires with the next look of a process.", "schedule paused": "The schedule is paused.", "schedule resumed": "The schedule is resumed.", "changed": "The schedule is changed.", "deleted": "The schedule is deleted.",
		"shards": "%s resumed.", "undone": "The operation is undone: nothing was changed.", "stopped": "The operation is stopped.", "continued": "The operation goes on.",
		"started": "The operation is started.", "rate": "The rate is changed.", "already": "The same was under way already: this is it, and nothing more was started.",
		"nothing": "Nothing matches any more: nothing was planned.", "edited": "The message is edited and requeued.",
	}[o.code]
	if !strings.Contains(said, "%s") {
		return said
	}
	n := append(append([]int(nil), o.numbers...), 0, 0, 0)
	if o.code == "shards" {
		return fmt.Sprintf(said, plural(n[0], "halted shard"))
	}
	text := fmt.Sprintf(said, plural(n[0], "message"))
	switch {
	case n[1] > 0 && o.code == "requeued":
		text += fmt.Sprintf(" %s poisoned: the insert id is pending again.", plural(n[1], "message stays", "messages stay"))
	case n[1] > 0:
		text += fmt.Sprintf(" %s.", plural(n[1], "message stays as it was: a process holds it", "messages stay as they were: a process holds them"))
	}
	if n[2] > 0 {
		text += fmt.Sprintf(" %s there no more.", plural(n[2], "message was", "messages were"))
	}
	return text
}

// scheduleAction is an action of one schedule.
func scheduleAction(do func(*ops.Session, context.Context, string, int64) error) func(*request, actionRequest) (outcome, error) {
	return func(v *request, o actionRequest) (outcome, error) {
		code := map[ops.Action]string{ops.RunSchedule: "fires", ops.PauseSchedule: "schedule paused", ops.ResumeSchedule: "schedule resumed"}[o.action.permission]
		return outcome{code: code}, do(v.session, v.ctx(), o.reason, o.schedule)
	}
}
