// Package cron parses cron expressions and computes their next occurrence in a time zone, with the
// rules of Cronos (HangfireIO/Cronos for .NET). Package schedule stores and fires schedules.
//
// # Syntax
//
// An expression has six fields, separated by white space. With five fields, the seconds are 0.
//
//	second        0-59              * , - /
//	minute        0-59              * , - /
//	hour          0-23              * , - /
//	day of month  1-31              * , - / L W
//	month         1-12 or JAN-DEC   * , - /
//	day of week   0-7 or SUN-SAT    * , - / L #    0 and 7 are Sunday
//
// A list (1,5,9) joins values and ranges. A range may wrap around the end of its field: 23-01 is
// 23,0,1 and FRI-MON is four days. A step selects every nth value: */5, 5-40/5, and 10/5 from 10 to
// the field's end. Letters are case-insensitive.
//
// In the day fields ? means *. Elsewhere it is refused, although Cronos accepts it: an expression
// for AWS, whose first field is the minute, would otherwise be misread.
//
// These forms must be alone in their field:
//
//	L, L-3       the last day of the month, the third day before it
//	15W          the weekday (Monday to Friday) nearest to the 15th, within its month
//	LW, L-3W     the weekday nearest to L, to L-3
//	5L, FRIL     the last Friday of the month
//	5#2, FRI#2   the second Friday of the month
//
// Weekdays count from 0, so 5 is Friday (Quartz counts from 1). There is no year field, no TZ=
// prefix and no jitter (H).
//
// Day of month and day of week must both match: "0 0 13 * FRI" is Friday the 13th only. In Vixie
// cron either is enough. A month without the day is skipped, such as April with 31 or 31W.
//
// The macros are @yearly (or @annually), @monthly, @weekly, @daily (or
// @midnight), @hourly, @every_minute and @every_second. "@every 1h30m" fires after that elapsed
// time, independent of the wall clock. Its argument is a time.ParseDuration text of whole seconds,
// at least one.
//
// # Daylight saving time
//
// Fields describe the wall clock, and no occurrence is lost or doubled when it jumps. All
// occurrences in a gap fire once together, at the first instant after the gap. In an overlap, an
// expression of fixed times fires in the first pass only. An expression with *, a range or a step
// in its seconds, minutes or hours is an interval, and fires in both passes.
package cron
