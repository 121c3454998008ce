package controller

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"carillon/backend/core/cron"
	"carillon/backend/core/job"
	"carillon/backend/engine/queue"
	"carillon/backend/engine/scheduler"
)

// startTraces exports spans over OTLP when the standard OTEL_* variables name an endpoint; otherwise spans cost nothing.
func startTraces(ctx context.Context, version string) (stop func(), err error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	if !traced() {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "carillon-controller"), attribute.String("service.version", version))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		provider.Shutdown(ctx)
	}, nil
}

func traced() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// ifTraced is f, or nil where nobody would see its spans: even one that nobody records costs half a microsecond.
func ifTraced[F any](f F) (none F) {
	if traced() {
		return f
	}
	return none
}

// span covers one run from its claim to the verb's outcome; its context travels to the runner as traceparent.
func span(call scheduler.Call) (traceparent string, end func(scheduler.Outcome)) {
	ctx, s := otel.Tracer("carillon").Start(context.Background(), "run "+call.Ref, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("carillon.ref", call.Ref), attribute.String("carillon.run", call.Run.String()),
		attribute.String("carillon.slot", call.Slot.Format(time.RFC3339Nano)), attribute.String("carillon.deployment", call.Deployment),
		attribute.String("carillon.kind", string(call.Kind)), attribute.Int("carillon.attempt", call.Attempt),
	))
	if !s.IsRecording() {
		return "", func(scheduler.Outcome) {}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"], func(o scheduler.Outcome) {
		s.SetAttributes(attribute.String("carillon.verdict", string(o.Verdict)))
		if o.Verdict != cron.Succeeded {
			s.SetStatus(codes.Error, o.Error)
		}
		s.End()
	}
}

// jobSpan covers one run of a job from its claim to the verb's outcome.
func jobSpan(call queue.Call) (traceparent string, end func(job.Outcome)) {
	ctx, s := otel.Tracer("carillon").Start(context.Background(), "job "+call.Ref, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("carillon.ref", call.Ref), attribute.String("carillon.run", call.Run.String()), attribute.String("carillon.job", call.Job.String()),
		attribute.String("carillon.tenant", call.Tenant), attribute.String("carillon.deployment", call.Deployment), attribute.Int("carillon.attempt", call.Attempt),
	))
	if !s.IsRecording() {
		return "", func(job.Outcome) {}
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"], func(o job.Outcome) {
		s.SetAttributes(attribute.String("carillon.verdict", string(o.Verdict)))
		if o.Verdict != cron.Succeeded {
			s.SetStatus(codes.Error, o.Text)
		}
		s.End()
	}
}
