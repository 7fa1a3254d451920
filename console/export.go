package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

const lineTime = 30 * time.Second // for a line to be written

// export writes poisoned messages, a line of JSON each. It is in the audit before it begins.
func (v *request) export() error {
	a := v.sends()
	filter, reason := a.poisoned(), a.text("reason")
	if reason == "" {
		a.fail("Say why: the reason is missing. It is kept with the export, for others to see.")
	}
	if err := a.err(); err != nil {
		return err
	}
	begun := false
	begin := func() {
		h := v.w.Header()
		h.Set("Content-Type", "application/x-ndjson; charset=utf-8")
		h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="poisoned-%s.ndjson"`, time.Now().UTC().Format("20060102-150405")))
		v.w.WriteHeader(http.StatusOK)
		begun = true
	}
	_, err := v.session.Poisoned().Export(v.ctx(), reason, filter.Filter, func(m ops.Poisoned) error {
		if !begun {
			begin()
		}
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		// However long all of it takes, as long as the client reads it.
		_ = http.NewResponseController(v.w).SetWriteDeadline(time.Now().Add(lineTime))
		_, err = v.w.Write(append(append([]byte(`{"v":1,`), line[1:]...), '\n'))
		return err
	})
	switch {
	case err != nil && !begun:
		return err
	case err != nil: // the answer has begun: its last line says that it is not whole
		v.warn("an export ended early", "error", err.Error())
		_, _ = fmt.Fprintln(v.w, `{"v":1,"error":"the export ended early: it is not whole"}`)
	case !begun:
		begin()
	}
	return nil
}
