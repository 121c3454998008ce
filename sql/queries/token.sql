-- name: PutToken :one
INSERT INTO carillon.tokens (name, hash, tenant, domain, kind, slug, trigger_key, scope, expires_at)
VALUES (sqlc.arg(name)::text, sqlc.arg(hash)::bytea, sqlc.arg(tenant)::text, sqlc.arg(domain)::text, sqlc.arg(kind)::text, sqlc.arg(slug)::text,
    sqlc.arg(trigger_key)::text, sqlc.arg(scope)::text, sqlc.narg(expires_at)::timestamptz)
RETURNING *;

-- name: FindToken :one
SELECT * FROM carillon.tokens WHERE hash = sqlc.arg(hash)::bytea AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: ListTokens :many
SELECT * FROM carillon.tokens
WHERE sqlc.arg(tenant)::text IN ('', tenant) AND (sqlc.arg(every)::bool OR revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
ORDER BY id LIMIT sqlc.arg(page)::int;

-- name: RevokeToken :execrows
UPDATE carillon.tokens SET revoked_at = COALESCE(revoked_at, now()) WHERE id = sqlc.arg(id)::bigint;

-- name: TouchToken :exec
-- Written at most once a minute, however often the token is used.
UPDATE carillon.tokens SET used_at = now() WHERE id = sqlc.arg(id)::bigint AND (used_at IS NULL OR used_at < now() - interval '1 minute');
