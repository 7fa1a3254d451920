package report

import "fmt"

// Goal is one bar as the design words it: the figure of a contender, or its
// ratio to the figure of another, at least or at most a limit.
type Goal struct {
	// Name is what the bar is called in the output.
	Name string
	// Measurement and Contender name the figure. Contender defaults to "ours".
	Measurement, Contender string
	// Against names the contender that the figure is divided by. Empty means
	// that the goal is for the figure itself.
	Against string
	// AtLeast or AtMost is the limit; the other one is 0.
	AtLeast, AtMost float64
}

// Judge adds the bar to the report. A figure that the run did not find is an
// error: a missing line must not pass for a bar that was reached.
func (r *Report) Judge(g Goal) error {
	if g.Contender == "" {
		g.Contender = baseline
	}
	result := r.find(g.Measurement, g.Contender)
	if result == nil {
		return fmt.Errorf("bar %s: %s of %s was not measured", g.Name, g.Measurement, g.Contender)
	}
	bar := Bar{Name: g.Name, Unit: result.Unit, Value: result.Median}
	judged := bar.Value
	if g.Against != "" {
		against, ok := r.Median(g.Measurement, g.Against)
		if !ok || against == 0 {
			return fmt.Errorf("bar %s: %s of %s was not measured", g.Name, g.Measurement, g.Against)
		}
		bar.Ratio = bar.Value / against
		judged = bar.Ratio
	}
	unit := ""
	if g.Against == "" {
		unit = " " + result.Unit
	}
	if g.AtMost > 0 {
		bar.Goal, bar.OK = fmt.Sprintf("≤ %s%s", Number(g.AtMost), unit), judged <= g.AtMost
	} else {
		bar.Goal, bar.OK = fmt.Sprintf("≥ %s%s", Number(g.AtLeast), unit), judged >= g.AtLeast
	}
	r.Bars = append(r.Bars, bar)
	return nil
}
