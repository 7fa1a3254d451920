package brokertest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// contentCases: what comes is what was sent.
func contentCases() []aCase {
	return []aCase{
		{name: "a record comes as it was sent", run: comesAsSent},
		{name: "a missing body and an empty one stay apart", run: bodiesStayApart},
		{name: "hostile text comes as it was sent", run: hostileText},
		{name: "headers are no attributes and no settings of the broker", run: headersStayHeaders},
		{name: "publishing changes no record", run: publishChangesNothing},
		{name: "a large batch comes whole", run: largeBatch},
		{name: "no records are no error", run: func(c *trial) error { return errors.Join(c.publish(), c.publish([]broker.Record{}...)) }},
	}
}

// roundTrip publishes the records, waits for all of them and compares.
func (c *trial) roundTrip(records []broker.Record) error {
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	w := c.subscribe(take)
	if err := w.awaitAll(records); err != nil {
		return err
	}
	var errs []error
	for _, got := range w.brought() {
		i := slices.IndexFunc(records, func(r broker.Record) bool { return r.ID == got.ID })
		if i < 0 {
			errs = append(errs, fmt.Errorf("a record with id %q came, which was not sent", got.ID))
			continue
		}
		errs = append(errs, compare(got, records[i]))
	}
	return errors.Join(errs...)
}

func comesAsSent(c *trial) error {
	records := c.make(3)
	records[0].Key = "customer-7"
	records[0].ContentType = "application/json; charset=utf-8"
	maps.Copy(records[0].Attributes, map[string]string{
		"time": "2026-02-03T04:05:06.789Z", "subject": "order/7", "partitionkey": "customer-7",
		"dataschema": "urn:OrderPlaced:schema", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	records[0].Headers = map[string]string{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
		"tracestate":  "vendor=1,other=2", "baggage": "user=a%20b", "Tenant": "north",
	}
	records[1].Attributes, records[1].ContentType = nil, "" // of no CloudEvent
	records[1].Key = "customer-8"
	records[2].Attributes["partitionkey"] = "not its key"
	records[2].Attributes["id"] = "not its id"
	return c.roundTrip(records)
}

func bodiesStayApart(c *trial) error {
	records := c.make(4)
	records[0].Body, records[0].Key = nil, "gone"
	records[1].Body = []byte{}
	records[2].Body = make([]byte, 256)
	for i := range records[2].Body {
		records[2].Body[i] = byte(i)
	}
	records[3].Body = bytes.Repeat([]byte("0123456789abcdef"), 4096)
	return c.roundTrip(records)
}

// hostile are texts that a protocol may stumble over.
func hostile() []string {
	return []string{
		"", " ", " around ", "\t", "a\nb", "a\r\nInjected: 1\r\n\r\nbody", "100%", "%41%zz%", "%25", "ü – 日本 🐦", "\"quoted\", (a=b;c)",
		"nul\x00inside", "\x7f\x01\x1b[31m", "not \xff UTF-8", "true", "42", strings.Repeat("long ", 1500),
	}
}

func hostileText(c *trial) error {
	texts := hostile()
	records := c.make(len(texts))
	for i, text := range texts {
		records[i].Attributes["subject"] = text
		records[i].Headers = map[string]string{"hostile": text, "plain": "plain"}
		records[i].Body = []byte(text)
		if len(text) > 200 {
			continue // names are shorter than values everywhere
		}
		records[i].ID += text
		records[i].Key = text
		if text != "" {
			records[i].Headers["name "+text] = text
		}
	}
	return c.roundTrip(records)
}

func headersStayHeaders(c *trial) error {
	records := c.make(1)
	records[0].Key = "its key"
	records[0].Headers = map[string]string{
		"ce-type": "1", "ce_type": "2", "cloudEvents_type": "3", "cloudEvents:type": "4", "CE-Source": "5",
		"content-type": "6", "Content-Type": "7", "message-id": "8", "id": "9", "key": "10", "Key": "11",
		"Nats-Rollup": "all", "Nats-Msg-Id": "12", "Nats-Expected-Stream": "none", "CC": "13", "BCC": "14",
		"x-delay": "15", "x-death": "16", "Status": "503", "case": "lower", "Case": "upper", "a:b": "17",
	}
	return c.roundTrip(records)
}

func publishChangesNothing(c *trial) error {
	records := c.make(3)
	records[0].Headers = map[string]string{"ce-type": "1", "a b": "ü"}
	records[1].Body = nil
	before := make([]broker.Record, len(records))
	for i, record := range records {
		before[i] = clone(record)
	}
	if err := c.publish(records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var errs []error
	for i := range records {
		if err := compare(records[i], before[i]); err != nil {
			errs = append(errs, fmt.Errorf("publish changed a record: %w", err))
		}
	}
	return errors.Join(errs...)
}

func largeBatch(c *trial) error { return c.roundTrip(c.make(1500)) }

// compare lists what is not as it should be.
func compare(got, want broker.Record) error {
	var errs []error
	id := want.ID
	differs := func(what string, got, want any) {
		errs = append(errs, fmt.Errorf("%s of record %.40q: got %.200q, want %.200q", what, id, got, want))
	}
	for _, field := range []struct{ name, got, want string }{
		{"Destination", got.Destination, want.Destination},
		{"Key", got.Key, want.Key},
		{"ID", got.ID, want.ID},
		{"ContentType", got.ContentType, want.ContentType},
	} {
		if field.got != field.want {
			differs(field.name, field.got, field.want)
		}
	}
	if !maps.Equal(got.Attributes, want.Attributes) {
		differs("Attributes", fmt.Sprint(got.Attributes), fmt.Sprint(want.Attributes))
	}
	if !maps.Equal(got.Headers, want.Headers) {
		differs("Headers", fmt.Sprint(got.Headers), fmt.Sprint(want.Headers))
	}
	if !bytes.Equal(got.Body, want.Body) || (got.Body == nil) != (want.Body == nil) {
		differs("Body", fmt.Sprintf("%#v", got.Body), fmt.Sprintf("%#v", want.Body))
	}
	return errors.Join(errs...)
}

// clone copies a record and all it refers to.
func clone(r broker.Record) broker.Record {
	r.Attributes, r.Headers = maps.Clone(r.Attributes), maps.Clone(r.Headers)
	r.Body = bytes.Clone(r.Body)
	return r
}
