package bustest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
)

var _ = flag.Bool("update", false, "accept compatible changes")

// The releases of a program. Types of one name are those of different releases.
type (
	invoiceV1 struct {
		ID    string   `json:"id"`
		Lines []lineV1 `json:"lines"`
		Note  string   `json:"note,omitempty"`
	}
	lineV1 struct {
		Cents int `json:"cents"`
	}
	withField struct {
		invoiceV1
		Carrier string `json:"carrier"`
	}
	withoutField struct {
		ID    string   `json:"id"`
		Lines []lineV1 `json:"lines"`
	}
	retyped struct {
		ID    string `json:"id"`
		Lines []struct {
			Cents string `json:"cents"`
		} `json:"lines"`
		Note string `json:"note,omitempty"`
	}
	upcast  struct{ withoutField }
	renamed struct{ invoiceV1 }
)

// Values that are all texts in JSON.
type (
	texts struct {
		ID     string         `json:"id"`
		Totals map[string]int `json:"totals"`
		Paid   int            `json:"paid,string"`
		Code   string         `json:"code"`
	}
	parsedTexts struct {
		ID     uuid.UUID   `json:"id"`
		Totals map[int]int `json:"totals"`
		Paid   bool        `json:"paid,string"`
		Code   int         `json:"code,string"`
	}
)

func (texts) PayloadType() string        { return "invoice" }
func (parsedTexts) PayloadType() string  { return "invoice" }
func (invoiceV1) PayloadType() string    { return "invoice" }
func (withoutField) PayloadType() string { return "invoice" }
func (retyped) PayloadType() string      { return "invoice" }
func (renamed) PayloadType() string      { return "bill" }
func (upcast) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) { return text, nil }}
}

func consume[T bus.Payload](name string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(context.Context, T) error { return nil }, options...)
}

// errorsIn runs Contract and returns its failures. update is the flag.
func errorsIn(t *testing.T, update bool, file string, consumers ...bus.Consumer) string {
	t.Helper()
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatal(err)
	}
	if err := flag.Set("update", fmt.Sprint(update)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flag.Set("update", "false") }()
	r := &collector{recorder: recorder{TB: t}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		bustest.Contract(r, registry, file)
	}()
	<-done
	return strings.TrimSpace(r.all + r.failure)
}

// collector notes all failures.
type collector struct {
	recorder
	all string
}

func (c *collector) Errorf(format string, args ...any) { c.all += fmt.Sprintf(format, args...) + "\n" }

// TestContract compares releases with the first one. It is not parallel, since it sets the flag.
func TestContract(t *testing.T) {
	first := []bus.Consumer{consume[invoiceV1]("send", bus.Aliases("mail"), bus.PayloadAliases("old.invoice")), consume[orderPlaced]("ship")}
	ship := first[1]
	send := func(options ...bus.ConsumerOption) []bus.ConsumerOption {
		return append(options, bus.Aliases("mail"), bus.PayloadAliases("old.invoice"))
	}
	for _, test := range []struct {
		name   string
		now    []bus.Consumer
		breaks string // part of the failure, or nothing
		adds   string
	}{
		{"nothing", first, "", ""},
		{"a field is new", []bus.Consumer{consume[withField]("send", send()...), ship}, "", `payload "invoice": field "carrier" is new`},
		{"a field is gone", []bus.Consumer{consume[withoutField]("send", send()...), ship}, `payload "invoice": field "note" is gone`, ""},
		{"a type", []bus.Consumer{consume[retyped]("send", send()...), ship},
			`field "lines[].cents" is string, and was integer (int64)`, ""},
		{"an upcaster", []bus.Consumer{consume[upcast]("send", send()...), ship}, "", `payload "invoice" has schema 2, and had schema 1`},
		{"a payload is gone", []bus.Consumer{first[0]}, `payload "order.placed" is gone`, ""},
		{"a consumer is gone", []bus.Consumer{first[0], consume[orderPlaced]("ship-2")}, `consumer "ship" is gone`, ""},
		{"a consumer's alias is gone", []bus.Consumer{consume[invoiceV1]("send", bus.PayloadAliases("old.invoice")), ship},
			`alias "mail" of consumer "send" is gone`, ""},
		{"a payload's alias is gone", []bus.Consumer{consume[invoiceV1]("send", bus.Aliases("mail")), ship},
			`alias "old.invoice" of payload "invoice" is gone`, ""},
		{"renamed with aliases", []bus.Consumer{
			consume[renamed]("deliver", bus.Aliases("send", "mail"), bus.PayloadAliases("invoice", "old.invoice")), ship,
		}, "", `consumer "deliver" is new`},
		{"a payload is renamed without", []bus.Consumer{consume[renamed]("send", send()...), ship}, `payload "invoice" is gone`, ""},
		{"a consumer takes another payload", []bus.Consumer{first[0], consume[orderPlaced]("other"), consume[orderShipped]("ship")},
			`consumer "ship" does not take payload "order.placed" any more`, ""},
		{"a key is needed", []bus.Consumer{first[0], consume[orderPlaced]("ship", bus.Fair())}, `consumer "ship" uses keys`, ""},
		{"a consumer is new", append([]bus.Consumer{consume[orderShipped]("thank")}, first...), "", `consumer "thank" is new`},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "testdata", "payloads.json")
			if got := errorsIn(t, false, file, first...); !strings.Contains(got, "write it with -update") {
				t.Fatalf("without the file: got %q, want how to write it", got)
			}
			if got := errorsIn(t, true, file, first...); got != "" {
				t.Fatalf("the first time: got %q, want it written", got)
			}
			before := read(t, file)
			got := errorsIn(t, false, file, test.now...)
			if want := test.breaks + test.adds; !strings.Contains(got, want) || (got == "") != (want == "") {
				t.Errorf("got %q, want %q", got, want)
			}
			if test.breaks != "" && !strings.Contains(got, "delete it from "+file+" by hand") {
				t.Errorf("got %q, want what to do", got)
			}
			if test.adds != "" && !strings.Contains(got, "accept it with -update") {
				t.Errorf("got %q, want that -update accepts it", got)
			}
			accepted := errorsIn(t, true, file, test.now...)
			if refused := accepted != ""; refused != (test.breaks != "") {
				t.Errorf("with -update: got %q", accepted)
			}
			if changed := read(t, file) != before; changed != (test.adds != "") {
				t.Errorf("with -update: got the file changed %t, want %t", changed, test.adds != "")
			}
			if test.breaks == "" {
				if got := errorsIn(t, false, file, test.now...); got != "" {
					t.Errorf("after -update: got %q, want nothing", got)
				}
			}
		})
	}
}

// TestContractSeesHowTextsAreRead, because not every text is a UUID, a number or a key of a map of numbers.
func TestContractSeesHowTextsAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "payloads.json")
	if got := errorsIn(t, true, file, consume[texts]("send")); got != "" {
		t.Fatal(got)
	}
	got := errorsIn(t, false, file, consume[parsedTexts]("send"))
	for _, want := range []string{
		`"code" is string (int64), and was string:`, `"id" is string (uuid), and was string:`,
		`"paid" is string (boolean), and was string (int64):`, `"totals" is map by int64, and was map:`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestContractWithoutWhatWasDeletedByHand accepts that it is gone.
func TestContractWithoutWhatWasDeletedByHand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "payloads.json")
	if got := errorsIn(t, true, file, consume[invoiceV1]("send")); got != "" {
		t.Fatal(got)
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(read(t, file)), &all); err != nil {
		t.Fatal(err)
	}
	invoice := all["payloads"].(map[string]any)["invoice"].(map[string]any)
	delete(invoice["schema"].(map[string]any)["properties"].(map[string]any), "note")
	edited, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, edited, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := errorsIn(t, true, file, consume[withoutField]("send")); got != "" {
		t.Errorf("got %q, want it accepted", got)
	}
}

// TestContractRefusesAFileThatItCannotRead, and a nil registry.
func TestContractRefusesAFileThatItCannotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "payloads.json")
	if err := os.WriteFile(file, []byte(`{"consumer": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := errorsIn(t, true, file); !strings.Contains(got, `unknown field "consumer"`) {
		t.Errorf("got %q, want the field", got)
	}
	wantFailure(t, func(t testing.TB) { bustest.Contract(t, nil, file) }, "the registry is nil")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
