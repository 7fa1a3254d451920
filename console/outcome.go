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
		"requeued": "%s requeued.", "discarded": "%s discarded.", "repeated": "%s produced again.",
		"edited": "The message is edited and requeued.",
		"paused": "The consumer is paused.", "resumed": "The consumer is resumed.",
		"probed": "One message of the consumer is tried within about a second.",
		"fires":  "The schedule fires with the next look of a process.", "schedule paused": "The schedule is paused.",
		"schedule resumed": "The schedule is resumed.", "changed": "The schedule is changed.", "deleted": "The schedule is deleted.",
		"shards": "%s resumed.", "undone": "The operation is undone: nothing was changed.",
		"stopped": "The operation is stopped.", "continued": "The operation goes on.",
		"started": "The operation is started.", "rate": "The rate is changed.",
		"already": "The same was under way already: this is it, and nothing more was started.",
		"nothing": "Nothing matches any more: nothing was planned.",
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
		text += fmt.Sprintf(" %s.", plural(n[1],
			"message stays as it was: a process holds it", "messages stay as they were: a process holds them"))
	}
	if n[2] > 0 {
		text += fmt.Sprintf(" %s there no more.", plural(n[2], "message was", "messages were"))
	}
	return text
}
