package differential

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Row is a pending or poisoned message as a model knows it, and as a database has it.
type Row struct {
	Consumer string
	N        int    // of its payload
	InsertID string // empty for none
	Due      time.Time
	Attempts int

	order int // of its insert; unknown of a database's
	place int // of an ordered consumer's: the order of its first insert
}

// Schedule is a named schedule.
type Schedule struct {
	Name   string
	N      int
	Paused bool
	Asked  bool // for a fire of its own
	Due    time.Time
}

// Picture is everything that a database stores, but for what nobody can foretell.
type Picture struct {
	Pending, Poisoned []Row // in the order in which they were inserted
	Paused            []string
	Schedules         []Schedule
	Effects           map[string]int
	Claims            int
}

// String lists the picture, a line each: equal pictures have equal texts.
func (p Picture) String() string {
	var b strings.Builder
	for kind, rows := range [][]Row{p.Pending, p.Poisoned} {
		for _, r := range rows {
			fmt.Fprintf(&b, "%s %s %d %q due %s attempts %d\n", []string{"pending", "poisoned"}[kind], r.Consumer, r.N, r.InsertID, stamp(r.Due), r.Attempts)
		}
	}
	fmt.Fprintf(&b, "paused %q\n", p.Paused)
	for _, s := range p.Schedules {
		fmt.Fprintf(&b, "schedule %s %d paused %t asked %t due %s\n", s.Name, s.N, s.Paused, s.Asked, stamp(s.Due))
	}
	fmt.Fprintf(&b, "effects %v\nclaims %d\n", p.Effects, p.Claims) // fmt sorts a map
	return b.String()
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// clone is a copy that a rollback can go back to.
func (p Picture) clone() Picture {
	p.Pending, p.Poisoned = slices.Clone(p.Pending), slices.Clone(p.Poisoned)
	p.Paused, p.Schedules = slices.Clone(p.Paused), slices.Clone(p.Schedules)
	effects := make(map[string]int, len(p.Effects))
	for key, n := range p.Effects {
		effects[key] = n
	}
	p.Effects = effects
	return p
}

// Flaw is a mistake that a model makes on purpose, to see that it is noticed.
type Flaw int

// The flaws.
const (
	Sound          Flaw = iota
	KeepsRollback       // a rollback to a savepoint takes nothing back
	CountsSnoozes       // as attempts
	ForgetsPause        // of consumers
	LosesPlace          // of messages with a key that are requeued
	RunsPastParked      // messages of the same key
)

// Model says what every operation does.
type Model struct {
	Picture
	flaw   Flaw
	orders int
	limit  int // of attempts
}

func newModel(flaw Flaw) *Model {
	return &Model{Picture: Picture{Effects: make(map[string]int)}, flaw: flaw, limit: attempts}
}

// produce inserts for every consumer that has no message with the insert id.
func (m *Model) produce(n int, insertID string, due time.Time) (duplicates int) {
	for _, consumer := range consumers() {
		if !m.insert(Row{Consumer: consumer, N: n, InsertID: insertID, Due: due}) {
			duplicates++
		}
	}
	return duplicates
}

func (m *Model) insert(r Row) bool {
	if r.InsertID != "" && slices.ContainsFunc(m.Pending, func(p Row) bool { return p.InsertID == r.InsertID && p.Consumer == r.Consumer }) {
		return false
	}
	m.orders++
	if r.order = m.orders; r.place == 0 || m.flaw == LosesPlace {
		r.place = r.order
	}
	m.Pending = append(m.Pending, r)
	return true
}

// next is the position of the message that a consumer is to run, or -1.
func (m *Model) next(consumer string, now time.Time) int {
	found := -1
	if m.flaw != ForgetsPause && slices.Contains(m.Paused, consumer) {
		return found
	}
	if consumer == ordered {
		return m.first(now)
	}
	for i, r := range m.Pending {
		if r.Consumer == consumer && !r.Due.After(now) && (found < 0 || earlier(r, m.Pending[found])) {
			found = i
		}
	}
	return found
}

// first is next for the ordered consumer: the first of its key, which may have to wait, or be
// parked.
func (m *Model) first(now time.Time) int {
	if m.flaw != RunsPastParked && slices.ContainsFunc(m.Poisoned, func(r Row) bool { return r.Consumer == ordered }) {
		return -1
	}
	found := -1
	for i, r := range m.Pending {
		if r.Consumer == ordered && (found < 0 || r.place < m.Pending[found].place) {
			found = i
		}
	}
	if found >= 0 && m.Pending[found].Due.After(now) {
		return -1
	}
	return found
}

func earlier(a, b Row) bool {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.order, b.order)) < 0
}

// run enters what a run does to the message at the position.
func (m *Model) run(i int, deed Deed, now time.Time) {
	r := m.Pending[i]
	switch deed {
	case Succeed:
		m.Pending = slices.Delete(m.Pending, i, i+1)
		if r.Consumer == transactional {
			m.Effects[fmt.Sprint(r.N)]++
		}
	case Discard:
		m.Pending = slices.Delete(m.Pending, i, i+1)
	case Snooze:
		m.Pending[i].Due = now.Add(snooze)
		if m.flaw == CountsSnoozes {
			m.Pending[i].Attempts++
		}
	case Fail, Panic, Condemn:
		r.Attempts++
		if deed != Condemn && r.Attempts < m.limit {
			r.Due = now.Add(retry)
			m.Pending[i] = r
			return
		}
		m.Pending = slices.Delete(m.Pending, i, i+1)
		m.Poisoned = append(m.Poisoned, r)
		slices.SortFunc(m.Poisoned, func(a, b Row) int { return cmp.Compare(a.order, b.order) })
	}
}

// requeue makes a pending message of a poisoned one, unless its insert id is pending.
func (m *Model) requeue(i int, n int, now time.Time) bool {
	r := m.Poisoned[i]
	if !m.insert(Row{Consumer: r.Consumer, N: n, InsertID: r.InsertID, Due: now, place: r.place}) {
		return false
	}
	m.Poisoned = slices.Delete(m.Poisoned, i, i+1)
	return true
}

// write makes a schedule or changes it.
func (m *Model) write(name string, n int, now time.Time) {
	if i := slices.IndexFunc(m.Schedules, func(s Schedule) bool { return s.Name == name }); i >= 0 {
		m.Schedules[i].N = n // the expression is the same, and so is the next fire time
		return
	}
	m.Schedules = append(m.Schedules, Schedule{Name: name, N: n, Due: following(now)})
}

// following is the next fire time: every minute.
func following(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }

// fire fires what is due, each once however late it is, and what was asked for.
func (m *Model) fire(now time.Time) (fired int) {
	var due []Schedule
	for i := range m.Schedules {
		s := &m.Schedules[i]
		times := 0
		if s.Asked {
			s.Asked = false
			times++
		}
		if !s.Paused && !s.Due.After(now) {
			s.Due = following(now)
			times++
		}
		for range times {
			due = append(due, *s)
		}
	}
	for _, consumer := range consumers() { // a batch is inserted by consumer
		for _, s := range due {
			m.insert(Row{Consumer: consumer, N: s.N, Due: now})
		}
	}
	return len(due)
}
