-- name: LockModule :one
-- First of every transaction that changes a module: one at a time, and modules before cron jobs everywhere.
INSERT INTO carillon.modules (name) VALUES (sqlc.arg(name)::text)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id, deployment_id;

-- name: GetModule :one
SELECT m.id, m.deployment_id FROM carillon.modules m WHERE m.name = $1;

-- name: LockExistingModule :one
SELECT m.id, m.deployment_id FROM carillon.modules m WHERE m.name = $1 FOR NO KEY UPDATE;

-- name: Clock :one
-- The time by which a transaction that holds its locks decides. Its own now() is older than what it waited for: a slot
-- claimed meanwhile would come again.
SELECT clock_timestamp()::timestamptz AS now;

-- name: PutDeployment :one
INSERT INTO carillon.deployments (key, module_id, digest, language, schema)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (module_id, digest) DO UPDATE SET digest = excluded.digest
RETURNING *;

-- name: GetDeployment :one
SELECT * FROM carillon.deployments WHERE id = $1;

-- name: GetDeploymentByDigest :one
SELECT sqlc.embed(d), m.name AS module FROM carillon.deployments d JOIN carillon.modules m ON m.id = d.module_id
WHERE m.name = sqlc.arg(module)::text AND d.digest = sqlc.arg(digest)::text;

-- name: ActivateDeployment :exec
WITH old AS (
    UPDATE carillon.deployments d SET superseded_at = now()
    FROM carillon.modules m
    WHERE m.id = sqlc.arg(module_id)::bigint AND d.id = m.deployment_id AND d.id <> sqlc.arg(id)::bigint
), new AS (
    UPDATE carillon.deployments SET activated_at = now(), superseded_at = NULL, min_replicas = GREATEST(sqlc.arg(min_replicas)::int, 0) WHERE id = sqlc.arg(id)::bigint
)
UPDATE carillon.modules SET deployment_id = sqlc.arg(id)::bigint WHERE id = sqlc.arg(module_id)::bigint;

-- name: ScaleDeployment :exec
UPDATE carillon.deployments SET min_replicas = sqlc.arg(min_replicas)::int WHERE id = sqlc.arg(id)::bigint;

-- name: ListDeployments :many
SELECT sqlc.embed(d), m.name AS module, COALESCE(m.deployment_id = d.id, false)::bool AS active,
       (SELECT count(*) FROM carillon.cron_jobs j WHERE j.deployment_id = d.id AND j.removed_at IS NULL)::bigint AS cron_jobs
FROM carillon.deployments d JOIN carillon.modules m ON m.id = d.module_id
WHERE (sqlc.arg(all_of_them)::bool OR m.deployment_id = d.id OR (d.activated_at IS NULL AND EXISTS (SELECT FROM carillon.runners r WHERE r.deployment_id = d.id)))
  AND (sqlc.arg(module)::text = '' OR m.name = sqlc.arg(module)::text)
ORDER BY m.name, d.id DESC
LIMIT 1000;

-- name: ForgetDeployments :execrows
-- Deployments that never became live and have no runner, after a day.
DELETE FROM carillon.deployments d
WHERE d.activated_at IS NULL AND d.created_at < now() - interval '1 day'
  AND NOT EXISTS (SELECT FROM carillon.runners r WHERE r.deployment_id = d.id)
  AND NOT EXISTS (SELECT FROM carillon.cron_jobs j WHERE j.deployment_id = d.id OR j.run_deployment = d.id);

-- name: ListLiveDeployments :many
-- What every controller keeps of all modules, read each second: the text of a schema comes only when it is not known yet.
SELECT d.id, d.key, m.name AS module, d.min_replicas, CASE WHEN d.id = ANY (sqlc.arg(known)::bigint[]) THEN '' ELSE d.schema END::text AS schema
FROM carillon.modules m JOIN carillon.deployments d ON d.id = m.deployment_id
ORDER BY m.name;

-- name: ListLimits :many
-- The limits of a module's verbs.
SELECT ref, max_running FROM carillon.limits WHERE starts_with(ref, sqlc.arg(module)::text || '.') ORDER BY ref;
