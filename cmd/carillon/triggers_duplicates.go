package main

import (
	"fmt"
	"slices"
	"strings"

	"carillon/backend/core/trigger"
	carillonv1 "carillon/proto/carillon/v1"
)

// duplicates groups triggers that do the same, each group and all of them by age. Who has no like is in none.
func duplicates(all []*carillonv1.Trigger) (groups [][]*carillonv1.Trigger) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *carillonv1.Trigger) int {
		return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime())
	})
	near := map[string][]int{} // groups that may be alike: what is long is compared with few
	for _, t := range all {
		key := strings.Join([]string{t.GetTenant(), t.GetWorker(), t.GetArguments(), string(t.GetMessage())}, "\x00")
		at := slices.IndexFunc(near[key], func(g int) bool { return trigger.Duplicates(triggerNoun(groups[g][0]), triggerNoun(t)) })
		if at < 0 {
			near[key] = append(near[key], len(groups))
			groups = append(groups, []*carillonv1.Trigger{t})
			continue
		}
		g := near[key][at]
		groups[g] = append(groups[g], t)
	}
	return slices.DeleteFunc(groups, func(g []*carillonv1.Trigger) bool { return len(g) < 2 })
}

// triggerNoun is what the duplicate report compares of a trigger. A debounce counts by its length.
func triggerNoun(t *carillonv1.Trigger) trigger.Trigger {
	return trigger.Trigger{
		Tenant: t.GetTenant(), Domain: t.GetDomain(), Kind: trigger.Kind(t.GetKind()), Arguments: t.GetArguments(), TimeZone: zoneName(t.GetTimeZone()),
		Worker: t.GetWorker(), Message: t.GetMessage(), Debounce: lengthText(t.GetDebounce()),
	}
}

// printDuplicates lists the groups; the JSON is an array of them, each an array of triggers.
func (c *triggersLsCmd) printDuplicates(a *app, groups [][]*carillonv1.Trigger) error {
	if c.Limit > 0 && len(groups) > c.Limit {
		groups = groups[:c.Limit]
	}
	of := func(g []*carillonv1.Trigger) []triggerJSON { return list(g, triggerRow) }
	return c.print(a, list(groups, of), func() {
		if len(groups) == 0 {
			fmt.Fprintln(a.stderr, "no two triggers do the same")
			return
		}
		var rows [][]string
		for _, g := range groups {
			for i, t := range g {
				like := "-"
				if i > 0 {
					like = g[0].GetId()
				}
				rows = append(rows, []string{t.GetId(), like, clean(t.GetTenant(), 30), zonedText(t), clean(t.GetWorker(), 40), when(t.GetCreatedAt())})
			}
		}
		a.table([]string{"trigger", "same as", "tenant", "text", "worker", "made (UTC)"}, rows)
		fmt.Fprintln(a.stderr, "hint: `carillon triggers rm <id>` removes a younger one; the jobs that it made stay")
	})
}
