package main

import (
	"context"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
)

// step measures something, and names the bars that are judged by it.
type step struct {
	name  string
	quick bool                                  // whether it is part of -quick
	take  func(*session, context.Context) error // a method of session
	goals []report.Goal
}

// steps returns all steps in the order in which they are taken. The goals of the
// first ones are the speed bars of the design, those of the others its words on
// scale, those of people who look, those of rows that come back or are in the way,
// those of flow control, of the event log and of relays. To judge a variant of
// ours instead, name it as the goal's Contender.
func steps() []step {
	return append([]step{
		{name: "drain", quick: true, take: (*session).drain, goals: []report.Goal{
			{Name: "drain", Measurement: "drain", Against: contender.NameRiver, AtLeast: 5},
			{Name: "raw-limit", Measurement: "drain", Against: contender.NameRaw, AtLeast: 0.6},
			{Name: "produce", Measurement: "produce", Against: contender.NameRiver, AtLeast: 2},
			{Name: "wal", Measurement: "wal", AtMost: 500},
		}},
		{name: "transactional", quick: true, take: (*session).transactional, goals: []report.Goal{
			{Name: "transactional-alone", Measurement: "transactional", Against: contender.NameRiver, AtLeast: 1},
			{Name: "transactional", Measurement: "transactional", Contender: contender.NameOursGrouped, Against: contender.NameRiver, AtLeast: 5},
		}},
		{name: "latency", quick: true, take: (*session).latency, goals: []report.Goal{
			{Name: "latency-p50", Measurement: "latency-p50", AtMost: 1},
			{Name: "latency-p99", Measurement: "latency-p99", AtMost: 5},
		}},
		{name: "latency-across", quick: true, take: (*session).latencyAcross, goals: []report.Goal{
			{Name: "latency-across-p50", Measurement: "latency-across-p50", Contender: contender.NameOursNotify, AtMost: 3},
		}},
		{name: "pinned", quick: true, take: (*session).pinned, goals: []report.Goal{
			{Name: "pinned", Measurement: "pinned", Against: nameUnpinned, AtLeast: 0.8},
		}},
		{name: "chain", quick: true, take: (*session).chain, goals: []report.Goal{
			{Name: "chain-time", Measurement: "chain-time", AtMost: 2},
			{Name: "chain-allocations", Measurement: "chain-allocations", AtMost: 8},
		}},
	}, slices.Concat(loadSteps(), scaleSteps(), peopleSteps(), rowSteps(), flowSteps(), eventSteps(), relaySteps())...)
}

// scaleSteps are those of the full run only.
func scaleSteps() []step {
	atLeast := func(name string, limit float64) []report.Goal {
		return []report.Goal{{Name: name, Measurement: name, AtLeast: limit}}
	}
	return []step{
		{name: "commits", take: (*session).commits, goals: []report.Goal{
			{Name: "commits", Measurement: "commits", Contender: contender.NameOursNotify, Against: contender.NameOurs, AtLeast: 0.95},
		}},
		{name: "backlog", take: (*session).backlog, goals: atLeast("backlog", 0.95)},
		{name: "consumers", take: (*session).consumers, goals: atLeast("consumers", 0.8)},
		{name: "loops", take: (*session).loops},
		{name: "processes", take: (*session).processes},
		{name: "payload", take: (*session).payload},
		{name: "large-payloads", take: (*session).largePayloads, goals: []report.Goal{
			{Name: "large-payloads", Measurement: "large-payloads", Against: contender.NameRaw, AtLeast: 0.5},
		}},
		{name: "produce-large", quick: true, take: (*session).produceLarge, goals: produceGoals()},
		{name: "handler", take: (*session).handler},
		{name: "in-flight", take: (*session).inFlight},
		{name: "unregistered", take: (*session).unregistered, goals: atLeast("unregistered", 0.95)},
		{name: "idle", take: (*session).idle, goals: []report.Goal{
			{Name: "idle-statements", Measurement: "idle-statements", AtMost: 2},
			{Name: "idle-cpu", Measurement: "idle-cpu", AtMost: 0.1},
		}},
		{name: "sqlite", take: (*session).sqlite, goals: atLeast("sqlite", 35_000)},
	}
}
