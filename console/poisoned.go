package console

// poisonedPage is groups of poisoned messages.
type poisonedPage struct {
	Consumer  string
	Consumers []string // to choose from
	Groups    []failure
	More      bool
}

func (p *poisonedPage) read(q *params) { p.Consumer = q.text("consumer") }

func (p *poisonedPage) load(r *request) error {
	groups, more, err := r.session.Poisoned().Groups(r.Context(), p.Consumer)
	if err != nil {
		return err
	}
	fleet, err := r.session.Processes(r.Context(), fleetTime)
	if err != nil {
		return err
	}
	for _, g := range groups {
		p.Groups = append(p.Groups, failureOfGroup(g, fleet))
	}
	p.More = more
	all, err := r.queues()
	p.Consumers = all.names()
	return err
}

func (*poisonedPage) layout() layout { return layout{title: "Poisoned messages", tab: "poisoned"} }
