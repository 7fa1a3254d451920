package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// export writes poisoned messages, a line of JSON each. The audit has it before its first line.
type export struct {
	filter poisonedFilter
	reason string
	w      http.ResponseWriter
	begun  bool
}

const lineTime = 30 * time.Second // to write a line

func (e *export) read(q *params) {
	e.filter, e.reason = q.poisoned(), q.text("reason")
	if e.reason == "" {
		q.fail("%s", noReason("export"))
	}
}

func (e *export) serve(r *request) error {
	if err := r.params().into(e); err != nil {
		return err
	}
	e.w = r.w
	_, err := r.session.Poisoned().Export(r.Context(), e.reason, e.filter.Filter, e.write)
	switch {
	case err != nil && !e.begun:
		return err
	case err != nil: // the status is sent already: the last line says that the answer is not whole
		r.warn("export ended early", "error", err.Error())
		_, _ = fmt.Fprintln(e.w, `{"v":1,"error":"the export ended early and is incomplete"}`)
	default:
		e.begin()
	}
	return nil
}

// begin sends the headers before the first line.
func (e *export) begin() {
	if e.begun {
		return
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "application/x-ndjson; charset=utf-8")
	name := fmt.Sprintf("poisoned-%s.ndjson", time.Now().UTC().Format("20060102-150405"))
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s"`, name))
	e.w.WriteHeader(http.StatusOK)
}

func (e *export) write(m operator.PoisonedMessage) error {
	e.begin()
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// The export may take long, as long as the client reads it.
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(lineTime))
	_, err = e.w.Write(append(append([]byte(`{"v":1,`), line[1:]...), '\n'))
	return err
}
