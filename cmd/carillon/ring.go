package main

import (
	"context"
	"fmt"

	carillonv1 "carillon/proto/carillon/v1"
)

// ringCmd shows which controller owns which shards.
type ringCmd struct {
	listing
}

type ringJSON struct {
	Shards  int32        `json:"shards"`
	Members []memberJSON `json:"members"`
}

type memberJSON struct {
	Key      string  `json:"key"`
	Endpoint string  `json:"endpoint"`
	First    []int32 `json:"first"`
	Second   []int32 `json:"second"`
}

func (c *ringCmd) Help() string {
	return `Examples:

  carillon ring
  carillon ring -o json | jq -r '.members[].key'`
}

func (c *ringCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.cluster.GetRing(ctx, &carillonv1.GetRingRequest{})
	if err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	ring := ringJSON{Shards: resp.GetShards(), Members: list(resp.GetMembers(), func(m *carillonv1.RingMember) memberJSON {
		return memberJSON{m.GetKey(), m.GetEndpoint(), append([]int32{}, m.GetFirst()...), append([]int32{}, m.GetSecond()...)}
	})}
	return c.print(a, ring, func() {
		fmt.Fprintf(a.stdout, "%s on %s\n", plural(int(ring.Shards), "shard"), plural(len(ring.Members), "controller"))
		a.table([]string{"controller", "endpoint", "owns first", "owns second"}, list(ring.Members, func(m memberJSON) []string {
			return []string{m.Key, m.Endpoint, fmt.Sprint(len(m.First)), fmt.Sprint(len(m.Second))}
		}))
	})
}
