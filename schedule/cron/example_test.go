package cron_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

func ExampleParse() {
	// At 02:30, on the second Sunday of March: in New York, when summer time
	// begins and there is no 02:30.
	e, err := cron.Parse("0 30 2 * MAR SUN#2")
	if err != nil {
		fmt.Println(err)
		return
	}
	zone, err := cron.LoadLocation("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := e.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), zone)
	fmt.Println(next, err)

	_, err = cron.Parse("61 * * * *")
	fmt.Println(err)
	_, err = cron.Parse("0 0 0 30 FEB *")
	fmt.Println(errors.Is(err, cron.ErrNeverFires))
	// Output:
	// 2026-03-08 03:00:00 -0400 EDT <nil>
	// cron: minute field "61": 0-59 is allowed
	// true
}

func ExampleExpression_Next() {
	zone, err := cron.LoadLocation("Europe/Amsterdam")
	if err != nil {
		fmt.Println(err)
		return
	}
	daily, _ := cron.Parse("0 30 2 * * *")
	hourly, _ := cron.Parse("0 30 * * * *")
	for _, e := range []cron.Expression{daily, hourly} {
		at := time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC) // the hour from 2 to 3 will run twice
		for range 2 {
			at, _ = e.Next(at, zone)
			fmt.Println(e, "fires at", at)
		}
	}
	// Output:
	// 0 30 2 * * * fires at 2026-10-25 02:30:00 +0200 CEST
	// 0 30 2 * * * fires at 2026-10-26 02:30:00 +0100 CET
	// 0 30 * * * * fires at 2026-10-25 02:30:00 +0200 CEST
	// 0 30 * * * * fires at 2026-10-25 02:30:00 +0100 CET
}
