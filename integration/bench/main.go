package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/measure"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/report"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	broker.Main()
	var err error
	if request, ok := os.LookupEnv(child.Variable); ok {
		err = child.Serve(ctx, request, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program: results go to stdout, progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	s, err := server.Open(ctx, os.Getenv(server.Variable))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := measureAll(ctx, o, s, stderr)
	if err != nil {
		return err
	}
	return write(o, r, stdout)
}

// measureAll takes the steps that the options select and judges what they found.
func measureAll(ctx context.Context, o options, s *server.Server, progress io.Writer) (*report.Report, error) {
	version, err := s.Version(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	run := &session{options: o, bench: &measure.Bench{Server: s}, progress: progress, start: start, report: &report.Report{
		Environment: report.Environment{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
			Cores: runtime.NumCPU(), Postgres: version, Rounds: o.rounds, Quick: o.quick},
	}}
	var goals []report.Goal
	for _, step := range o.steps() {
		run.step = step.name
		err := step.take(run, ctx)
		if missing := new(broker.MissingError); errors.As(err, &missing) {
			run.report.LeaveOut(step.name, missing)
			run.say("%s is left out: %v", step.name, missing)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		goals = append(goals, o.goalsOf(step)...)
	}
	for _, goal := range goals {
		if err := run.report.Judge(goal); err != nil {
			return nil, err
		}
	}
	run.report.Environment.Seconds, run.report.Environment.Others = time.Since(start).Seconds(), run.others
	return run.report, nil
}

// write puts the report wherever the options want it.
func write(o options, r *report.Report, stdout io.Writer) error {
	show := r.WriteTable
	if o.quick {
		show = r.WriteBars
	}
	if err := show(stdout); err != nil {
		return err
	}
	if o.plots != "" {
		if err := r.WritePlots(o.plots); err != nil {
			return err
		}
	}
	if o.json == "" {
		return nil
	}
	file, err := os.Create(o.json)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(file), file.Close())
}
