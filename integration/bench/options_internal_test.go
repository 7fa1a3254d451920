package main

// Nothing can import a command, and its flags are worth testing without a server.

import (
	"errors"
	"flag"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-fast", "flag provided but not defined: -fast"},
		{"-rounds many", "invalid value"},
		{"-rounds -1", "-rounds -1: 1 or more is allowed"},
		{"drain", `unexpected argument "drain"`},
		{"-only drain,speed", `-only: "speed" is not one of`},
		{"-quick -only sqlite", `-only: "sqlite" is not one of`},
		{"-rounds -1 -only x", `"x" is not one of`},
	} {
		_, err := parseOptions(strings.Fields(c.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := parseOptions([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v, want %v", err, flag.ErrHelp)
	}
}

func TestOptionRounds(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][2]int{"": {3, 3}, "-quick": {2, 1}, "-rounds 5": {5, 5}, "-quick -rounds 4": {4, 4}} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{o.rounds, o.fewRounds}; got != want {
			t.Errorf("%q: got %v rounds, want %v", args, got, want)
		}
	}
}

func TestOnlySelects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args        string
		steps, bars []string
	}{
		{"-only wal,raw-limit", []string{"drain"}, []string{"raw-limit", "wal"}},
		{"-only drain", []string{"drain"}, []string{"drain"}},
		{"-only latency,loops", []string{"latency", "loops"}, []string{"latency-p50", "latency-p99"}},
		{"-only relay-drain,relay-latency", []string{"relay", "relay-latency"},
			[]string{"relay-drain", "relay-latency-p50", "relay-latency-p99"}},
		{"-quick", []string{"drain", "transactional", "latency", "latency-across", "pinned", "chain", "foreign", "dead", "ordered",
			"per-key", "batch", "rate", "limit"}, []string{
			"drain", "raw-limit", "produce", "wal", "transactional-alone", "transactional", "latency-p50", "latency-p99", "latency-across-p50",
			"pinned", "chain-time", "chain-allocations", "foreign", "dead", "ordered-1", "ordered-10", "ordered-10000", "ordered-1000000",
			"per-key-10000", "fair-100", "batch", "rate", "limit"}},
	} {
		o, err := parseOptions(strings.Fields(c.args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var steps, bars []string
		for _, s := range o.steps() {
			steps = append(steps, s.name)
			for _, g := range o.goalsOf(s) {
				bars = append(bars, g.Name)
			}
		}
		if !reflect.DeepEqual(steps, c.steps) || !reflect.DeepEqual(bars, c.bars) {
			t.Errorf("%q: got steps %v and bars %v, want %v and %v", c.args, steps, bars, c.steps, c.bars)
		}
	}
}

func TestEveryStepRunsInAFullRun(t *testing.T) {
	t.Parallel()
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(o.steps()), len(steps()); got != want {
		t.Errorf("steps: got %d, want %d", got, want)
	}
	all := names(false)
	slices.Sort(all)
	if got := slices.Compact(slices.Clone(all)); len(got) != len(all) {
		t.Errorf("names: got %v, want no name twice", all)
	}
}

func TestRotated(t *testing.T) {
	t.Parallel()
	items := []string{"a", "b", "c"}
	for n, want := range []string{"abc", "bca", "cab", "abc"} {
		if got := strings.Join(rotated(items, n), ""); got != want {
			t.Errorf("round %d: got %s, want %s", n, got, want)
		}
	}
}
