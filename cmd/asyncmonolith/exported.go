package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// exported is a poisoned message in a file that "poisoned export" has written.
type exported struct {
	ID        int64     `json:"id"`
	MessageID uuid.UUID `json:"message_id"`
	Hidden    bool      `json:"hidden"`
}

// readExport reads all of such a file, so that nothing is deleted if that is not whole.
func readExport(name string) (kept []exported, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, usage(fmt.Errorf("--exported: %w", err))
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReader(file))
	for {
		var m exported
		switch err := lines.Decode(&m); {
		case errors.Is(err, io.EOF):
			return kept, nil
		case err != nil || m.ID < 1 || m.MessageID == uuid.Nil:
			return nil, usage(fmt.Errorf("--exported %s: line %d is no message, so that the file is not whole: export again", name, len(kept)+1))
		case m.Hidden:
			return nil, usage(fmt.Errorf("--exported %s: line %d has no content, which would be lost: export with --show-payloads", name, len(kept)+1))
		}
		kept = append(kept, m)
	}
}

// discardExported deletes the poisoned messages that are in a file, and no others: what was poisoned since is not in it.
func (b *bulk) discardExported(ctx context.Context, name string) error {
	kept, err := readExport(name)
	if err != nil {
		return err
	}
	session, err := b.session()
	if err != nil {
		return err
	}
	unconfirmed, progress, n := b.unconfirmed(), b.progress(), 0
	for part := range slices.Chunk(kept, mostPreviewed) {
		ids, err := stillThere(ctx, session, part)
		if err == nil && len(ids) > 0 && unconfirmed == nil {
			_, err = session.Poisoned().Discard(ctx, b.reason, ids...)
		}
		if err != nil {
			return errors.Join(err, b.say("%s %s before that.", messages(n), b.done))
		}
		n += len(ids)
		progress.show(fmt.Sprintf("%s of %d %s", messages(n), len(kept), b.done))
	}
	progress.end()
	if missing := len(kept) - n; unconfirmed == nil && missing > 0 {
		err = errPartly
	}
	switch {
	case n == 0:
		return fmt.Errorf("%w: no message of the file is poisoned, in this database", errNotFound)
	case unconfirmed != nil && b.json:
		return b.also(map[string]string{"would": fmt.Sprintf("discard %s", messages(n))}, unconfirmed)
	case unconfirmed != nil:
		return b.alsoSay(fmt.Sprintf("%s would be %s, of %d in the file.", messages(n), b.done, len(kept)), unconfirmed)
	case b.json:
		return b.also(map[string]int{"discarded": n, "missing": len(kept) - n}, err)
	case err != nil:
		return b.alsoSay(fmt.Sprintf("%s %s. %d of the file are there no more.", messages(n), b.done, len(kept)-n), err)
	default:
		return b.say("%s %s.", messages(n), b.done)
	}
}

// stillThere are the ids of those that are poisoned in this database: the file may be of another.
func stillThere(ctx context.Context, session *ops.Session, kept []exported) (ids []int64, err error) {
	of := make(map[int64]uuid.UUID, len(kept))
	for _, m := range kept {
		of[m.ID] = m.MessageID
		ids = append(ids, m.ID)
	}
	found, _, err := session.Poisoned().List(ctx, poison.Filter{IDs: ids}, admin.Page{Size: len(ids)})
	ids = nil
	for _, m := range found {
		if of[m.ID] == m.MessageID {
			ids = append(ids, m.ID)
		}
	}
	return ids, err
}
