package main

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"carillon/backend/core/permission"
	carillonv1 "carillon/proto/carillon/v1"
)

// tokenCmd groups what is about bearer tokens.
type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token of one tenant, and print it: it is shown this once."`
	Ls     tokenLsCmd     `cmd:"" help:"List tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke tokens; within some seconds they open nothing any more."`
}

// tokenJSON is a token for programs.
type tokenJSON struct {
	ID        int64   `json:"id"`
	Name      string  `json:"name"`
	Tenant    string  `json:"tenant"`
	Domain    string  `json:"domain"`
	Kind      string  `json:"kind"`
	Scope     string  `json:"scope"`
	CreatedAt *string `json:"created_at"`
	ExpiresAt *string `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
	UsedAt    *string `json:"used_at"`
	Slug      string  `json:"slug"`
	Trigger   string  `json:"trigger"`
	Secret    string  `json:"secret,omitempty"` // of 'token create'
}

func tokenRow(t *carillonv1.Token) tokenJSON {
	return tokenJSON{
		ID: t.GetId(), Name: t.GetName(), Tenant: t.GetTenant(), Domain: t.GetDomain(), Kind: t.GetKind(), Scope: t.GetScope(), CreatedAt: stamp(t.GetCreatedAt()),
		ExpiresAt: stamp(t.GetExpiresAt()), RevokedAt: stamp(t.GetRevokedAt()), UsedAt: stamp(t.GetUsedAt()), Slug: t.GetSlug(), Trigger: t.GetTrigger(),
	}
}

// tokenCreateCmd makes a token.
type tokenCreateCmd struct {
	listing
	Name    string        `arg:"" help:"What it is for."`
	Tenant  string        `placeholder:"NAME" help:"Whose documents it opens (default: the tenant default)."`
	Domain  string        `placeholder:"NAME" help:"The tenant's domain, as answers show it."`
	Kind    string        `enum:"app,konnector,cli" default:"app" placeholder:"app|konnector|cli" help:"Who holds it: app, konnector or cli (default ${default})."`
	Scope   string        `placeholder:"RULES" help:"What it may do: rules type:VERBS:values:selector, one blank apart; * is everything of the tenant. Nothing without."`
	Slug    string        `placeholder:"NAME" help:"Of an app or a konnector (default: NAME)."`
	Trigger string        `placeholder:"ID" help:"Of a konnector: the one trigger that it runs for (default: each of its slug)."`
	Expires time.Duration `placeholder:"DURATION" help:"It ends so long from now (default: never)."`
}

func (c *tokenCreateCmd) Help() string {
	return `The token goes to the standard output; only a hash of it is kept. A rule's VERBS are GET, POST, PUT, PATCH, DELETE or ALL, its
values those of the selector "worker", or ids without one. To enqueue jobs and to create triggers a rule must name the
worker; only of a token of kind cli * names all of them. To publish an event the rule is on its type: POST for CREATED, PUT or PATCH for UPDATED, DELETE for DELETED.

Examples:

  carillon token create shop --tenant acme --scope "io.cozy.jobs:GET,POST:sendmail:worker io.cozy.triggers"
  carillon token create bank --kind konnector --tenant acme --domain acme.example.org --expires 720h > token
  carillon token create ops --kind cli --tenant acme --scope '*' -o json | jq -r .secret`
}

func (c *tokenCreateCmd) Run(ctx context.Context, a *app, r *remote) error {
	if c.Scope != "" {
		if _, err := permission.ParseGrant(c.Scope); err != nil {
			return usage{mend(fmt.Errorf("--scope: %s", clean(err.Error(), 0)), "write it like \"io.cozy.jobs:POST:sendmail:worker io.cozy.triggers:GET\"")}
		}
	}
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.tokens.CreateToken(ctx, &carillonv1.CreateTokenRequest{
		Name: c.Name, Tenant: c.Tenant, Domain: c.Domain, Kind: c.Kind, Scope: c.Scope, ExpiresIn: optional(c.Expires), Slug: c.Slug, Trigger: c.Trigger,
	})
	if err != nil {
		return fmt.Errorf("create token %s: %w", clean(c.Name, 128), err)
	}
	row := tokenRow(resp.GetToken())
	row.Secret = resp.GetSecret()
	return c.print(a, row, func() {
		fmt.Fprintln(a.stdout, resp.GetSecret())
		until := ""
		if resp.GetToken().GetExpiresAt() != nil {
			until = ", until " + when(resp.GetToken().GetExpiresAt()) + " UTC"
		}
		fmt.Fprintf(a.stderr, "token %d of tenant %s%s; it is not shown again\n", row.ID, clean(row.Tenant, 0), until)
		if row.Scope == "" {
			fmt.Fprintln(a.stderr, "it has no scope: it may do next to nothing")
		}
	})
}

// tokenLsCmd lists tokens.
type tokenLsCmd struct {
	listing
	Tenant string `placeholder:"NAME" help:"Only this tenant."`
	All    bool   `help:"Also the revoked and expired ones."`
}

func (c *tokenLsCmd) Help() string {
	return `The tokens themselves are not kept, and so not shown.

Examples:

  carillon token ls
  carillon token ls --tenant acme --all -o json`
}

func (c *tokenLsCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	resp, err := cl.tokens.ListTokens(ctx, &carillonv1.ListTokensRequest{Tenant: c.Tenant, All: c.All})
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	return c.print(a, list(resp.GetTokens(), tokenRow), func() {
		if len(resp.GetTokens()) == 0 {
			fmt.Fprintln(a.stderr, "no such tokens")
			return
		}
		now := time.Now()
		a.table([]string{"id", "name", "tenant", "kind", "scope", "created (UTC)", "used", "ends"}, list(resp.GetTokens(), func(t *carillonv1.Token) []string {
			ends := when(t.GetExpiresAt())
			if t.GetRevokedAt() != nil {
				ends = a.paint(red, "revoked "+when(t.GetRevokedAt()))
			}
			return []string{fmt.Sprint(t.GetId()), clean(t.GetName(), 40), clean(t.GetTenant(), 30), clean(t.GetKind(), 20), dash(clean(t.GetScope(), 60)),
				when(t.GetCreatedAt()), dash(ago(t.GetUsedAt(), now)), ends}
		}))
	})
}

// tokenRevokeCmd revokes tokens.
type tokenRevokeCmd struct {
	IDs []int64 `arg:"" name:"id" help:"The tokens' numbers, as 'token ls' prints them."`
}

func (c *tokenRevokeCmd) Help() string {
	return `Examples:

  carillon token revoke 7
  carillon token ls --tenant acme -o json | jq .[].id | xargs carillon token revoke`
}

func (c *tokenRevokeCmd) Run(ctx context.Context, a *app, r *remote) error {
	cl, err := r.dial()
	if err != nil {
		return err
	}
	failed := false
	for _, id := range c.IDs {
		_, err := cl.tokens.RevokeToken(ctx, &carillonv1.RevokeTokenRequest{Id: id})
		switch {
		case err == nil:
			fmt.Fprintf(a.stdout, "token %d is revoked\n", id)
			continue
		case connect.CodeOf(err) != connect.CodeNotFound:
			return fmt.Errorf("revoke token %d: %w", id, err)
		}
		failed = true
		fmt.Fprintf(a.stderr, "carillon: revoke token %d: there is none (`carillon token ls --all` lists them)\n", id)
	}
	if failed {
		return silent
	}
	return nil
}
