package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"carillon/integration/checker"
	carillonv1 "carillon/proto/carillon/v1"
	"carillon/proto/carillon/v1/carillonv1connect"
)

// Verb is a cron verb of a drill. Its name says what it does: see drillrunner.
type Verb struct {
	Name    string
	Every   int64         // seconds; 1 unless set. The oracle and the schedule are both made of it and of Phase
	Phase   int64         // the first second of a minute that is a slot
	Timeout time.Duration // soft
	Catchup carillonv1.Catchup
	MayFail bool
}

// Verbs makes n verbs that run each second, named prefix, x and a number.
func Verbs(n int, prefix string) []Verb {
	verbs := make([]Verb, n)
	for i := range verbs {
		verbs[i] = Verb{Name: fmt.Sprintf("%sx%d", prefix, i)}
	}
	return verbs
}

// Module is a deployed one, as the drill knows it.
type Module struct {
	Name   string
	Verbs  []Verb
	Record string // file of its runners; that of jobs is beside it

	JobVerbs []JobVerb
	Capacity int // of each runner; 0: more than drills need
	Digest   string
	Schema   *carillonv1.Schema

	schemaFile string
}

// Runner is a process that serves a module.
type Runner struct {
	*process
	Key string
}

// NewModule makes a module of a name that no other has; nothing is deployed yet.
func (c *Cluster) NewModule(t testing.TB, verbs ...Verb) *Module {
	t.Helper()
	m := &Module{Name: fmt.Sprintf("drill%d", c.name())}
	m.Record = filepath.Join(c.dir, m.Name+".record")
	c.Change(t, m, verbs...)
	return m
}

// name counts what needs a name or a digest of its own.
func (c *Cluster) name() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named++
	return c.named
}

// Change gives a module new verbs, and with them a new digest: its next version.
func (c *Cluster) Change(t testing.TB, m *Module, verbs ...Verb) {
	t.Helper()
	version := c.name()
	m.Verbs = verbs
	m.Schema = &carillonv1.Schema{Module: m.Name, Language: "go"}
	for i := range verbs {
		v := &verbs[i]
		if v.Every == 0 {
			v.Every = 1
		}
		cron := &carillonv1.Cron{Schedule: schedule(t, *v), Catchup: v.Catchup}
		if v.Timeout > 0 {
			cron.Timeout = durationpb.New(v.Timeout)
		}
		m.Schema.Verbs = append(m.Schema.Verbs, &carillonv1.Verb{Name: v.Name, Request: "Unit", Response: "Unit", Cron: cron})
	}
	addJobVerbs(m.Schema, m.JobVerbs)
	text, err := protojson.Marshal(m.Schema)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(fmt.Appendf(text, "%d", version))
	m.Digest = hex.EncodeToString(sum[:])
	m.schemaFile = filepath.Join(c.dir, fmt.Sprintf("%s-%d.json", m.Name, version))
	if err := os.WriteFile(m.schemaFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// schedule writes period and phase as the product's six fields. Only periods that divide a minute are the same for both.
func schedule(t testing.TB, v Verb) string {
	t.Helper()
	if v.Every < 1 || 60%v.Every != 0 || v.Phase < 0 || v.Phase >= v.Every {
		t.Fatalf("a period of %d s from second %d is no schedule", v.Every, v.Phase)
	}
	if v.Every == 60 {
		return fmt.Sprintf("%d * * * * *", v.Phase)
	}
	return fmt.Sprintf("%d-59/%d * * * * *", v.Phase, v.Every)
}

// StartRunner starts one for the module's present version and waits until the cluster knows it.
func (c *Cluster) StartRunner(t testing.TB, m *Module) *Runner {
	t.Helper()
	key := fmt.Sprintf("%s-runner-%d", m.Name, c.name())
	r := &Runner{process: new(process), Key: key}
	c.mu.Lock()
	c.runners = append(c.runners, r)
	c.mu.Unlock()
	args := []string{"-schema", m.schemaFile, "-digest", m.Digest, "-record", m.Record, "-controllers", c.URLs(), "-token", c.token, "-key", key}
	if m.Capacity > 0 {
		args = append(args, "-capacity", strconv.Itoa(m.Capacity))
	}
	err := c.launch(r.process, key, "drillrunner", nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.logged("runner registered", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	return r
}

// StartGarbage starts a server of nonsense and registers it as the runner of a module's present version.
func (c *Cluster) StartGarbage(t testing.TB, m *Module, stream bool) {
	t.Helper()
	key := fmt.Sprintf("%s-garbage-%d", m.Name, c.name())
	r := &Runner{process: new(process), Key: key}
	c.mu.Lock()
	c.runners = append(c.runners, r)
	c.mu.Unlock()
	if err := c.launch(r.process, key, "drillrunner", nil, "-garbage"); err != nil {
		t.Fatal(err)
	}
	line, err := r.logged("http://", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	client := carillonv1connect.NewRunnerServiceClient(&http.Client{Transport: bearer{c.token, http.DefaultTransport}}, c.Any(t).URL)
	if _, err := client.Register(t.Context(), &carillonv1.RegisterRequest{
		Runner: key, Endpoint: strings.TrimSpace(line), Capacity: 100, Stream: stream, Schema: m.Schema, Digest: m.Digest,
	}); err != nil {
		t.Fatalf("register the garbage runner: %v", err)
	}
}

// Kill ends the runner as a crash would, without noting a fault.
func (r *Runner) Kill() { r.kill() }

// KillRunner ends one as a crash would.
func (c *Cluster) KillRunner(t testing.TB, m *Module, r *Runner, recovery time.Duration) {
	t.Helper()
	from := time.Now()
	r.kill()
	c.Fault(checker.Fault{Kind: checker.RunnerDown, From: from, To: time.Now(), Module: m.Name, Runner: r.Key, Recovery: recovery})
}

// StopRunner asks one to drain and waits for its end.
func (c *Cluster) StopRunner(t testing.TB, r *Runner) {
	t.Helper()
	if err := r.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code, err := r.exit(15 * time.Second)
	if err != nil || code != 0 {
		t.Errorf("runner %s exits %d after SIGTERM, want 0: %v\n%s", r.Key, code, err, r.tail())
	}
}

// Deploy makes the module's present version the live one by a controller, and notes the slots to expect.
func (c *Cluster) Deploy(t testing.TB, k *Controller, m *Module) *carillonv1.DeployResponse {
	t.Helper()
	asked := time.Now()
	var resp *carillonv1.DeployResponse
	if err := insist(func() (err error) {
		resp, err = k.Deploy.Deploy(t.Context(), &carillonv1.DeployRequest{Schema: m.Schema, Digest: m.Digest})
		return err
	}); err != nil {
		t.Fatalf("deploy %s: %v", m.Name, err)
	}
	acked := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := map[string]bool{}
	for ref := range c.jobs {
		gone[ref] = m.owns(ref)
	}
	for _, v := range m.Verbs {
		ref := m.Name + "." + v.Name
		gone[ref] = false
		job := c.jobs[ref]
		if job == nil {
			job = &checker.Job{Ref: ref}
			c.jobs[ref] = job
		}
		job.MayFail, job.Timeout = v.MayFail, v.Timeout
		if job.Timeout == 0 {
			job.Timeout = 5 * time.Minute
		}
		job.Eras = append(job.Eras, checker.Era{Asked: asked, Acked: acked, Match: checker.Every(v.Every, v.Phase)})
	}
	for ref, is := range gone {
		if is {
			job := c.jobs[ref]
			job.Eras = append(job.Eras, checker.Era{Asked: asked, Acked: acked})
		}
	}
	return resp
}

// Up is a module with one runner, deployed.
func (c *Cluster) Up(t testing.TB, verbs ...Verb) (*Module, *Runner) {
	t.Helper()
	m := c.NewModule(t, verbs...)
	r := c.StartRunner(t, m)
	c.Deploy(t, c.Any(t), m)
	return m, r
}

// retire ends the runners of a module that has been judged.
func (c *Cluster) retire(m *Module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runners {
		if strings.HasPrefix(r.Key, m.Name+"-") {
			r.kill()
		}
	}
}

// Deployment is the key that the present version has.
func (m *Module) Deployment() string { return m.Name + "-" + m.Digest[:12] }

// Kill stops all starts of a module at once.
func (c *Cluster) Kill(t testing.TB, k *Controller, m *Module) {
	t.Helper()
	asked := time.Now()
	if err := insist(func() error {
		_, err := k.Deploy.Kill(t.Context(), &carillonv1.KillRequest{Module: m.Name})
		return err
	}); err != nil {
		t.Fatalf("kill %s: %v", m.Name, err)
	}
	c.steered(m, false, asked)
}

// steered notes that all jobs of a module were stopped, or go on.
func (c *Cluster) steered(m *Module, on bool, asked time.Time) {
	acked := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, job := range c.jobs {
		if m.owns(ref) {
			note(job, on, asked, acked)
		}
	}
}

// Scale sets the wanted runners of a module; 0 is a pause of all its cron jobs, anything else ends it.
func (c *Cluster) Scale(t testing.TB, k *Controller, m *Module, n int32) {
	t.Helper()
	asked := time.Now()
	if err := insist(func() error {
		_, err := k.Deploy.Scale(t.Context(), &carillonv1.ScaleRequest{Module: m.Name, Replicas: n})
		return err
	}); err != nil {
		t.Fatalf("scale %s: %v", m.Name, err)
	}
	c.steered(m, n > 0, asked)
}

// Pause and Resume steer one cron job. Any goroutine may call them: a failure is an error, and ends nothing.
func (c *Cluster) Pause(t testing.TB, k *Controller, ref string) {
	t.Helper()
	c.steer(t, ref, false, func() error {
		_, err := k.Cron.PauseCronJob(t.Context(), &carillonv1.PauseCronJobRequest{Ref: ref})
		return err
	})
}

func (c *Cluster) Resume(t testing.TB, k *Controller, ref string) {
	t.Helper()
	c.steer(t, ref, true, func() error {
		_, err := k.Cron.ResumeCronJob(t.Context(), &carillonv1.ResumeCronJobRequest{Ref: ref})
		return err
	})
}

// insist tries again what came to nothing for want of the database or of a lock, as a person would.
func insist(do func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := do()
		if err == nil || connect.CodeOf(err) != connect.CodeUnavailable || time.Now().After(deadline) {
			return err
		}
	}
}

func (c *Cluster) steer(t testing.TB, ref string, on bool, do func() error) {
	t.Helper()
	asked := time.Now()
	if err := insist(do); err != nil {
		t.Errorf("pause or resume %s: %v", ref, err)
	}
	c.Note(ref, on, asked, time.Now())
}

// Note writes down that a cron job was stopped, or goes on, at some time between the two.
func (c *Cluster) Note(ref string, on bool, asked, acked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	note(c.jobs[ref], on, asked, acked)
}

// note writes down that a job was paused, or went on.
func note(job *checker.Job, on bool, asked, acked time.Time) {
	n := len(job.Pauses)
	paused := n > 0 && job.Pauses[n-1].ResumeAsked.IsZero()
	switch {
	case on && paused:
		job.Pauses[n-1].ResumeAsked, job.Pauses[n-1].ResumeAcked = asked, acked
	case !on && !paused:
		job.Pauses = append(job.Pauses, checker.Pause{Asked: asked, Acked: acked})
	}
}

func (m *Module) owns(ref string) bool {
	return len(ref) > len(m.Name) && ref[:len(m.Name)] == m.Name && ref[len(m.Name)] == '.'
}
