package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const (
	contractsWithin = 7 * 24 * time.Hour // a process that has stopped still tells what is stored
	contractsRead   = 50
)

// PayloadSchema is what a consumer takes.
type PayloadSchema struct {
	PayloadType string          `json:"payload_type"`
	Version     int             `json:"schema_version"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema 2020-12
}

// Schemas returns the payloads of a consumer, as the processor that reported last describes them. It
// returns none if no processor has reported the consumer within a week.
func (s *Consumers) Schemas(ctx context.Context, consumer string) (found []PayloadSchema, err error) {
	documents, err := contracts(ctx, s.access, consumer)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(documents, func(d contract.Document) bool { return len(d.Taken(consumer)) > 0 })
	if i < 0 {
		return nil, nil
	}
	for _, name := range documents[i].Taken(consumer) {
		p := documents[i].Payloads[name]
		text, err := json.MarshalIndent(p.Schema, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("ops: schema of %q: %w", name, err)
		}
		found = append(found, PayloadSchema{PayloadType: name, Version: p.Version, Schema: text})
	}
	return found, nil
}

// AsyncAPI returns an AsyncAPI 3.0 document of the programs whose processors have reported within a
// week.
func (s *Session) AsyncAPI(ctx context.Context, title, version string) ([]byte, error) {
	documents, err := contracts(ctx, s.access, "")
	if err != nil {
		return nil, err
	}
	return contract.AsyncAPI(title, version, documents...)
}

// contracts returns the descriptions that processes have reported, the newest first, each once.
func contracts(ctx context.Context, s *access, consumer string) (documents []contract.Document, err error) {
	texts, err := look(ctx, s, ops.View, consumer, func(ctx context.Context, db bun.IDB) ([]string, error) {
		return s.Store.Reports.Contracts(ctx, db, contractsWithin, contractsRead)
	})
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		var d contract.Document
		if slices.Contains(texts[:i], text) || json.Unmarshal([]byte(text), &d) != nil {
			continue // a newer release may describe payloads in another way
		}
		documents = append(documents, d)
	}
	return documents, nil
}
