package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Report is everything that one run found.
type Report struct {
	Environment Environment `json:"environment"`
	Results     []*Result   `json:"results"`
	Bars        []Bar       `json:"bars"`
	Curves      []Curve     `json:"curves,omitempty"`
	// LeftOut says which steps were not taken, and why.
	LeftOut []string `json:"left_out,omitempty"`
}

// Environment says on what the run was made.
type Environment struct {
	Go       string  `json:"go"`
	System   string  `json:"system"`
	Cores    int     `json:"cores"`
	Postgres string  `json:"postgres"`
	Rounds   int     `json:"rounds"`
	Quick    bool    `json:"quick"`
	Seconds  float64 `json:"seconds"`
	// Others is the most of the machine that others had in a measurement, from 0 to 1.
	Others float64 `json:"others"`
}

// Result is one measurement of one contender over all rounds.
type Result struct {
	Measurement string    `json:"measurement"`
	Contender   string    `json:"contender"`
	Unit        string    `json:"unit"`
	Values      []float64 `json:"values"` // in order of the rounds
	Median      float64   `json:"median"`
}

// Bar is a goal of the design and how far it was reached.
type Bar struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"` // the median of ours
	// Ratio is the value by that of whom it is compared with; 0 where the goal
	// is for the value itself.
	Ratio float64 `json:"ratio,omitempty"`
	Goal  string  `json:"goal"`
	OK    bool    `json:"ok"`
}

// Curve shows how a figure changes with the scale of something.
type Curve struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	X      string  `json:"x"` // what the axes show
	Y      string  `json:"y"`
	LogX   bool    `json:"log_x"`
	Points []Point `json:"points"`
}

// Point is one figure of a curve.
type Point struct {
	Series string  `json:"series"`
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
}

// Add adds the value of one round.
func (r *Report) Add(measurement, contender, unit string, value float64) {
	result := r.find(measurement, contender)
	if result == nil {
		result = &Result{Measurement: measurement, Contender: contender, Unit: unit}
		r.Results = append(r.Results, result)
	}
	result.Values = append(result.Values, value)
	result.Median = Median(result.Values)
}

// LeaveOut says that a step was not taken, and that its bars are not judged.
func (r *Report) LeaveOut(step string, why error) {
	r.LeftOut = append(r.LeftOut, fmt.Sprintf("%s is left out: %v", step, why))
}

func (r *Report) find(measurement, contender string) *Result {
	for _, result := range r.Results {
		if result.Measurement == measurement && result.Contender == contender {
			return result
		}
	}
	return nil
}

// Median returns the median that a contender reached; not every run measures
// everything.
func (r *Report) Median(measurement, contender string) (median float64, ok bool) {
	result := r.find(measurement, contender)
	if result == nil {
		return 0, false
	}
	return result.Median, true
}

// measurements returns the results in groups, in the order of the report.
func (r *Report) measurements() [][]*Result {
	var groups [][]*Result
	at := map[string]int{}
	for _, result := range r.Results {
		i, ok := at[result.Measurement]
		if !ok {
			i = len(groups)
			at[result.Measurement] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], result)
	}
	return groups
}

// WriteJSON writes all of the report.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return nil
}

// Median returns the middle value, or the mean of the two in the middle, and 0
// for no values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile returns the smallest value that is at least p percent of the values,
// and 0 for no values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
