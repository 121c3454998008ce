// Package ring says which two controllers look after a shard. A ring is a pure function of the set of live members:
// controllers that see the same members hold the same table, without a word between them.
//
// It must never know clocks, networks or the database, and nothing rests on it but load: two controllers that disagree
// about the ring both try, and the compare-and-set on the row decides. Nothing here fails: no members give a ring
// without owners, and a nil ring is one without members.
package ring

import (
	"cmp"
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Shards is the number of shards, a prime. It stands in the database too, since rows carry their shard: a controller
// built with another number must not join.
const Shards = 1021

// Fixed for good: controllers of one cluster must compute the same table.
const (
	virtualNodes = 40   // per member
	load         = 1.25 // a member owns at most this times its even share
)

// Shard is the shard of a cron job, computed once by its deployer and stored on the row.
func Shard(ref string) int32 { return int32(xxhash.Sum64String(ref) % Shards) }

// Role of a controller for a shard.
type Role int8

const (
	None        Role = iota
	FirstOwner       // tries at the slot
	SecondOwner      // tries a moment later, should the first have failed
)

func (r Role) String() string {
	switch r {
	case FirstOwner:
		return "first"
	case SecondOwner:
		return "second"
	}
	return "none"
}

const nobody = -1

// Ring is immutable, and safe for concurrent use. All methods accept nil.
type Ring struct {
	members []Member
	first   [Shards]int16 // index into members, or nobody
	second  [Shards]int16
}

// New makes the ring of these members, in whatever order they come. Of members with the same key one remains. The
// whole table is computed here: 1.5 ms for 3 members, 3 ms for 10, 150 ms for 50 (one core, BenchmarkNew).
func New(members []Member) *Ring {
	r := &Ring{members: normal(members)}
	nodes := make([]node, len(r.members))
	for i, m := range r.members {
		// The library joins the name with numbers; ending it in a non-digit keeps ctl-1 and ctl-11 apart in any version.
		nodes[i] = node{name: m.Key + "|", index: int16(i)}
	}
	r.first = place(nodes)
	for i := range r.second {
		r.second[i] = nobody
	}
	if len(nodes) < 2 {
		return r
	}
	// The second owner is who would own the shard if the first were gone. So a death moves nothing: the seconds are the
	// firsts of the next ring already, and a dead member's share is spread over many instead of falling on one neighbour.
	for i := range nodes {
		without := place(slices.Delete(slices.Clone(nodes), i, i+1))
		for shard, first := range r.first {
			if first == int16(i) {
				r.second[shard] = without[shard]
			}
		}
	}
	return r
}

// Members are the members in order of key. The caller must not change them.
func (r *Ring) Members() []Member {
	if r == nil {
		return nil
	}
	return r.members
}

// Has says whether the controller is a member.
func (r *Ring) Has(key string) bool {
	_, found := slices.BinarySearchFunc(r.Members(), key, func(m Member, key string) int { return cmp.Compare(m.Key, key) })
	return found
}

// Made says whether New(members) would give this ring, at the cost of a comparison.
func (r *Ring) Made(members []Member) bool {
	return r != nil && slices.Equal(r.members, normal(members))
}

// Owners are the keys of a shard's owners; empty where there are fewer members than that, or for no such shard.
func (r *Ring) Owners(shard int32) (first, second string) {
	if r == nil || shard < 0 || shard >= Shards {
		return "", ""
	}
	return r.key(r.first[shard]), r.key(r.second[shard])
}

// Role of a controller for a shard.
func (r *Ring) Role(key string, shard int32) Role {
	first, second := r.Owners(shard)
	switch {
	case key == "":
		return None
	case key == first:
		return FirstOwner
	case key == second:
		return SecondOwner
	}
	return None
}

// First are the shards that a controller owns first, in order.
func (r *Ring) First(key string) []int32 { return r.shards(key, FirstOwner) }

// Second are the shards that a controller owns second, in order.
func (r *Ring) Second(key string) []int32 { return r.shards(key, SecondOwner) }

func (r *Ring) shards(key string, role Role) []int32 {
	var own []int32
	for shard := range int32(Shards) {
		if r.Role(key, shard) == role {
			own = append(own, shard)
		}
	}
	return own
}

func (r *Ring) key(index int16) string {
	if index == nobody {
		return ""
	}
	return r.members[index].Key
}

// place gives each shard its owner among these nodes. The library is always built from the whole set, never by adding
// and removing, so that the table depends on nothing but the set.
func place(nodes []node) (owners [Shards]int16) {
	members := make([]consistent.Member, len(nodes))
	for i, n := range nodes {
		members[i] = n
	}
	c := consistent.New(members, consistent.Config{
		Hasher: hasher{}, PartitionCount: Shards, ReplicationFactor: virtualNodes, Load: load,
	})
	for shard := range owners {
		owners[shard] = nobody
		if n, ok := c.GetPartitionOwner(shard).(node); ok {
			owners[shard] = n.index
		}
	}
	return owners
}

type node struct {
	name  string
	index int16
}

func (n node) String() string { return n.name }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
