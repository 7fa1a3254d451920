package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

const (
	progressAfter = time.Second     // of silence before
	progressEvery = 5 * time.Second // lines are written where they stay
	redrawEvery   = 100 * time.Millisecond
)

// progress says on stderr how far long work is: in one line that changes on a terminal, else in a line
// now and then.
type progress struct {
	out   *output
	began time.Time
	last  time.Time
	said  string
	wide  int // how wide the line on the terminal is
}

func (o *output) progress() *progress { return &progress{out: o, began: time.Now()} }

// show says how far it is, if it is time to.
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

// now says how far it is.
func (p *progress) now(text string) {
	p.last = time.Now()
	if text = show.Text(text); text == p.said {
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

// end leaves the line.
func (p *progress) end() {
	if p.wide > 0 {
		_, _ = fmt.Fprintln(p.out.err)
		p.wide = 0
	}
}
