package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// stored is a row of consumer_messages or poisoned_messages.
type stored struct {
	ID             int64
	MessageID      uuid.UUID
	ConsumerType   string
	Payload        string
	AvailableAfter store.Moment
	Attempts       int
	Crashes        int
	Errors         string
	InsertID       string
	OrderKey       string
	Rank           int64
	PoisonedAt     store.Moment
	Reason         string
	Poisoned       bool
	Parks          bool
}

// readMessages reads pending and poisoned messages in one go.
func (d *Database) readMessages(v View) {
	const columns = "m.id, m.message_id, m.consumer_type, m.payload, m.available_after, m.attempts, m.crashes, m.errors, m.insert_id, "
	pending, keys := "consumer_messages m", "m.order_key, m.rank, "
	if !d.AnyOrder() { // MariaDB
		pending, keys = pending+" LEFT JOIN message_lanes k ON k.id = m.id", "k.order_key, k.rank, "
	}
	var rows []stored
	must(d.handle.NewRaw("SELECT "+columns+keys+"m.available_after AS poisoned_at, '' AS reason, false AS poisoned, false AS parks FROM "+pending+
		" UNION ALL SELECT "+columns+"m.order_key, m.rank, m.poisoned_at, m.reason, true, COALESCE(m.parks, false) FROM poisoned_messages "+
		"m").Scan(d.ctx, &rows))
	for _, r := range rows {
		message, known := d.messages[r.MessageID]
		if !known {
			panic(fmt.Sprintf("a message that nobody produced: %+v", r))
		}
		key := Key{message, r.ConsumerType}
		d.ids[key], d.keys[r.ID] = r.ID, key
		d.orderKey[key], d.rank[key] = r.OrderKey, r.Rank
		row := Row{
			Due: r.AvailableAfter.Sub(epoch()), Attempts: r.Attempts, Crashes: r.Crashes, Errors: r.Errors,
			InsertID: r.InsertID, OrderKey: r.OrderKey, Payload: payloadOf(r.Payload),
		}
		if rulesOf(key.Consumer).PerKey > 0 {
			row.Rank = instantOf(r.Rank)
		}
		if r.Poisoned {
			v.Poisoned[key] = Poisoned{Row: row, At: r.PoisonedAt.Sub(epoch()), Reason: r.Reason, Parks: r.Parks}
		} else {
			v.Rows[key] = row
		}
	}
}

// payloadOf is the number in a payload, or 0.
func payloadOf(text string) int {
	var payload item
	must(json.Unmarshal([]byte(text), &payload))
	return payload.N
}

func (d *Database) readClaims(v View) {
	var claims []struct {
		ID          int64
		Owner       string
		Solo        bool
		LeasedUntil store.Moment
		MessageIDs  string `bun:"message_ids"`
		Lanes       string
	}
	must(d.handle.NewRaw("SELECT id, owner, solo, leased_until, message_ids, lanes FROM message_claims").Scan(d.ctx, &claims))
	for _, c := range claims {
		claim := Claim{Owner: c.Owner, Solo: c.Solo, Until: c.LeasedUntil.Sub(epoch())}
		ofLane := make(map[Key]string)
		lanes := listOf(c.Lanes)
		for i, id := range listOf(c.MessageIDs) {
			key := d.keys[id]
			claim.Held = append(claim.Held, key)
			if len(lanes) > 0 {
				ofLane[key] = orderKeyOf(lanes[i])
			}
		}
		slices.SortFunc(claim.Held, compareKeys)
		if len(lanes) > 0 {
			claim.Lanes = store.Each(claim.Held, func(key Key) string { return ofLane[key] })
		}
		v.Claims[d.number[c.ID]] = claim
	}
}

// listOf reads an array, or JSON.
func listOf(text string) (list []int64) {
	for part := range strings.SplitSeq(strings.Trim(text, "{}[]"), ",") {
		if part = strings.TrimSpace(part); part != "" {
			n, err := strconv.ParseInt(part, 10, 64)
			must(err)
			list = append(list, n)
		}
	}
	return list
}
