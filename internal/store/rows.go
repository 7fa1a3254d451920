package store

import (
	"context"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// The rows and questions that dialects and their callers share.
type (
	Claim        = dialect.Claim
	ClaimRequest = dialect.ClaimRequest
	Event        = dialect.Event
	Fence        = dialect.Fence
	RunTx        = dialect.RunTx
	Consumed     = dialect.Consumed
	Kept         = dialect.Kept
	Fenced       = dialect.Fenced
	Finished     = dialect.Finished
	GroupKey     = dialect.GroupKey
	LaneLook     = dialect.LaneLook
	LaneState    = dialect.LaneState
	Lanes        = dialect.Lanes
	Message      = dialect.Message
	Moment       = dialect.Moment
	NewEvent     = dialect.NewEvent
	NewMessage   = dialect.NewMessage
	Outcome      = dialect.Outcome
	PendingKey   = dialect.PendingKey
	Poisoned     = dialect.Poisoned
	Position     = dialect.Position
	Poll         = dialect.Poll
	QueueStats   = dialect.QueueStats
	Rate         = dialect.Rate
	Recent       = dialect.Recent
	Recovered    = dialect.Recovered
	Requeuing    = dialect.Requeuing
	Result       = dialect.Result
	Selection    = dialect.Selection
	Session      = dialect.Session
	Settled      = dialect.Settled
	Source       = dialect.Source
	SpentLane    = dialect.SpentLane
	Unhandled    = dialect.Unhandled
	Want         = dialect.Want
)

// The outcomes of a settle, which messages a claim may take, and headers of the library.
const (
	Clean           = dialect.Clean
	ConsumersHeader = dialect.ConsumersHeader
	DeliverByHeader = dialect.DeliverByHeader
	Done            = dialect.Done
	EventHeader     = dialect.EventHeader
	Expired         = dialect.Expired
	Failed          = dialect.Failed
	Killers         = dialect.Killers
	MostCounted     = dialect.MostCounted
	Poison          = dialect.Poison
	Release         = dialect.Release
	SchemaHeader    = dialect.SchemaHeader
	Snoozed         = dialect.Snoozed
	Suspects        = dialect.Suspects
	Unclassified    = dialect.Unclassified
)

// WithClock makes every statement under the context take its time from now instead of the
// database's clock. Test kits use it.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return dialect.WithClock(ctx, now)
}

// Clock returns the time of this process's clock, or that of WithClock.
func Clock(ctx context.Context) time.Time { return dialect.Clock(ctx) }

// Headers decodes stored headers.
func Headers(text []byte) map[string]string { return dialect.Headers(text) }

// TakeSchema removes the schema of a stored payload from headers and returns it.
func TakeSchema(headers map[string]string) int { return dialect.TakeSchema(headers) }

// CheckHeaders refuses headers of the application that say how a payload is stored.
func CheckHeaders(headers map[string]string) error { return dialect.CheckHeaders(headers) }

// Each returns the result of fn for each row.
func Each[R, T any](rows []R, fn func(R) T) []T { return dialect.Each(rows, fn) }

// CrashReason returns why a message is poisoned after so many lost processes.
func CrashReason(crashes int) string { return dialect.CrashReason(crashes) }

// Unbounded is the PerKey of a source that shares among keys and does not bound them.
const Unbounded = dialect.Unbounded

// Lane returns the number that the messages of one key share.
func Lane(key string) int64 { return dialect.Lane(key) }
