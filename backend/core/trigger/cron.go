package trigger

import (
	"time"

	"carillon/backend/core/schedule"
)

// readCron reads the arguments of an @cron: five or six fields, without words and without a zone, that match some
// instant after now.
func readCron(arguments string, loc *time.Location, now time.Time) (schedule.Schedule, error) {
	s, err := schedule.ParseAt(arguments, schedule.Cozy, loc, now)
	if err != nil {
		return schedule.Schedule{}, badSchedule(arguments, err)
	}
	return s, nil
}

// location reads the time zone of a trigger; empty is UTC.
func location(zone string) (*time.Location, error) {
	loc, err := schedule.LoadLocation(zone)
	if err != nil {
		return nil, &Fault{Pointer: PointerZone, Title: InvalidAttribute, Detail: err.Error()}
	}
	return loc, nil
}
