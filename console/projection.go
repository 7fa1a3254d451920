package console

import "github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"

// projectionPage is one version of a projection, with its parked events.
type projectionPage struct {
	version
	Parked []projection.Parked
	Next   string
	First  string
	after  int64 // the position
}

func (p *projectionPage) read(q *params) {
	p.Name, p.Version, p.after = q.text("name"), q.version(), q.id("after")
}

func (p *projectionPage) load(r *request) error {
	all, err := loadVersions(r)
	if err != nil {
		return err
	}
	if p.version, err = all.of(p.Name, p.Version); err != nil {
		return err
	}
	if p.Parked, err = r.session.Projections().Parked(r.Context(), p.Name, p.Version, p.after, pageSize+1); err != nil {
		return err
	}
	if len(p.Parked) > pageSize {
		p.Parked = p.Parked[:pageSize]
		p.Next = linkTo("projection", "name", p.Name, "version", p.Version, "after", p.Parked[pageSize-1].Position).String()
	}
	if p.after > 0 {
		p.First = linkTo("projection", "name", p.Name, "version", p.Version).String()
	}
	return nil
}

func (p *projectionPage) layout() layout {
	return layout{title: "Projection " + p.Title(), tab: "projections"}
}
