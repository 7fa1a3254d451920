package console

import (
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// claimPage is the messages of a claim.
type claimPage struct {
	ID    int64
	Found []admin.Message
}

func (p *claimPage) read(q *params) { p.ID = q.needID("id") }

func (p *claimPage) load(r *request) (err error) {
	p.Found, err = r.session.Messages().ListClaimed(r.Context(), p.ID)
	return err
}

func (p *claimPage) layout() layout {
	return layout{title: fmt.Sprintf("Claim %d", p.ID), tab: "processes"}
}
