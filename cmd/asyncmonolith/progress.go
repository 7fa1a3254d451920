package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

const (
	progressAfter = time.Second     // before the first line
	progressEvery = 5 * time.Second // between lines, unless err is a terminal
	redrawEvery   = 100 * time.Millisecond
)

// progress shows the progress of long work on stderr: in one line that is redrawn on a terminal, else in a line
// every 5 s.
type progress struct {
	out   *output
	began time.Time
	last  time.Time
	said  string
	wide  int // runes of the line on the terminal
}

func (o *output) progress() *progress { return &progress{out: o, began: time.Now()} }

// show writes text unless the last was written just now.
func (p *progress) show(text string) {
	every := progressEvery
	if p.out.errTTY {
		every = redrawEvery
	}
	if time.Since(p.began) < progressAfter || time.Since(p.last) < every {
		return
	}
	p.now(text)
}

// now writes text.
func (p *progress) now(text string) {
	p.last = time.Now()
	text = show.Text(text)
	if text == p.said {
		return
	}
	p.said = text
	if !p.out.errTTY {
		_, _ = fmt.Fprintln(p.out.err, text)
		return
	}
	wide := len([]rune(text))
	_, _ = fmt.Fprint(p.out.err, "\r"+text+strings.Repeat(" ", max(p.wide-wide, 0)))
	p.wide = wide
}

// end ends the line on the terminal.
func (p *progress) end() {
	if p.wide > 0 {
		_, _ = fmt.Fprintln(p.out.err)
		p.wide = 0
	}
}
