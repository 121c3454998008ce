package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"carillon"
	carillonv1 "carillon/proto/carillon/v1"
)

// Serve has the test itself be the runner of a module, whose verbs take anything and answer anything, and waits until it
// is deployed. It drains as the test ends.
func (c *Cluster) Serve(t testing.TB, module string, verbs carillon.Verbs) {
	t.Helper()
	var list []string
	for name := range verbs {
		list = append(list, fmt.Sprintf(`{"name":%q,"request":"Any","response":"Any"}`, name))
	}
	schema := fmt.Sprintf(`{"module":%q,"language":"go","verbs":[%s]}`, module, strings.Join(list, ","))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", schema, c.name()))
	digest := hex.EncodeToString(sum[:])
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- carillon.Serve(ctx, carillon.Config{
			Module: carillon.Module{Name: module, Language: "go", Digest: digest, Schema: schema}, Verbs: verbs,
			Controllers: strings.Split(c.URLs(), ","), Token: c.token, Deploy: true, Log: slog.New(slog.DiscardHandler),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve %s: %v", module, err)
		}
	})
	k := c.Any(t)
	Eventually(t, Drain*2, "a deployment of "+module, func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("serve %s: %v", module, err)
		default:
		}
		res, err := k.Deploy.ListDeployments(t.Context(), &carillonv1.ListDeploymentsRequest{})
		if err != nil {
			return err
		}
		for _, d := range res.GetDeployments() {
			if d.GetDigest() == digest && d.GetActive() { // it is known before that
				return nil
			}
		}
		return fmt.Errorf("module %s is not deployed", module)
	})
}
