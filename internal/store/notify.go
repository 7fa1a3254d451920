package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/uptrace/bun"
)

// maxChannelBytes is how many bytes of an identifier PostgreSQL keeps.
const maxChannelBytes = 63

// Channel returns the name under which processes that share these tables notify each other, or
// false if the database has no notifications. Schema and prefix contain no dots, so no two pairs
// have the same name.
func (s *Store) Channel() (string, bool) {
	name := "asyncmonolith." + s.names.Schema + "." + s.names.Prefix
	if len(name) > maxChannelBytes {
		sum := sha256.Sum256([]byte(name))
		name = "asyncmonolith." + hex.EncodeToString(sum[:16])
	}
	return name, s.names.Notify != ""
}

// Notify sends a text on the channel, in a transaction of its own, because a notification delays
// the commit.
func (s *Store) Notify(ctx context.Context, db *bun.DB, channel, text string) error {
	_, err := db.NewRaw(s.names.Notify, channel, text).Exec(ctx)
	return err
}
