package sdkevents

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// Protocol says how a protocol writes events in binary mode.
type Protocol struct {
	Prefix      string // of headers that are attributes
	ContentType string // the header that has that of the data
}

// Write has the SDK make headers and a body of an event.
func (p Protocol) Write(e sdk.Event) (headers map[string]string, body []byte, err error) {
	w := &writer{protocol: p, headers: make(map[string]string)}
	ctx := binding.WithForceBinary(context.Background())
	_, err = binding.Write(ctx, (*binding.EventMessage)(&e), nil, w)
	return w.headers, w.body, err
}

// Read has the SDK make an event of headers and a body.
func (p Protocol) Read(headers map[string]string, body []byte) (*sdk.Event, error) {
	m := &message{protocol: p, headers: headers, body: body}
	m.version = spec.WithPrefix(p.Prefix).Version(headers[p.Prefix+"specversion"])
	if m.version == nil {
		return nil, fmt.Errorf("no event of CloudEvents: %q", headers)
	}
	return binding.ToEvent(context.Background(), m)
}

// writer implements binding.BinaryWriter.
type writer struct {
	protocol Protocol
	headers  map[string]string
	body     []byte
}

func (w *writer) Start(context.Context) error { return nil }
func (w *writer) End(context.Context) error   { return nil }

func (w *writer) SetAttribute(attribute spec.Attribute, value any) error {
	if attribute.Kind() == spec.DataContentType {
		return w.set(w.protocol.ContentType, value)
	}
	return w.set(w.protocol.Prefix+attribute.Name(), value)
}

func (w *writer) SetExtension(name string, value any) error {
	return w.set(w.protocol.Prefix+name, value)
}

func (w *writer) set(name string, value any) error {
	if value == nil {
		return nil
	}
	text, err := types.Format(value)
	w.headers[name] = text
	return err
}

func (w *writer) SetData(data io.Reader) (err error) {
	w.body, err = io.ReadAll(data)
	return err
}

// message implements binding.MessageReader and binding.MessageMetadataReader.
type message struct {
	protocol Protocol
	headers  map[string]string
	body     []byte
	version  spec.Version
}

func (m *message) ReadEncoding() binding.Encoding { return binding.EncodingBinary }

func (m *message) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

func (m *message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := m.version.AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	if value, ok := m.headers[attribute.PrefixedName()]; ok {
		return attribute, value
	}
	return attribute, nil
}

func (m *message) GetExtension(name string) any {
	if value, ok := m.headers[m.protocol.Prefix+name]; ok {
		return value
	}
	return nil
}

func (m *message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	for name, value := range m.headers {
		var err error
		if name == m.protocol.ContentType {
			err = w.SetAttribute(m.version.AttributeFromKind(spec.DataContentType), value)
		} else if attribute := m.version.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, value)
		} else if extension, ok := strings.CutPrefix(name, m.protocol.Prefix); ok {
			err = w.SetExtension(extension, value)
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.body))
}

// Allowed tells whether texts may be attributes, for the SDK, too.
func Allowed(texts ...string) bool {
	for _, text := range texts {
		if text == "" || strings.TrimSpace(text) != text || !utf8.ValidString(text) || len(text) > 200 {
			return false
		}
		for _, r := range text {
			if r < 0x20 || r >= 0x7f && r <= 0x9f || r == utf8.RuneError {
				return false
			}
		}
	}
	return true
}

// IsURI tells whether a text is a URI that Go writes as it is.
func IsURI(text string) bool { u, err := url.Parse(text); return err == nil && u.String() == text }
