package bustest

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"
)

// SequentialIDs returns a function that makes consecutive message ids, each a valid UUID version
// 7: 00000000-0000-7000-8000-000000000001 and so on. Use it in [KitConfig] and [FakeProducer] if a
// test compares ids. The function is safe for concurrent use; each call of SequentialIDs starts
// the same sequence.
func SequentialIDs() func() uuid.UUID {
	var last atomic.Uint32
	return func() uuid.UUID {
		id := uuid.UUID{6: 0x70, 8: 0x80}
		binary.BigEndian.PutUint32(id[12:], last.Add(1))
		return id
	}
}
