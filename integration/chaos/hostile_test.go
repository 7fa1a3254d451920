//go:build unix

package chaos_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Bar 12: hostile input. The targets stand beside what they test; `make fuzz`
// finds them all and gives each its time.

func barHostile(b *bar) {
	output, err := b.command([]string{"make", "-C", filepath.Join("..", ".."), "--no-print-directory", "fuzz",
		"FUZZTIME=" + pick(b, "1s", "5s", "30s")})
	if err != nil {
		b.Errorf("make fuzz: %v\n%s", err, output)
	}
	last := regexp.MustCompile(`execs: (\d+)`)
	inputs := make(map[string]string)
	for _, target := range strings.Split(output, "\n== ")[1:] {
		heading, _, _ := strings.Cut(target, "\n")
		if found := last.FindAllStringSubmatch(target, -1); len(found) > 0 {
			inputs[heading] = found[len(found)-1][1]
			b.figure("%s: %s inputs", heading, inputs[heading])
		}
	}
	for _, name := range []string{"Message", "Decode", "Tables", "StoredMessage", "ConsumedPayload", "StoredOutcome", "StoredTables",
		"StoredSchedule", "Parse", "ErrorText", "Headers", "WhatIsSentComesBack", "Kafka", "NATS", "OurEventsAreReadBySDK",
		"EventsOfSDKAreRead"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(inputs)), func(heading string) bool { return strings.Contains(heading, "Fuzz"+name) }) {
			b.Errorf("target Fuzz%s: got no inputs, want some:\n%s", name, output)
		}
	}
}
