-- name: ListRuns :many
-- The ledger, latest end first, by keyset on the index (ended_at, cron_job_id, slot).
SELECT sqlc.embed(r), j.ref, COALESCE(d.key, '')::text AS deployment
FROM carillon.runs r
JOIN carillon.cron_jobs j ON j.id = r.cron_job_id
LEFT JOIN carillon.modules m ON m.id = j.module_id
LEFT JOIN carillon.deployments d ON d.id = r.deployment_id
WHERE (sqlc.arg(ref)::text = '' OR j.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(module)::text = '' OR m.name = sqlc.arg(module)::text)
  AND (sqlc.arg(controller)::text = '' OR r.controller = sqlc.arg(controller)::text)
  AND (cardinality(sqlc.arg(verdicts)::text[]) = 0 OR r.verdict::text = ANY (sqlc.arg(verdicts)::text[]))
  AND r.slot_to >= sqlc.arg(slot_from)::timestamptz AND r.slot < sqlc.arg(slot_until)::timestamptz
  AND (r.ended_at, r.cron_job_id, r.slot) < (sqlc.arg(before_end)::timestamptz, sqlc.arg(before_id)::bigint, sqlc.arg(before_slot)::timestamptz)
ORDER BY r.ended_at DESC, r.cron_job_id DESC, r.slot DESC
LIMIT sqlc.arg(page)::int;

-- name: ListHistory :many
-- The ledger of one cron job, latest slot first, by its primary key.
SELECT sqlc.embed(r), j.ref, COALESCE(d.key, '')::text AS deployment
FROM carillon.runs r
JOIN carillon.cron_jobs j ON j.id = r.cron_job_id
LEFT JOIN carillon.deployments d ON d.id = r.deployment_id
WHERE r.cron_job_id = sqlc.arg(cron_job_id)::bigint AND r.slot < sqlc.arg(before_slot)::timestamptz
ORDER BY r.slot DESC
LIMIT sqlc.arg(page)::int;

-- name: ListRunsSince :many
-- What a watcher may not have seen yet, oldest end first, by keyset: all rows of one statement share ended_at, so a time
-- alone cannot say where a page ended. The caller overlaps its windows, since statements that began earlier may commit
-- later.
SELECT sqlc.embed(r), j.ref, COALESCE(d.key, '')::text AS deployment
FROM carillon.runs r
JOIN carillon.cron_jobs j ON j.id = r.cron_job_id
LEFT JOIN carillon.modules m ON m.id = j.module_id
LEFT JOIN carillon.deployments d ON d.id = r.deployment_id
WHERE (r.ended_at, r.cron_job_id, r.slot) > (sqlc.arg(after_end)::timestamptz, sqlc.arg(after_id)::bigint, sqlc.arg(after_slot)::timestamptz)
  AND (sqlc.arg(ref)::text = '' OR j.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(module)::text = '' OR m.name = sqlc.arg(module)::text)
ORDER BY r.ended_at, r.cron_job_id, r.slot
LIMIT sqlc.arg(page)::int;

-- name: ListExecuting :many
-- The runs in flight, latest start first, by keyset.
SELECT sqlc.embed(j), COALESCE(d.key, '')::text AS deployment
FROM carillon.cron_jobs j
JOIN carillon.modules m ON m.id = j.module_id
LEFT JOIN carillon.deployments d ON d.id = j.run_deployment
WHERE j.state = 'executing'
  AND (sqlc.arg(ref)::text = '' OR j.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(module)::text = '' OR m.name = sqlc.arg(module)::text)
  AND (sqlc.arg(controller)::text = '' OR j.controller = sqlc.arg(controller)::text)
  AND j.run_slot >= sqlc.arg(slot_from)::timestamptz AND j.run_slot < sqlc.arg(slot_until)::timestamptz
  AND (j.started_at, j.id) < (sqlc.arg(before_start)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY j.started_at DESC, j.id DESC
LIMIT sqlc.arg(page)::int;

-- name: CreateRunPartitions :one
SELECT carillon.create_run_partitions(sqlc.arg(ahead)::int)::int;

-- name: DropRunPartitions :one
SELECT carillon.drop_run_partitions(sqlc.arg(keep)::int)::int;

-- name: FindOverlaps :many
-- Ledger rows of one cron job whose slots overlap: must be none. Shared by the tests and `carillon doctor`.
SELECT cron_job_id, slot, slot_to, prev_to FROM (
    SELECT r.cron_job_id, r.slot, r.slot_to,
           (max(r.slot_to) OVER (PARTITION BY r.cron_job_id ORDER BY r.slot ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))::timestamptz AS prev_to
    FROM carillon.runs r
    WHERE r.kind = 'slot' AND (r.slot >= sqlc.arg(since)::timestamptz OR (r.run_id IS NULL AND r.slot_to >= sqlc.arg(since)::timestamptz))
) o
WHERE prev_to >= slot
LIMIT 100;

-- name: CountWedged :one
-- The scanners' figures, which must be 0: enabled and due for long while idle; executing past its lease.
SELECT
    (count(*) FILTER (WHERE j.enabled AND j.state = 'idle' AND j.next_execution < now() - make_interval(secs => sqlc.arg(wedged_secs)::float8)))::bigint AS overdue,
    (count(*) FILTER (WHERE j.state = 'executing' AND (j.deadline_at < now() - make_interval(secs => sqlc.arg(wedged_secs)::float8)
        OR NOT EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller
             AND c.heartbeat_at >= now() - make_interval(secs => sqlc.arg(wedged_secs)::float8)))))::bigint AS stuck,
    (count(*) FILTER (WHERE j.set_aside_at IS NOT NULL AND j.removed_at IS NULL))::bigint AS set_aside
FROM carillon.cron_jobs j;
