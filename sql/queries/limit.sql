-- name: LockRateLimits :many
-- The meters of these uses, made where they are missing, and locked in one order. A new one has counted nothing.
INSERT INTO carillon.rate_limits AS r (tenant, domain, kind, opened_at, count)
SELECT a.tenant, a.domain, a.kind, clock_timestamp(), 0
FROM (SELECT DISTINCT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(domains)::text[]) AS domain, unnest(sqlc.arg(kinds)::text[]) AS kind ORDER BY 1, 2, 3) a
ON CONFLICT (tenant, domain, kind) DO UPDATE SET count = r.count
RETURNING r.tenant, r.domain, r.kind, r.opened_at, r.count, clock_timestamp()::timestamptz AS now;

-- name: PutRateLimits :exec
-- What the meters show after the uses; the caller holds their locks.
UPDATE carillon.rate_limits r SET opened_at = a.opened_at, count = a.count
FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(domains)::text[]) AS domain, unnest(sqlc.arg(kinds)::text[]) AS kind,
             unnest(sqlc.arg(opened_at)::timestamptz[]) AS opened_at, unnest(sqlc.arg(counts)::int[]) AS count) a
WHERE r.tenant = a.tenant AND r.domain = a.domain AND r.kind = a.kind;

-- name: GiveBackRate :exec
-- One use less in the window that is open, of a request that made nothing.
UPDATE carillon.rate_limits SET count = count - 1
WHERE tenant = sqlc.arg(tenant)::text AND domain = sqlc.arg(domain)::text AND kind = sqlc.arg(kind)::text AND count > 0
  AND opened_at > now() - make_interval(secs => sqlc.arg(window_secs)::float8);

-- name: HasRequest :one
-- Whether a request with this idempotency key came already.
SELECT EXISTS (SELECT FROM carillon.job_keys WHERE tenant = sqlc.arg(tenant)::text AND kind = 'idempotency' AND key = sqlc.arg(key)::text AND expires_at > now());

-- name: ListFiringUses :many
-- Whose limits firings count for, in order of their jobs.
SELECT j.id, t.tenant, t.domain, t.ref FROM carillon.jobs j JOIN carillon.triggers t ON t.id = j.trigger_id
WHERE j.id = ANY (sqlc.arg(job_ids)::bigint[])
ORDER BY j.id;

-- name: DropIdleRateLimits :execrows
-- Meters whose window is long over count nothing.
DELETE FROM carillon.rate_limits WHERE (tenant, domain, kind) IN (
    SELECT tenant, domain, kind FROM carillon.rate_limits WHERE opened_at < now() - interval '2 hours' LIMIT sqlc.arg(page)::int FOR UPDATE SKIP LOCKED);
