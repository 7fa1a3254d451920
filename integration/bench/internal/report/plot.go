package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
	plotMargin = 0.3 * vg.Centimeter

	// legendRoom is by how much the axis is longer than the highest point.
	legendRoom = 1.2
)

// shown are the charts of docs/performance.md. It is immutable.
var shown = []string{"drain.svg", "latency-p50.svg", "curve-backlog.svg", "curve-processes.svg"}

// WritePlots writes the charts of docs/performance.md that the report has the values for.
func (r *Report) WritePlots(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range r.Curves {
		name := "curve-" + c.Name + ".svg"
		if !slices.Contains(shown, name) {
			continue
		}
		p, err := c.plot()
		if err != nil {
			return fmt.Errorf("plot %s: %w", c.Name, err)
		}
		if err := save(p, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, results := range r.measurements() {
		name := results[0].Measurement + ".svg"
		if len(results) < 2 || !slices.Contains(shown, name) {
			continue
		}
		p, err := bars(results)
		if err != nil {
			return fmt.Errorf("plot %s: %w", results[0].Measurement, err)
		}
		if err := save(p, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (c Curve) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	if c.LogX {
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = plot.LogTicks{Prec: -1}
	}
	p.Add(plotter.NewGrid())
	var series []string
	for _, point := range c.Points {
		if !slices.Contains(series, point.Series) {
			series = append(series, point.Series)
		}
	}
	for i, name := range series {
		var points plotter.XYs
		for _, point := range c.Points {
			if point.Series == name {
				points = append(points, plotter.XY{X: point.X, Y: point.Y})
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		dots.Shape = draw.CircleGlyph{}
		p.Add(line, dots)
		if len(series) > 1 {
			p.Legend.Add(name, line, dots)
		}
	}
	p.Y.Min = 0 // adding points has moved the axis
	p.Y.Max *= legendRoom
	p.Legend.Top = true
	return p, nil
}

func bars(results []*Result) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = results[0].Measurement, results[0].Unit
	values, names := plotter.Values{}, []string{}
	for _, result := range results {
		values, names = append(values, result.Median), append(names, result.Contender)
	}
	chart, err := plotter.NewBarChart(values, 1.5*vg.Centimeter)
	if err != nil {
		return nil, err
	}
	chart.Color = plotutil.Color(2)
	p.Add(chart)
	p.NominalX(names...)
	p.Y.Min = 0
	return p, nil
}

func save(p *plot.Plot, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(canvas), plotMargin, -plotMargin, plotMargin, -plotMargin))
	_, err = canvas.WriteTo(file)
	return err
}
