package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is a text as it is safe on a terminal: in one line, with what does not print escaped.
func Text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// unsafe reports whether a terminal might do something with it, or show what follows in another order.
func unsafe(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Bidi_Control, unicode.Other_Default_Ignorable_Code_Point)
}

// Value is a value as people read it.
func Value(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format("2006-01-02 15:04:05")
	case time.Duration:
		return Age(v)
	default:
		return fmt.Sprint(v)
	}
}

// Age is a duration in the two units that matter.
func Age(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return whole(d.Round(time.Second))
	case d < 48*time.Hour:
		return whole(d.Round(time.Minute))
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// whole leaves out units of which there are none.
func whole(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// JSON writes a value in one line, with the version of its format.
func JSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	versioned := []byte(`{"v":1}`)
	if inner, ok := strings.CutPrefix(string(text), "{"); ok && inner != "}" {
		versioned = []byte(`{"v":1,` + inner)
	} else if !ok {
		versioned = []byte(`{"v":1,"value":` + string(text) + `}`)
	}
	_, err = io.WriteString(w, escaped(string(versioned))+"\n")
	return err
}

// escaped is JSON with what does not print escaped, which stands in strings only.
func escaped(text string) string {
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			first, second := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, first, second)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// JSONLines are the lines of an indented JSON text, as they are safe on a terminal.
func JSONLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = escaped(line)
	}
	return lines
}
