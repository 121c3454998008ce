package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func named(n int) []Member {
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{Key: fmt.Sprintf("ctl-%d", i), Endpoint: fmt.Sprintf("http://10.0.0.%d:7800", i)}
	}
	return members
}

// sizes are the cluster sizes under test: every small one, and a few up to 50, whose tables are slow to make.
var sizes = []int{0, 1, 2, 3, 4, 5, 7, 8, 12, 20, 50}

func TestEveryShardHasTwoDistinctOwners(t *testing.T) {
	for _, n := range sizes {
		r := New(named(n))
		shares := map[string]int{}
		for shard := range int32(Shards) {
			first, second := r.Owners(shard)
			if (first != "") != (n >= 1) || (second != "") != (n >= 2) || (first != "" && first == second) {
				t.Fatalf("%d members: shard %d has owners %q, %q", n, shard, first, second)
			}
			for owner, role := range map[string]Role{first: FirstOwner, second: SecondOwner} {
				if owner != "" && r.Role(owner, shard) != role {
					t.Fatalf("%d members: role of %s for shard %d is %v, want %v", n, owner, shard, r.Role(owner, shard), role)
				}
			}
			shares[first]++
		}
		var listed, seconds int
		for _, m := range r.Members() {
			if got := len(r.First(m.Key)); got != shares[m.Key] {
				t.Errorf("%d members: First(%s) has %d shards, the table %d", n, m.Key, got, shares[m.Key])
			}
			if most := int(math.Ceil(Shards * 1.25 / float64(n))); shares[m.Key] > most {
				t.Errorf("%d members: %s owns %d shards, want at most %d", n, m.Key, shares[m.Key], most)
			}
			listed += len(r.First(m.Key))
			seconds += len(r.Second(m.Key))
		}
		if n >= 1 && listed != Shards || n >= 2 && seconds != Shards {
			t.Errorf("%d members: first owners have %d shards together, second owners %d, want %d", n, listed, seconds, Shards)
		}
	}
}

func TestEqualSetsGiveEqualRings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 5, 12} {
		want := New(named(n))
		for range 5 {
			members := named(n)
			if n > 0 {
				members = append(members, members[random.IntN(n)], members[random.IntN(n)]) // told twice
			}
			random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			given := slices.Clone(members)
			if got := New(members); !reflect.DeepEqual(got, want) {
				t.Fatalf("%d members: the order, or a double, changed the ring", n)
			}
			if !slices.Equal(given, members) {
				t.Fatalf("%d members: New changed its argument", n)
			}
			if !want.Made(members) {
				t.Errorf("%d members: Made says that the same set would give another ring", n)
			}
		}
		if want.Made(named(n + 1)) {
			t.Errorf("%d members: Made says that one more would change nothing", n)
		}
	}
	moved := named(3)
	moved[1].Endpoint = "http://elsewhere"
	if New(named(3)).Made(moved) {
		t.Error("Made does not see a new endpoint")
	}
}

// The table is part of what controllers of different versions agree on. A change here needs a new shard count or a
// cluster that stops as a whole.
func TestTheTableIsFrozen(t *testing.T) {
	if got, want := []int32{Shard("heartbeat.beat"), Shard("a.b"), Shard("")}, []int32{83, 676, 969}; !slices.Equal(got, want) {
		t.Errorf("shards %v, want %v", got, want)
	}
	r := New(named(12)) // ctl-0..ctl-11: names of which one is the start of another
	var got []string
	for shard := int32(0); shard < Shards; shard += 100 {
		first, second := r.Owners(shard)
		got = append(got, first+" "+second)
	}
	want := []string{
		"ctl-11 ctl-0", "ctl-5 ctl-1", "ctl-9 ctl-1", "ctl-3 ctl-11", "ctl-4 ctl-2", "ctl-8 ctl-10",
		"ctl-3 ctl-0", "ctl-6 ctl-4", "ctl-10 ctl-11", "ctl-2 ctl-7", "ctl-5 ctl-7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("owners %q, want %q", got, want)
	}
}

func TestADeathMovesOnlyTheDeadMembersShards(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 12} {
		members := named(n)
		before := New(members)
		for dead := range members {
			if n > 5 && dead%4 != 1 {
				continue // the tables of large rings take long
			}
			after := New(slices.Delete(slices.Clone(members), dead, dead+1))
			others, partners := 0, map[string]bool{}
			for shard := range int32(Shards) {
				first, second := before.Owners(shard)
				heir, _ := after.Owners(shard)
				if first != members[dead].Key {
					if heir != first {
						others++
					}
					continue
				}
				if heir != second {
					t.Fatalf("%d members: shard %d of the dead %s went to %s, its second owner was %s", n, shard, first, heir, second)
				}
				partners[heir] = true
			}
			if others > Shards*2/100 {
				t.Errorf("%d members: the death of %s moved %d shards that were not its own", n, members[dead].Key, others)
			}
			if want := min(n-1, 4); len(partners) < want {
				t.Errorf("%d members: the share of %s falls on %d others, want at least %d", n, members[dead].Key, len(partners), want)
			}
		}
	}
}

func TestARingWithoutMembersOwnsNothing(t *testing.T) {
	for name, r := range map[string]*Ring{"nil": nil, "empty": New(nil)} {
		first, second := r.Owners(3)
		if first != "" || second != "" || r.Role("", 3) != None || r.Role("ctl-0", 3) != None ||
			len(r.First("ctl-0"))+len(r.Second(""))+len(r.First(""))+len(r.Members()) != 0 || r.Has("ctl-0") {
			t.Errorf("%s ring has owners %q, %q", name, first, second)
		}
	}
	r := New(named(2))
	for _, shard := range []int32{-1, Shards} {
		if first, second := r.Owners(shard); first != "" || second != "" || r.Role("ctl-0", shard) != None {
			t.Errorf("shard %d, which is none, has owners %q, %q", shard, first, second)
		}
	}
	if !r.Has("ctl-1") || r.Has("ctl-2") || r.Has("ctl-") {
		t.Error("Has does not tell members from strangers")
	}
}

func TestRefsSpreadOverShards(t *testing.T) {
	var count [Shards]int
	for i := range 100 * Shards {
		count[Shard(fmt.Sprintf("module%d.verb%d", i%977, i))]++
	}
	if least, most := slices.Min(count[:]), slices.Max(count[:]); least < 55 || most > 155 {
		t.Errorf("of 100 refs per shard on average one has %d and one %d", least, most)
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 10, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			members := named(n)
			for b.Loop() {
				New(members)
			}
		})
	}
}

func BenchmarkRole(b *testing.B) {
	r := New(named(10))
	var shard int32
	for b.Loop() {
		r.Role("ctl-3", shard)
		shard = (shard + 1) % Shards
	}
}
