package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func renameCases() []testCase {
	return []testCase{
		{"who knows the former name alone does not find what was renamed", renameHides},
		{"the first name stays in the headers", renameHeaders},
		{"no insert id is pending twice, and no message is lost", renameKeys},
		{"what is not ours any more keeps its name", renameFenced},
		{"a locked message keeps its name", renameLocked},
		{"many are renamed at once", renameMany},
	}
}

// former are the messages of a claim, for their present name.
func former(c store.Claim, name string) []store.Former {
	var rows []store.Former
	for i := range c.Messages {
		rows = append(rows, store.Former{Message: &c.Messages[i], Name: name})
	}
	return rows
}

// rename returns the ids of those of the claim that were renamed.
func (k *kit) rename(owner string, c store.Claim, name string) []int64 {
	k.Helper()
	renamed, err := k.store.Claims.Rename(k.ctx, k.db, owner, c.ID, former(c, name))
	k.must("rename", err)
	return slices.DeleteFunc(idsOf(c), func(id int64) bool { return !renamed[id] })
}

func (k *kit) names() map[int64]string {
	k.Helper()
	names := make(map[int64]string)
	for _, m := range k.messages() {
		names[m.ID] = m.Consumer
	}
	return names
}

func renameHides(k *kit) {
	ids := k.add("old", 3)
	c := k.take("a", "old", ids[:2]...)
	before := k.row(ids[0])
	equal(k, "renamed", k.rename("a", c, "new"), ids[:2])
	equal(k, "names", k.names(), map[int64]string{ids[0]: "new", ids[1]: "new", ids[2]: "old"})
	before.Consumer, before.Headers = "new", string(c.Messages[0].Headers)
	equal(k, "the row", k.row(ids[0]), before)
	k.pass(lease + time.Second)
	equal(k, "recovered", k.recover(3), store.Recovered{Claims: 1, Crashed: 2})
	k.take("old program", "old", ids[2])
	if c := k.claim(crashed("old program", store.Suspects, 9, want("old", 9))); c.ID != 0 {
		k.Errorf("claim under the former name: got messages %v, want none", idsOf(c))
	}
	equal(k, "claimed under the present name", idsOf(k.claim(crashed("b", store.Suspects, 9, want("new", 9)))), ids[:2])
}

func renameHeaders(k *kit) {
	m := k.message("oldest")
	m.Headers = `{"tenant":"<é>","x":"1"}`
	k.insert(m)
	odd := k.message("oldest")
	odd.Headers = `no headers`
	k.insert(odd)
	ids := k.pending()
	c := k.take("a", "oldest", ids...)
	k.rename("a", c, "old")
	k.rename("a", c, "new")
	k.settle("a", results(c, store.Release, ids...)...)
	again := k.take("b", "new", ids...)
	for i, want := range []map[string]string{{"tenant": "<é>", "x": "1"}, {}} {
		to := bus.Message{Headers: store.Headers(again.Messages[i].Headers), ConsumerAlias: "new"}
		again.Messages[i].Deliver(&to)
		equal(k, "headers", to.Headers, want)
		equal(k, "produced for", to.ConsumerAlias, "oldest")
	}
	equal(k, "as the row is", c.Messages, again.Messages)
}

// renameKeys renames two messages of one insert id, under two former names, and one whose insert
// id is pending under the present name.
func renameKeys(k *kit) {
	k.insert(k.keyed("old", "x"), k.keyed("older", "x"), k.keyed("old", "y"), k.keyed("new", "y"), k.keyed("old", "z"))
	c := k.claim(request("a", want("old", 9), want("older", 9)))
	equal(k, "renamed", len(k.rename("a", c, "new")), 4)
	var got []string
	for _, m := range k.messages() {
		got = append(got, m.Consumer+" "+m.InsertID)
	}
	slices.Sort(got)
	want := []string{"new " + null, "new " + null, "new x", "new y", "new z"}
	apart := k.store.Supersedes() != nil // they have a table of their own
	if apart {
		want = []string{"new x", "new x", "new y", "new y", "new z"}
	}
	equal(k, "messages", got, want)
	if bare := slices.DeleteFunc(slices.Clone(c.Messages), func(m store.Message) bool { return m.InsertID != "" }); !apart && len(bare) != 2 {
		k.Errorf("messages without their insert id: got %d, want 2, as the rows are", len(bare))
	}
	for _, id := range []string{"x", "y", "z"} {
		m := k.keyed("new", id)
		m.FormerConsumers = []string{"old", "older"}
		equal(k, "written of what is pending", len(k.insert(m)), 0)
	}
	k.settle("a", results(c, store.Done, idsOf(c)...)...)
	equal(k, "left", len(k.messages()), 1)
	m := k.keyed("new", "x")
	m.FormerConsumers = []string{"old", "older"}
	equal(k, "written once it is consumed", k.insert(m)[m.MessageID], 1)
}

func renameFenced(k *kit) {
	ids := k.add("old", 2)
	c := k.take("a", "old", ids...)
	equal(k, "renamed by another owner", k.rename("b", c, "new"), nil)
	c.Messages[1].Attempts++ // as if it had run meanwhile
	equal(k, "renamed", k.rename("a", c, "new"), ids[:1])
	k.pass(lease + time.Second)
	k.recover(3)
	c.Messages[1].Attempts--
	equal(k, "renamed once the claim is over", k.rename("a", c, "new"), nil)
	equal(k, "names", k.names(), map[int64]string{ids[0]: "new", ids[1]: "old"})
	equal(k, "as the row is", c.Messages[1].ConsumerType, "old")
}

func renameLocked(k *kit) {
	if !k.store.RowLocks() {
		k.Skip("one writer locks the whole database")
	}
	ids := k.add("old", 3)
	several, one := k.take("a", "old", ids[:2]...), k.take("a", "old", ids[2])
	k.must("transaction", k.inTx(func(ctx context.Context, tx bun.Tx) error {
		for _, id := range ids[1:] {
			if _, err := tx.NewRaw("SELECT id FROM ? WHERE id = ? FOR UPDATE", k.table("consumer_messages"), id).Exec(ctx); err != nil {
				return err
			}
		}
		equal(k, "renamed of two", k.rename("a", several, "new"), ids[:1])
		equal(k, "renamed of one", k.rename("a", one, "new"), nil)
		return nil
	}))
	equal(k, "names", k.names(), map[int64]string{ids[0]: "new", ids[1]: "old", ids[2]: "old"})
}

// renameMany needs more than one statement, by number and by bytes.
func renameMany(k *kit) {
	const n = 1200
	var rows []store.NewMessage
	for i := range n {
		m := k.message([]string{"old", "older"}[i%2])
		m.Headers = fmt.Sprintf(`{"n":"%d","long":%q}`, i, strings.Repeat("h", 4000))
		rows = append(rows, m)
	}
	k.insert(rows...)
	c := k.claim(request("a", want("old", n), want("older", n)))
	equal(k, "renamed", len(k.rename("a", c, "new")), n)
	seen := make(map[string]bool)
	for _, m := range k.messages() {
		headers := store.Headers([]byte(m.Headers))
		seen[headers["n"]] = m.Consumer == "new" && len(headers) == 3
	}
	for _, ok := range seen {
		if !ok || len(seen) != n {
			k.Fatalf("headers: got some of another message, or %d in all, want each its own", len(seen))
		}
	}
}
