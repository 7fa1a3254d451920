package bus_test

import (
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

const idText = "0198c2f4-5f6e-7abc-8def-0123456789ab"

func sampleID() bus.MessageID {
	return bus.MessageID{0x01, 0x98, 0xc2, 0xf4, 0x5f, 0x6e, 0x7a, 0xbc, 0x8d, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab}
}

func TestMessageIDReadsTheCanonicalForm(t *testing.T) {
	t.Parallel()
	got, err := bus.ParseMessageID(idText)
	if err != nil || got != sampleID() {
		t.Errorf("ParseMessageID: got %v, %v, want %v", got, err, sampleID())
	}
	if got, err := bus.ParseMessageID(strings.ToUpper(idText)); err != nil || got != sampleID() {
		t.Errorf("ParseMessageID of upper case: got %v, %v, want %v", got, err, sampleID())
	}
	if got := sampleID().String(); got != idText {
		t.Errorf("String: got %q, want %q", got, idText)
	}
	if got, want := (bus.MessageID{}).String(), "00000000-0000-0000-0000-000000000000"; got != want {
		t.Errorf("String of the zero id: got %q, want %q", got, want)
	}
}

// badIDs are texts that are no canonical UUID.
func badIDs() map[string]string {
	return map[string]string{
		"an empty text":                      "",
		"one digit too few":                  idText[1:],
		"one digit too many":                 idText + "0",
		"no dashes":                          strings.ReplaceAll(idText, "-", ""),
		"36 digits without dashes":           strings.ReplaceAll(idText, "-", "0"),
		"a missing first dash":               "0198c2f405f6e-7abc-8def-0123456789ab",
		"a missing second dash":              "0198c2f4-5f6e07abc-8def-0123456789ab",
		"a missing third dash":               "0198c2f4-5f6e-7abc08def-0123456789ab",
		"a missing last dash":                "0198c2f4-5f6e-7abc-8def00123456789ab",
		"braces around it":                   "{" + idText + "}",
		"a URN":                              "urn:uuid:" + idText,
		"a letter that is no digit":          "0198c2f4-5f6e-7abc-8def-0123456789ag",
		"a bad digit in the first group":     "g198c2f4-5f6e-7abc-8def-0123456789ab",
		"a dash among the digits":            "0198c2f4-5f6e-7abc-8def-0123456789-b",
		"a space for a digit":                " 198c2f4-5f6e-7abc-8def-0123456789ab",
		"36 bytes with a character of two":   "0198c2f4-5f6e-7abc-8def-0123456789é",
		"raw bytes in a string, not a slice": string(make([]byte, 16)),
	}
}

func TestMessageIDRefusesOtherTexts(t *testing.T) {
	t.Parallel()
	for name, text := range badIDs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := bus.ParseMessageID(text)
			if err == nil || got != (bus.MessageID{}) {
				t.Fatalf("ParseMessageID(%q): got %v, %v, want the zero id and an error", text, got, err)
			}
			if want := fmt.Sprintf("bus: message id %q", text); !strings.Contains(err.Error(), want) {
				t.Errorf("ParseMessageID(%q): got error %q, want it to have %q", text, err, want)
			}
		})
	}
}

func TestMessageIDScans(t *testing.T) {
	t.Parallel()
	raw := sampleID()
	tests := []struct {
		name string
		src  any
	}{
		{"the canonical form as a string", idText},
		{"the canonical form as bytes", []byte(idText)},
		{"16 raw bytes", raw[:]},
		{"an array of 16 bytes", [16]byte(raw)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := bus.MessageID{0xff}
			if err := got.Scan(test.src); err != nil || got != sampleID() {
				t.Errorf("Scan: got %v, %v, want %v", got, err, sampleID())
			}
		})
	}
}

func TestMessageIDScanKeepsNothingOfItsSource(t *testing.T) {
	t.Parallel()
	src := sampleID()
	buffer := src[:] // a driver reuses its buffers
	var got bus.MessageID
	if err := got.Scan(buffer); err != nil {
		t.Fatal(err)
	}
	clear(buffer)
	if got != sampleID() {
		t.Errorf("after the buffer was cleared: got %v, want %v", got, sampleID())
	}
}

func TestMessageIDScanRefusesWhatIsNoID(t *testing.T) {
	t.Parallel()
	sources := map[string]any{
		"NULL":                       nil,
		"a number":                   int64(17),
		"15 raw bytes":               make([]byte, 15),
		"17 raw bytes":               make([]byte, 17),
		"an empty slice":             []byte{},
		"a nil slice":                []byte(nil),
		"an array of another length": [15]byte{},
	}
	for name, text := range badIDs() {
		sources[name+", as a string"] = text
		if len(text) != 16 { // 16 bytes are an id
			sources[name+", as bytes"] = []byte(text)
		}
	}
	for name, src := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sampleID()
			if err := got.Scan(src); err == nil || !strings.HasPrefix(err.Error(), "bus: message id") {
				t.Errorf("Scan(%v): got error %v, want one about a message id", src, err)
			}
			if got != sampleID() {
				t.Errorf("Scan(%v): got id %v, want it left alone, %v", src, got, sampleID())
			}
		})
	}
}

func TestMessageIDSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var id bus.MessageID
		for i := range id {
			id[i] = byte(random.Uint32())
		}
		value, err := id.Value()
		if err != nil || !driver.IsValue(value) {
			t.Fatalf("Value of %v: got %T, %v, want a driver value", id, value, err)
		}
		var scanned, fromRaw bus.MessageID
		if err := scanned.Scan(value); err != nil || scanned != id {
			t.Errorf("Scan of Value: got %v, %v, want %v", scanned, err, id)
		}
		if err := fromRaw.Scan(id[:]); err != nil || fromRaw != id {
			t.Errorf("Scan of the raw bytes: got %v, %v, want %v", fromRaw, err, id)
		}
		if parsed, err := bus.ParseMessageID(id.String()); err != nil || parsed != id {
			t.Errorf("ParseMessageID of String: got %v, %v, want %v", parsed, err, id)
		}
	}
}

func TestMessageIDValueIsTheCanonicalForm(t *testing.T) {
	t.Parallel()
	if got, err := sampleID().Value(); err != nil || got != idText {
		t.Errorf("Value: got %v, %v, want %q", got, err, idText)
	}
}

func TestModeNames(t *testing.T) {
	t.Parallel()
	var zero bus.Message
	if zero.Mode != bus.Live {
		t.Errorf("the zero message: got mode %s, want %s", zero.Mode, bus.Live)
	}
	for mode, want := range map[bus.Mode]string{bus.Live: "live", bus.CatchUp: "catchup", bus.Replay: "replay", 200: "mode(200)"} {
		if got := mode.String(); got != want {
			t.Errorf("Mode %d: got %q, want %q", uint8(mode), got, want)
		}
	}
}
