package contract

import (
	"fmt"
	"maps"
	"slices"
)

// Difference is one difference between two documents.
type Difference struct {
	Breaks bool   // what is stored, or a process of the release before
	Text   string // a sentence that says what is different
	Advice string // what to do if it breaks something
}

// Compare returns how a document differs from the one before.
func Compare(before, now Document) []Difference {
	c := comparison{before: before, now: now}
	if before.Codec != now.Codec {
		c.breaks("keep it, or have the new codec decode both", "the codec is %s, and was %s", codecName(now), codecName(before))
	}
	c.payloads()
	c.consumers()
	return c.found
}

func codecName(d Document) string {
	if d.Codec == "" {
		return "bus.JSON"
	}
	return d.Codec
}

type comparison struct {
	before, now Document
	found       []Difference
}

func (c *comparison) breaks(advice, format string, args ...any) {
	c.found = append(c.found, Difference{Breaks: true, Text: fmt.Sprintf(format, args...), Advice: advice})
}

func (c *comparison) adds(format string, args ...any) {
	c.found = append(c.found, Difference{Text: fmt.Sprintf(format, args...)})
}

func (c *comparison) payloads() {
	for _, name := range slices.Sorted(maps.Keys(c.before.Payloads)) {
		before := c.before.Payloads[name]
		present, ok := c.now.present(name)
		if !ok {
			c.breaks(fmt.Sprintf("give the new name bus.PayloadAliases(%q), or keep the payload", name),
				"payload %q is gone: what is stored under this name waits forever", name)
			continue
		}
		now := c.now.Payloads[present]
		for _, alias := range before.Aliases {
			if _, ok := c.now.present(alias); !ok {
				c.breaks(fmt.Sprintf("keep bus.PayloadAliases(%q) until nothing is stored under it", alias),
					"alias %q of payload %q is gone: what is stored under this name waits forever", alias, name)
			}
		}
		c.payload(name, before, now)
	}
	for _, name := range slices.Sorted(maps.Keys(c.now.Payloads)) {
		before, known := c.before.Payloads[name]
		if !known {
			c.adds("payload %q is new", name)
			continue
		}
		for _, alias := range c.now.Payloads[name].Aliases {
			if !slices.Contains(before.Aliases, alias) {
				c.adds("alias %q of payload %q is new", alias, name)
			}
		}
	}
}

// payload compares one payload type. Upcasters convert what was stored in an older schema.
func (c *comparison) payload(name string, before, now Payload) {
	switch {
	case before.Event && !now.Event:
		c.breaks("keep it in eventlog.NewTypes", "payload %q is no event any more: those that are recorded cannot be read", name)
	case !before.Event && now.Event:
		c.adds("payload %q is an event", name)
	}
	switch {
	case now.Version < before.Version:
		c.breaks("keep all upcasters", "payload %q has schema %d, and had schema %d: what is stored in that is not known",
			name, now.Version, before.Version)
		return
	case now.Version > before.Version:
		c.adds("payload %q has schema %d, and had schema %d", name, now.Version, before.Version)
		return
	}
	s := schemas{c, name, before.Schema, now.Schema, make(map[[2]string]bool)}
	s.compare("", before.Schema, now.Schema)
}

func (c *comparison) consumers() {
	for _, name := range slices.Sorted(maps.Keys(c.before.Consumers)) {
		before := c.before.Consumers[name]
		now, present, ok := c.now.consumer(name)
		if !ok {
			c.breaks(fmt.Sprintf("give its successor bus.Aliases(%q), or keep the consumer", name),
				"consumer %q is gone: what is stored for it waits forever", name)
			continue
		}
		for _, alias := range before.Aliases {
			if _, _, ok := c.now.consumer(alias); !ok {
				c.breaks(fmt.Sprintf("keep bus.Aliases(%q) until nothing is stored for it", alias),
					"alias %q of consumer %q is gone: what is stored for it waits forever", alias, name)
			}
		}
		for _, payload := range before.Payloads {
			if _, known := c.now.present(payload); known && !slices.Contains(now.Payloads, payload) {
				c.breaks(fmt.Sprintf("give consumer %q bus.PayloadAliases(%q), or keep a consumer of that payload under this name", present, payload),
					"consumer %q does not take payload %q any more: what is stored for it waits forever", name, payload)
			}
		}
		if now.NeedsKey && !before.NeedsKey {
			c.breaks("let the consumer finish its stored messages first, or give it a new name",
				"consumer %q uses keys, but stored messages have none and run in any order", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.now.Consumers)) {
		before, known := c.before.Consumers[name]
		if !known {
			c.adds("consumer %q is new", name)
			continue
		}
		c.consumerAdds(name, before, c.now.Consumers[name])
	}
}

func (c *comparison) consumerAdds(name string, before, now Consumer) {
	for _, alias := range now.Aliases {
		if !slices.Contains(before.Aliases, alias) {
			c.adds("alias %q of consumer %q is new", alias, name)
		}
	}
	for _, payload := range now.Payloads {
		if !slices.Contains(before.Payloads, payload) {
			c.adds("consumer %q takes payload %q, too", name, payload)
		}
	}
	if before.NeedsKey && !now.NeedsKey {
		c.adds("consumer %q no longer uses keys", name)
	}
}

// consumer returns a consumer by its present or a former name.
func (d Document) consumer(name string) (c Consumer, present string, ok bool) {
	if c, ok := d.Consumers[name]; ok {
		return c, name, true
	}
	for _, present := range slices.Sorted(maps.Keys(d.Consumers)) {
		if slices.Contains(d.Consumers[present].Aliases, name) {
			return d.Consumers[present], present, true
		}
	}
	return Consumer{}, "", false
}
