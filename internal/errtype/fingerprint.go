package errtype

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

const (
	// rules is the first digit of a fingerprint. It changes with what is replaced.
	rules     = "1"
	firstLine = 300 // bytes that count
)

// Fingerprint tells failures apart by what they have in common: their kind, and the first line of
// their text without what differs from run to run, such as numbers and what is quoted. Of a panic the
// function that panicked counts, too. It is 17 characters long.
func Fingerprint(err error) string {
	hash := sha256.New()
	hash.Write([]byte(Of(err) + "\n" + Shape(errorlog.Text(err)) + frame(err)))
	return rules + hex.EncodeToString(hash.Sum(nil)[:8])
}

// varying is what differs from run to run, and what stands for it. It is immutable.
var varying = regexp.MustCompile(strings.Join([]string{
	`[A-Za-z][A-Za-z0-9+.-]*://(?P<host>[^\s/?#"'` + "`" + `]*)[^\s"'` + "`" + `]*`,
	`(?P<quoted>"[^"]*"|\B'[^']*'|` + "`[^`]*`" + `)`,
	`(?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)`,
	`(?P<uuid>[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})`,
	`(?P<hex>\b(?:0x)?[0-9A-Fa-f]{8,}\b)`,
	`(?P<number>[0-9]+)`,
}, "|"))

// Shape is the first line of a text with marks in the place of what differs from run to run.
func Shape(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > firstLine {
		text = text[:firstLine]
		for !utf8.ValidString(text) && len(text) > firstLine-utf8.UTFMax {
			text = text[:len(text)-1]
		}
	}
	var shape strings.Builder
	end := 0
	for _, at := range varying.FindAllStringSubmatchIndex(text, -1) {
		shape.WriteString(text[end:at[0]])
		end = at[1]
		switch {
		case at[2] >= 0: // who was asked for it says more than what for
			shape.WriteString("//" + Shape(text[at[2]:at[3]]) + "/…")
		case at[4] >= 0:
			shape.WriteString("“…”")
		case at[6] >= 0:
			shape.WriteString("…@…")
		default:
			shape.WriteString("#")
		}
	}
	shape.WriteString(text[end:])
	return strings.TrimSpace(shape.String())
}

// frame is the function that panicked, if err tells of a panic.
func frame(err error) string {
	panicked, ok := errors.AsType[*bus.PanicError](err)
	if !ok {
		return ""
	}
	_, stack, _ := strings.Cut(string(panicked.Stack), "\npanic(")
	for line := range strings.Lines(stack) {
		line = strings.TrimSpace(line)
		function, _, isCall := strings.Cut(line, "(")
		if i := strings.LastIndexByte(line, '('); isCall && i > 0 {
			function = line[:i]
		}
		if isCall && !strings.HasPrefix(line, "/") && strings.Contains(function, ".") && !strings.HasPrefix(function, "runtime.") &&
			!strings.HasPrefix(function, "panic") {
			return "\n" + function
		}
	}
	return ""
}
