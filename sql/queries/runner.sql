-- name: RegisterRunner :exec
-- A runner of the same endpoint that came before is gone: two processes cannot share an address.
WITH gone AS (
    DELETE FROM carillon.runners WHERE endpoint = sqlc.arg(endpoint)::text AND key <> sqlc.arg(key)::text
)
INSERT INTO carillon.runners (key, deployment_id, endpoint, capacity, stream)
VALUES (sqlc.arg(key)::text, sqlc.arg(deployment_id)::bigint, sqlc.arg(endpoint)::text, sqlc.arg(capacity)::int, sqlc.arg(stream)::bool)
ON CONFLICT (key) DO UPDATE SET heartbeat_at = now(), deployment_id = excluded.deployment_id, endpoint = excluded.endpoint,
    capacity = excluded.capacity, stream = excluded.stream;

-- name: BeatRunner :one
WITH beat AS (
    UPDATE carillon.runners SET heartbeat_at = now() WHERE key = sqlc.arg(key)::text RETURNING deployment_id
)
SELECT COALESCE(m.deployment_id = beat.deployment_id, false)::bool AS active
FROM beat JOIN carillon.deployments d ON d.id = beat.deployment_id JOIN carillon.modules m ON m.id = d.module_id;

-- name: DeregisterRunner :execrows
DELETE FROM carillon.runners WHERE key = $1;

-- name: ListRunners :many
-- The live runners; a table of a few rows, read once a second by each controller.
SELECT sqlc.embed(r), d.key AS deployment
FROM carillon.runners r JOIN carillon.deployments d ON d.id = r.deployment_id
WHERE r.heartbeat_at > now() - make_interval(secs => sqlc.arg(silence_secs)::float8)
ORDER BY r.key;

-- name: ForgetRunners :execrows
DELETE FROM carillon.runners WHERE heartbeat_at < now() - interval '10 minutes';
