package console

import (
	"fmt"
	"strconv"
	"strings"
)

// outcome is the result of a form: a code of those below, with counts.
type outcome struct {
	code    string
	numbers []int
}

// String is the outcome as the cookie has it.
func (o outcome) String() string {
	parts := []string{o.code}
	for _, n := range o.numbers {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ".")
}

// parseOutcome reads what String has written, and has no code for any other text.
func parseOutcome(text string) outcome {
	parts := strings.Split(text, ".")
	o := outcome{code: parts[0]}
	for _, part := range parts[1:] {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || len(o.numbers) == 3 {
			return outcome{}
		}
		o.numbers = append(o.numbers, n)
	}
	return o
}

// text is the outcome as a sentence, or empty if there is no such code.
func (o outcome) text() string {
	said := map[string]string{
		"due": "%s due now.", "rescheduled": "%s rescheduled.", "cancelled": "%s cancelled.",
		"requeued": "%s requeued.", "discarded": "%s discarded.", "repeated": "%s repeated.",
		"edited": "The message was edited and requeued.",
		"paused": "The consumer is paused.", "resumed": "The consumer is resumed.",
		"probed": "One message of the consumer runs within about a second. If it succeeds, the circuit breaker closes.",
		"fires":  "The schedule fires with the next poll of a process.", "schedule paused": "The schedule is paused.",
		"schedule resumed": "The schedule is resumed.", "changed": "The schedule is changed.", "deleted": "The schedule is deleted.",
		"shards": "%s resumed.", "undone": "The operation is undone. Nothing was changed.",
		"stopped": "The operation is stopped.", "continued": "The operation is resumed.",
		"started": "The operation is started.", "rate": "The rate is changed.",
		"already": "This operation was already in progress. No other was started.",
		"nothing": "Nothing matches, so nothing was planned.",
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
		text += fmt.Sprintf(" %s poisoned: the insert id is already pending.", plural(n[1], "message stays", "messages stay"))
	case n[1] > 0:
		text += fmt.Sprintf(" %s.", plural(n[1],
			"message is unchanged: a process holds it", "messages are unchanged: a process holds them"))
	}
	if n[2] > 0 {
		text += fmt.Sprintf(" %s.", plural(n[2], "message no longer exists", "messages no longer exist"))
	}
	return text
}
