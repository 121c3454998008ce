package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/core/schema"
	carillonv1 "carillon/proto/carillon/v1"
)

// fromSchema reads a schema off the wire. It refuses what the nouns cannot hold; whether the schema is any good is for
// schema.Validate to say.
func fromSchema(s *carillonv1.Schema) (schema.Module, error) {
	m := schema.Module{Name: s.GetModule(), Language: s.GetLanguage()}
	for i, v := range s.GetVerbs() {
		verb, err := fromVerb(fmt.Sprintf("schema.verbs[%d].", i), v)
		if err != nil {
			return m, err
		}
		m.Verbs = append(m.Verbs, verb)
	}
	for _, d := range s.GetData() {
		data := schema.Data{Name: d.GetName()}
		for _, f := range d.GetFields() {
			data.Fields = append(data.Fields, schema.Field{Name: f.GetName(), Type: f.GetType(), Optional: f.GetOptional()})
		}
		m.Data = append(m.Data, data)
	}
	return m, nil
}

func fromVerb(field string, v *carillonv1.Verb) (schema.Verb, error) {
	verb := schema.Verb{Name: v.GetName(), Request: unit(v.GetRequest()), Response: unit(v.GetResponse()), Concurrency: int(v.GetConcurrency())}
	if c := v.GetCron(); c != nil {
		verb.Cron = &schema.Cron{Schedule: c.GetSchedule(), TimeZone: c.GetTimeZone(), Catchup: catchups[c.GetCatchup()], Overlap: overlaps[c.GetOverlap()]}
	}
	if r := v.GetRetry(); r != nil {
		verb.Retry = &schema.Retry{Attempts: int(r.GetAttempts())}
	}
	if v.GetUnique() != nil {
		verb.Unique = &schema.Unique{}
	}
	for _, d := range []struct {
		name string
		from *durationpb.Duration
		to   func(time.Duration)
	}{
		{"timeout", v.GetTimeout(), func(d time.Duration) { verb.Timeout = d }},
		{"cron.timeout", v.GetCron().GetTimeout(), func(d time.Duration) { verb.Cron.Timeout = d }},
		{"retry.backoff", v.GetRetry().GetBackoff(), func(d time.Duration) { verb.Retry.Backoff = d }},
		{"retry.ceiling", v.GetRetry().GetCeiling(), func(d time.Duration) { verb.Retry.Ceiling = d }},
		{"unique.window", v.GetUnique().GetWindow(), func(d time.Duration) { verb.Unique.Window = d }},
	} {
		if d.from == nil {
			continue
		}
		if !d.from.IsValid() {
			return verb, invalid(field+d.name, "is no duration")
		}
		d.to(d.from.AsDuration())
	}
	return verb, nil
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

var overlaps = map[carillonv1.Overlap]schema.Overlap{
	carillonv1.Overlap_OVERLAP_UNSPECIFIED: schema.OverlapSkip,
	carillonv1.Overlap_OVERLAP_SKIP:        schema.OverlapSkip,
	carillonv1.Overlap_OVERLAP_QUEUE:       schema.OverlapQueue,
	carillonv1.Overlap_OVERLAP_ALLOW:       schema.OverlapAllow,
	carillonv1.Overlap_OVERLAP_CANCEL:      schema.OverlapCancel,
}

func toOverlap(o cron.Overlap) carillonv1.Overlap {
	for wire, known := range overlaps {
		if known.String() == string(o) && wire != carillonv1.Overlap_OVERLAP_UNSPECIFIED {
			return wire
		}
	}
	return carillonv1.Overlap_OVERLAP_SKIP
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
	out := &carillonv1.Run{
		RunId: r.ID.String(), Ref: r.Ref, Slot: stamp(r.Slot), SlotTo: stamp(r.SlotTo), StartedAt: stamp(r.StartedAt), EndedAt: stamp(r.EndedAt),
		Verdict: toVerdict(r.Verdict), Controller: r.Controller, Attempt: int32(r.Attempt),
		LatenessMs: float64(r.Lateness()) / float64(time.Millisecond), Error: r.Error, Count: int64(r.Count),
		Deployment: r.Deployment, Kind: string(r.Kind),
	}
	if r.Made != (cron.Made{}) {
		out.JobId = job.ID(r.Made).String()
	}
	return out
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
