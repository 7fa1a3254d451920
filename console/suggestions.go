package console

import "slices"

// suggestions are values that a form offers, besides any that are typed: those of the overview, and
// the keys and versions of the messages shown.
type suggestions struct{ Consumers, PayloadTypes, Keys, Versions []string }

func (s *suggestions) addKey(key string) { add(&s.Keys, key) }

func add(values *[]string, value string) {
	if value != "" && !slices.Contains(*values, value) {
		*values = append(*values, value)
	}
}

func (s *suggestions) load(r *request) error {
	o, err := r.overview()
	s.Consumers = queues(o.Queues).names()
	for _, p := range o.Processes {
		add(&s.Versions, p.Version)
		for _, c := range p.Consumers {
			s.PayloadTypes = append(s.PayloadTypes, c.PayloadTypes...)
		}
	}
	slices.Sort(s.PayloadTypes)
	s.PayloadTypes = slices.Compact(s.PayloadTypes)
	return err
}
