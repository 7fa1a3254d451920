package testapp

import (
	"bytes"
	"log/slog"
	"sync"
)

// Lines is a log that several goroutines write and a test reads.
type Lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write writes a line.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String is all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger writes to it.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
