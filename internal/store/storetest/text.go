package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func textCases() []testCase {
	return []testCase{
		{"any text comes back byte for byte", textRoundTrip},
		{"any text can name a consumer", textNames},
		{"a megabyte comes back byte for byte", textLarge},
		{"missing headers and insert ids come back empty", textMissing},
		{"errors and reasons are kept byte for byte", textErrors},
		{"errors and reasons that cannot be stored are made storable", textUnstorable},
	}
}

// nasty lists texts that bad quoting, binding or templating would change.
func nasty() []string {
	return []string{
		`it's`, `''`, `'; DROP TABLE consumer_messages; --`, `"double"`, `""`, "`back`", `\`, `\\`, `\'`, `\"`, `\n \x41 \u0041`,
		`?`, `??`, `?0 ?1`, `?TableName`, `$1 $2`, `$$`, `$tag$ x $tag$`, `:name @name`, `%s %d %%`,
		`{now}`, `{messages}`, `{claims}{prefix}`, `{}`, `{1,2,NULL}`, `NULL`, `null`, `[null]`,
		`-- comment`, `/* comment */`, `{"a":"b\"c\\d","e":"\u2028"}`, `<a href="x">&amp;</a>`,
		"line\nbreak\r\nand\ttab", "\u2028 and \u2029", "\ufeff bom", "\u0001\u001f\u007f\u0080", "é as e\u0301", "日本語", "🙂👩‍👩‍👧‍👦🏴",
		"\U0010ffff", " spaces ",
	}
}

func textRoundTrip(k *kit) {
	var rows, again []store.NewMessage
	for i, s := range nasty() {
		m := k.keyed("c", s+fmt.Sprint(i))
		m.Payload, m.Headers = s, s+s
		rows, again = append(rows, m), append(again, k.keyed("c", m.InsertID))
	}
	k.insert(slices.Clone(rows)...)
	equal(k, "messages written under the same insert ids", len(k.insert(again...)), 0)
	claimed, stored := k.claim(request("a", want("c", len(rows)))).Messages, k.messages()
	if len(claimed) != len(rows) || len(stored) != len(rows) {
		k.Fatalf("messages: got %d claimed and %d stored, want %d", len(claimed), len(stored), len(rows))
	}
	for _, m := range rows {
		i := slices.IndexFunc(claimed, func(c store.Message) bool { return c.MessageID == m.MessageID })
		if i < 0 {
			k.Fatalf("message with payload %q: got none claimed, want one", m.Payload)
		}
		got := claimed[i]
		equal(
			k, "payload, headers and insert id", []string{string(got.Payload), string(got.Headers), got.InsertID},
			[]string{m.Payload, m.Headers, m.InsertID},
		)
		i = slices.IndexFunc(stored, func(r row) bool { return r.ID == got.ID })
		equal(
			k, "stored payload, headers and insert id", []string{stored[i].Payload, stored[i].Headers, stored[i].InsertID},
			[]string{m.Payload, m.Headers, m.InsertID},
		)
	}
}

func textNames(k *kit) {
	var rows []store.NewMessage
	var wants, others []store.Want
	for _, s := range nasty() {
		s = strings.ReplaceAll(s, "\u001f", "") // not allowed in names
		m := k.message("consumer " + s)
		m.PayloadType = "payload " + s
		rows = append(rows, m)
		wants = append(wants, store.Want{Consumer: m.ConsumerType, Payload: m.PayloadType, Limit: 1})
		others = append(others, store.Want{Consumer: m.ConsumerType, Payload: s, Limit: 1})
	}
	k.insert(rows...)
	if c := k.claim(request("a", others...)); c.ID != 0 {
		k.Errorf("claim of other payload types: got %d messages, want none", len(c.Messages))
	}
	unregistered, err := k.store.Claims.Unhandled(k.ctx, k.db, wants)
	k.must("unregistered", err)
	equal(k, "unregistered", unregistered, nil)
	poll, err := k.store.Claims.Poll(k.ctx, k.db, wants)
	k.must("poll", err)
	equal(k, "wants that have something due", len(poll.Due), len(wants))
	c := k.claim(request("it's \\ ? {now} \"owner\"", wants...))
	equal(k, "messages claimed", len(c.Messages), len(rows))
	equal(k, "held by the owner", k.extend("it's \\ ? {now} \"owner\""), []int64{c.ID})
}

func textLarge(k *kit) {
	var b strings.Builder
	for b.Len() < 1<<20-100 {
		b.WriteString(`it's \ "4" ? $1 {now} 🙂` + "\u2028\n")
	}
	m := k.message("c")
	m.Payload = b.String()
	if got := store.Statements([]store.NewMessage{m, m, m, m, m}); got != 2 {
		k.Errorf("statements for five messages of a megabyte: got %d, want 2", got)
	}
	k.insert(m)
	c := k.claim(request("a", want("c", 1)))
	if len(c.Messages) != 1 {
		k.Fatalf("messages claimed: got %d, want 1", len(c.Messages))
	}
	if got := string(c.Messages[0].Payload); got != m.Payload {
		k.Errorf("payload: got %d bytes that differ, want %d", len(got), len(m.Payload))
	}
}

func textMissing(k *kit) {
	k.insert(k.message("c"))
	stored := k.messages()[0]
	equal(k, "stored headers, insert id and errors", []string{stored.Headers, stored.InsertID, stored.Errors}, []string{null, null, null})
	m := k.claim(request("a", want("c", 1))).Messages[0]
	equal(k, "headers, insert id and errors", []string{string(m.Headers), m.InsertID, m.Errors}, []string{"", "", ""})
}

func textErrors(k *kit) {
	ids := k.add("c", 2*len(nasty()))
	c := k.take("a", "c", ids...)
	var all []store.Result
	for i, s := range nasty() {
		failed, poisoned := ids[2*i], ids[2*i+1]
		all = append(all,
			store.Result{Claim: c.ID, Message: failed, Outcome: store.Failed, Errors: s},
			store.Result{Claim: c.ID, Message: poisoned, Outcome: store.Poison, Errors: s + s, Reason: "because " + s})
	}
	equal(k, "results applied", k.settle("a", all...).Applied, len(all))
	failed, poisoned := k.messages(), k.poisoned()
	if len(failed) != len(nasty()) || len(poisoned) != len(nasty()) {
		k.Fatalf("messages: got %d failed and %d poisoned, want %d of each", len(failed), len(poisoned), len(nasty()))
	}
	for i, s := range nasty() {
		equal(k, "errors of a failed message", failed[i].Errors, s)
		equal(k, "errors of a poisoned message", poisoned[i].Errors, s+s)
		equal(k, "reason of a poisoned message", poisoned[i].Reason, "because "+s)
	}
	k.claim(request("a", want("c", len(ids))))
	equal(k, "messages claimed again", k.claims()[0].Messages, list(k.pending()...))
}

func textUnstorable(k *kit) {
	ids := k.add("c", 1)
	c := k.take("a", "c", ids...)
	k.settle("a", store.Result{
		Claim: c.ID, Message: ids[0], Outcome: store.Poison,
		Errors: "nul \x00, invalid \xff\xfe", Reason: "nul \x00, invalid \xc3, long " + strings.Repeat("é", 10_000),
	})
	got := k.poisoned()[0]
	equal(k, "errors", got.Errors, "nul \uFFFD, invalid \uFFFD")
	if want := "nul \uFFFD, invalid \uFFFD, long éé"; !strings.HasPrefix(got.Reason, want) || len(got.Reason) > 8<<10 {
		k.Errorf("reason: got %d bytes that begin with %.40q, want at most 8 KiB that begin with %q", len(got.Reason), got.Reason, want)
	}
}
