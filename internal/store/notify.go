package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/uptrace/bun"
)

// maxChannelBytes is what PostgreSQL keeps of an identifier.
const maxChannelBytes = 63

// Channel is the name under which processes that share these tables notify each
// other: false where the database has no notifications. Schema and prefix contain
// no dots, so two pairs never have the same name.
func (s *Store) Channel() (string, bool) {
	name := "asyncmonolith." + s.names.Schema + "." + s.names.Prefix
	if len(name) > maxChannelBytes {
		sum := sha256.Sum256([]byte(name))
		name = "asyncmonolith." + hex.EncodeToString(sum[:16])
	}
	return name, s.names.Notify != ""
}

// Notify sends a text on the channel, in a transaction of its own: one that
// notifies commits later than it would otherwise.
func (s *Store) Notify(ctx context.Context, db *bun.DB, channel, text string) error {
	_, err := db.NewRaw(s.names.Notify, channel, text).Exec(ctx)
	return err
}
