package bustest

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"
)

// SequentialIDs returns a function that makes message ids in a row, each a valid
// UUID version 7: 00000000-0000-7000-8000-000000000001 and so on. It is for
// [KitConfig] and [FakeProducer], where ids show in what a test compares. The
// function is safe for concurrent use; two of them make the same ids.
func SequentialIDs() func() uuid.UUID {
	var last atomic.Uint32
	return func() uuid.UUID {
		id := uuid.UUID{6: 0x70, 8: 0x80}
		binary.BigEndian.PutUint32(id[12:], last.Add(1))
		return id
	}
}
