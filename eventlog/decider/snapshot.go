package decider

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"reflect"
	"slices"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// kept is the stored form of a snapshot.
type kept[T any] struct {
	Form  string `json:"form"` // of the Go type of the state
	State T      `json:"state"`
}

func (d Decider[S, C, E]) kind() string { return fmt.Sprintf("%s/%d", d.Category, d.Snapshots.Schema) }

// restore loads the last snapshot, if there is one.
func (d Decider[S, C, E]) restore(ctx context.Context, log *eventlog.Log, db bun.IDB, id string, l loaded[S]) (loaded[S], error) {
	snapshot, ok, err := logaccess.Snapshot(ctx, log, db, d.Stream(id), d.kind())
	if err != nil || !ok {
		return l, err
	}
	if !decode(snapshot.State, &l.state) {
		return l, fmt.Errorf("snapshot of version %d: %w", snapshot.Version, ErrSnapshotMismatch)
	}
	l.version, l.snapshot = snapshot.Version, snapshot.Version
	return l, nil
}

// decode decodes a snapshot into the initial state, and reports whether it fits.
func decode[S any](text []byte, state *S) bool {
	var k kept[json.RawMessage]
	empty(reflect.ValueOf(state).Elem(), true)
	return json.Unmarshal(text, &k) == nil && k.Form == formOf(reflect.TypeFor[S]()) && json.Unmarshal(k.State, state) == nil
}

// empty clears the parts of an initial state that a snapshot is decoded into. Otherwise values
// that an event removed, and encoding omits, would reappear. Maps stay non-nil for Evolve to write
// to; fields that are never encoded stay too.
func empty(v reflect.Value, outermost bool) {
	reads := false
	switch reflect.New(v.Type()).Interface().(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		reads = true
	}
	switch {
	case v.Kind() == reflect.Pointer && outermost && !v.IsNil():
		empty(v.Elem(), false)
	case v.Kind() == reflect.Struct && !reads:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" {
				empty(v.Field(i), false)
			}
		}
	case !v.CanSet(), v.Kind() == reflect.Interface: // an interface may hold the type to decode into
	case v.Kind() == reflect.Map && !v.IsNil():
		v.Set(reflect.MakeMap(v.Type()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	default:
		v.SetZero()
	}
}

// encode returns the state to store, or nil unless the command's events, the last ones, have reached
// a multiple of Every. A state that JSON rejects, such as one with a NaN, or that is another one once
// it is decoded, does not block the stream: it is logged and not stored.
func (d Decider[S, C, E]) encode(ctx context.Context, id string, l loaded[S], events int) []byte {
	if every := int64(d.Snapshots.Every); every == 0 || l.version/every == (l.version-int64(events))/every {
		return nil
	}
	text, err := d.encoded(l.state)
	if err != nil {
		slog.WarnContext(ctx, "snapshot not saved", "stream", d.Stream(id), "version", l.version, "error", err.Error())
		return nil
	}
	return text
}

// encoded returns a state as a snapshot that restores it.
func (d Decider[S, C, E]) encoded(state S) ([]byte, error) {
	text, err := json.Marshal(kept[S]{Form: formOf(reflect.TypeFor[S]()), State: state})
	if err != nil {
		return nil, fmt.Errorf("the state cannot be encoded: %w", err)
	}
	var restored S
	if d.Initial != nil {
		restored = d.Initial()
	}
	if !decode(text, &restored) || !same(reflect.ValueOf(&state).Elem(), reflect.ValueOf(&restored).Elem()) {
		return nil, errors.New("JSON does not preserve the state: encoding and decoding changes it")
	}
	return text, nil
}

// survives returns an error if values of a type lose something when they are encoded as JSON and
// decoded.
func survives(t reflect.Type, path string, above []reflect.Type) error {
	value := reflect.New(t).Interface()
	_, writes := value.(json.Marshaler)
	_, reads := value.(json.Unmarshaler)
	if !writes || !reads {
		_, writes = value.(encoding.TextMarshaler)
		_, reads = value.(encoding.TextUnmarshaler)
	}
	if writes && reads || slices.Contains(above, t) { // it encodes itself, or contains itself
		return nil
	}
	above = append(above[:len(above):len(above)], t)
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s is a %s, which JSON cannot encode", path, t)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return survives(t.Elem(), path, above)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			switch {
			case f.Tag.Get("json") == "-":
				continue
			case !f.IsExported() && !f.Anonymous:
				return fmt.Errorf(
					"%s.%s is not exported, and would not be in a snapshot: "+
						"export the field, give the struct MarshalJSON and UnmarshalJSON, or tag the field json:\"-\"",
					path, f.Name,
				)
			}
			if err := survives(f.Type, path+"."+f.Name, above); err != nil {
				return err
			}
		}
	}
	return nil
}

// Verify compares the state from a snapshot and later events with the state from all events, and
// returns an error if they differ. Then Evolve has changed, or the state does not survive
// encoding. Use it in tests, and for spot checks of a live system.
func Verify[S, C any, E bus.Payload](ctx context.Context, log *eventlog.Log, tx bus.Handle, d Decider[S, C, E], id string) error {
	var short, long loaded[S]
	err := txn.Through(ctx, tx, access.Dialect(logaccess.Registry(log)), func(db bun.IDB) (err error) {
		if short, err = d.load(ctx, log, db, id, true); err == nil {
			long, err = d.load(ctx, log, db, id, false)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("decider: verify %s: %w", d.Stream(id), err)
	}
	if !same(reflect.ValueOf(&short.state).Elem(), reflect.ValueOf(&long.state).Elem()) {
		return fmt.Errorf(
			"decider: verify %s: the state from the snapshot of version %d differs from the state from all events: raise Snapshots.Schema",
			d.Stream(id), short.snapshot,
		)
	}
	return nil
}

// formOf hashes what the encoding depends on: names, tags and types, recursively.
func formOf(t reflect.Type) string {
	h := fnv.New64a()
	var walk func(t reflect.Type, above []reflect.Type)
	walk = func(t reflect.Type, above []reflect.Type) {
		fmt.Fprintf(h, "%s(", t.Kind())
		if slices.Contains(above, t) { // it contains itself
			return
		}
		above = append(above[:len(above):len(above)], t)
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				f := t.Field(i)
				fmt.Fprintf(h, "%s %s ", f.Name, f.Tag.Get("json"))
				walk(f.Type, above)
			}
		case reflect.Map:
			walk(t.Key(), above)
			walk(t.Elem(), above)
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem(), above)
		}
		fmt.Fprint(h, ")")
	}
	walk(t, nil)
	return fmt.Sprintf("%016x", h.Sum64())
}
