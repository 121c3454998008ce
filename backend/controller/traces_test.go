package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon"
	"carillon/backend/store/storetest"
)

// The span of a run reaches the collector, and its trace the verb. (Not parallel: the exporter reads the environment.)
func TestSpansFromClaimToVerb(t *testing.T) {
	var mu sync.Mutex
	var exported bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/v1/traces" {
			io.Copy(&exported, body)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	db := storetest.Open(t, "")
	n := move(t, db, nil)
	eventually(t, "it is ready", n.ready)
	parents := make(chan string, 100)
	play(t, n, carillon.Verbs{"beat": carillon.Plain(func(ctx context.Context) error {
		run, _ := carillon.RunFrom(ctx)
		parents <- run.Traceparent
		return nil
	})}, map[string]string{"beat": "* * * * * *"})
	parent := within(t, 10*time.Second, parents)
	n.out(t) // writes the last spans
	parts := strings.Split(parent, "-")
	if len(parts) != 4 {
		t.Fatalf("traceparent %q", parent)
	}
	trace, _ := hex.DecodeString(parts[1])
	span, _ := hex.DecodeString(parts[2])
	mu.Lock()
	defer mu.Unlock()
	for what, want := range map[string][]byte{
		"trace": trace, "span": span, "name": []byte("run m.beat"), "service": []byte("carillon-controller"),
		"ref": []byte("carillon.ref"), "run": []byte("carillon.run"), "verdict": []byte("carillon.verdict"), "outcome": []byte("succeeded"),
	} {
		if len(want) == 0 || !bytes.Contains(exported.Bytes(), want) {
			t.Errorf("no %s in %d bytes of spans", what, exported.Len())
		}
	}
}

// Where nobody exports spans the engines are not asked to make any.
func TestNoSpansWithoutAnExporter(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	if ifTraced(jobSpan) != nil || ifTraced(span) != nil {
		t.Error("spans are made that nobody sees")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
	if ifTraced(jobSpan) == nil || ifTraced(span) == nil {
		t.Error("no spans are made")
	}
}
