package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/cron"
	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

func fromSchema(s *carillonv1.Schema) (schema.Module, error) {
	m := schema.Module{Name: s.GetModule(), Language: s.GetLanguage()}
	for i, v := range s.GetVerbs() {
		verb := schema.Verb{Name: v.GetName(), Request: unit(v.GetRequest()), Response: unit(v.GetResponse())}
		if c := v.GetCron(); c != nil {
			if t := c.GetTimeout(); t != nil && !t.IsValid() {
				return m, invalid(fmt.Sprintf("schema.verbs[%d].cron.timeout", i), "is no duration")
			}
			verb.Cron = &schema.Cron{Schedule: c.GetSchedule(), TimeZone: c.GetTimeZone(), Timeout: c.GetTimeout().AsDuration(), Catchup: catchups[c.GetCatchup()]}
		}
		m.Verbs = append(m.Verbs, verb)
	}
	return m, nil
}

func unit(s string) string {
	if s == "" {
		return schema.Unit
	}
	return s
}

var catchups = map[carillonv1.Catchup]schema.Catchup{
	carillonv1.Catchup_CATCHUP_UNSPECIFIED: schema.CatchupLast,
	carillonv1.Catchup_CATCHUP_LAST:        schema.CatchupLast,
	carillonv1.Catchup_CATCHUP_NONE:        schema.CatchupNone,
	carillonv1.Catchup_CATCHUP_ALL:         schema.CatchupAll,
}

func toCatchup(c cron.Catchup) carillonv1.Catchup {
	switch c {
	case cron.CatchupNone:
		return carillonv1.Catchup_CATCHUP_NONE
	case cron.CatchupAll:
		return carillonv1.Catchup_CATCHUP_ALL
	}
	return carillonv1.Catchup_CATCHUP_LAST
}

func toVerdict(v cron.Verdict) carillonv1.Verdict {
	for i, known := range cron.Verdicts {
		if known == v {
			return carillonv1.Verdict(i + 1)
		}
	}
	return carillonv1.Verdict_VERDICT_UNSPECIFIED
}

func toRun(r cron.Run) *carillonv1.Run {
	return &carillonv1.Run{
		RunId: r.ID.String(), Ref: r.Ref, Slot: stamp(r.Slot), SlotTo: stamp(r.SlotTo), StartedAt: stamp(r.StartedAt), EndedAt: stamp(r.EndedAt),
		Verdict: toVerdict(r.Verdict), Controller: r.Controller, Attempt: int32(r.Attempt),
		LatenessMs: float64(r.Lateness()) / float64(time.Millisecond), Error: r.Error, Count: int64(r.Count),
		Deployment: r.Deployment, Kind: string(r.Kind),
	}
}

func toRuns(runs []cron.Run) []*carillonv1.Run {
	out := make([]*carillonv1.Run, len(runs))
	for i, r := range runs {
		out[i] = toRun(r)
	}
	return out
}

// stamp leaves the zero time unset.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// fromStamp leaves an unset time zero.
func fromStamp(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "is no time: %v", err)
	}
	return t.AsTime(), nil
}

func length(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
