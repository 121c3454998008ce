-- name: InsertTrigger :one
INSERT INTO carillon.triggers (key, tenant, domain, kind, arguments, time_zone, worker, ref, queue_id, priority, max_attempts, backoff_ms, backoff_max_ms,
    timeout_ms, message, options, debounce, debounce_ms, secret, created_by, epoch, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, sqlc.arg(now)::timestamptz, sqlc.arg(now)::timestamptz)
RETURNING id;

-- name: BumpEpoch :one
-- The last lock of a change of an event trigger, before its commit: others wait for it.
UPDATE carillon.trigger_epoch SET n = n + 1 RETURNING n;

-- name: GetTrigger :one
-- Deleted ones are found by who asks for them. All that read a trigger share one row.
SELECT sqlc.embed(t), COALESCE(c.id, 0)::bigint AS cron_job_id, COALESCE(c.schedule, '')::text AS schedule, c.next_execution::timestamptz AS next_execution,
    c.paused_at::timestamptz AS paused_at, COALESCE(n.paused, '')::text AS paused_note
FROM carillon.triggers t LEFT JOIN carillon.cron_jobs c ON c.trigger_id = t.id LEFT JOIN carillon.cron_job_notes n ON n.cron_job_id = c.id
WHERE t.key = sqlc.arg(key)::text AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(deleted)::bool OR t.deleted_at IS NULL);

-- name: GetTriggerByID :one
SELECT sqlc.embed(t), COALESCE(c.id, 0)::bigint AS cron_job_id, COALESCE(c.schedule, '')::text AS schedule, c.next_execution::timestamptz AS next_execution,
    c.paused_at::timestamptz AS paused_at, COALESCE(n.paused, '')::text AS paused_note
FROM carillon.triggers t LEFT JOIN carillon.cron_jobs c ON c.trigger_id = t.id LEFT JOIN carillon.cron_job_notes n ON n.cron_job_id = c.id
WHERE t.id = sqlc.arg(id)::bigint;

-- name: ListTriggers :many
-- By tenant (all: in order of id, for the admin) and keyset; workers by the name that they were given, or by their ref.
SELECT sqlc.embed(t), COALESCE(c.id, 0)::bigint AS cron_job_id, COALESCE(c.schedule, '')::text AS schedule, c.next_execution::timestamptz AS next_execution,
    c.paused_at::timestamptz AS paused_at, COALESCE(n.paused, '')::text AS paused_note
FROM carillon.triggers t LEFT JOIN carillon.cron_jobs c ON c.trigger_id = t.id LEFT JOIN carillon.cron_job_notes n ON n.cron_job_id = c.id
WHERE t.deleted_at IS NULL AND t.id > sqlc.arg(after)::bigint AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant)::text)
  AND (cardinality(sqlc.arg(kinds)::text[]) = 0 OR t.kind::text = ANY (sqlc.arg(kinds)::text[]))
  AND (cardinality(sqlc.arg(workers)::text[]) = 0 OR t.worker = ANY (sqlc.arg(workers)::text[]) OR t.ref = ANY (sqlc.arg(workers)::text[]))
ORDER BY t.id
LIMIT sqlc.arg(page)::int;

-- name: ListTriggerMessages :many
-- What the triggers of a worker say, by keyset; a page ends before it has too many bytes.
SELECT m.id, m.key, m.message FROM (
    SELECT t.id, t.key, t.message, sum(octet_length(t.message)) OVER (ORDER BY t.id) AS bytes, row_number() OVER (ORDER BY t.id) AS place
    FROM carillon.triggers t
    WHERE t.deleted_at IS NULL AND t.tenant = sqlc.arg(tenant)::text AND t.id > sqlc.arg(after)::bigint
      AND (t.worker = ANY (sqlc.arg(workers)::text[]) OR t.ref = ANY (sqlc.arg(workers)::text[]))
    ORDER BY t.id LIMIT sqlc.arg(page)::int
) m
WHERE m.place = 1 OR m.bytes <= sqlc.arg(max_bytes)::bigint
ORDER BY m.id;

-- name: LockTriggerRow :many
-- The cron job of a trigger, locked before the trigger itself, as a firing locks them; none for kinds that the clock does
-- not fire.
SELECT c.* FROM carillon.cron_jobs c
WHERE c.trigger_id = (SELECT t.id FROM carillon.triggers t WHERE t.key = sqlc.arg(key)::text AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant)::text))
FOR NO KEY UPDATE;

-- name: GetPausedNote :one
SELECT COALESCE((SELECT n.paused FROM carillon.cron_job_notes n WHERE n.cron_job_id = sqlc.arg(cron_job_id)::bigint), '')::text AS note;

-- name: LockTrigger :one
SELECT t.* FROM carillon.triggers t
WHERE t.key = sqlc.arg(key)::text AND (sqlc.arg(tenant)::text = '' OR t.tenant = sqlc.arg(tenant)::text) AND t.deleted_at IS NULL
FOR NO KEY UPDATE;

-- name: UpdateTrigger :exec
-- What a patch may change; the caller holds the row's lock.
UPDATE carillon.triggers SET arguments = sqlc.arg(arguments), message = sqlc.arg(message), last_error = sqlc.narg(last_error), epoch = sqlc.arg(epoch), rev = rev + 1,
    updated_at = clock_timestamp()
WHERE id = sqlc.arg(id);

-- name: RemoveTrigger :exec
-- An open window of it makes nothing any more.
WITH windows AS (
    DELETE FROM carillon.debounces WHERE trigger_id = sqlc.arg(id)::bigint
)
UPDATE carillon.triggers SET deleted_at = clock_timestamp(), updated_at = clock_timestamp(), rev = rev + 1, epoch = sqlc.arg(epoch)::bigint WHERE id = sqlc.arg(id)::bigint;

-- name: ForgetTriggers :execrows
-- Triggers that were deleted a while ago, with their cron jobs; the ledger of their slots stays with its day.
DELETE FROM carillon.triggers WHERE id IN (
    SELECT id FROM carillon.triggers WHERE deleted_at < now() - make_interval(secs => sqlc.arg(keep_secs)::float8)
    ORDER BY deleted_at LIMIT sqlc.arg(page)::int FOR UPDATE SKIP LOCKED);

-- name: ListTriggerJobs :many
-- Live jobs of a trigger, the newest first, with what they carry. Shares its row with GetJob.
SELECT j.id, j.salt, q.tenant, q.ref, j.state::text AS state, j.priority, j.due_at::timestamptz AS due_at, j.created_at::timestamptz AS created_at,
    j.started_at::timestamptz AS started_at, NULLIF(j.due_at, j.due_at)::timestamptz AS ended_at, j.expires_at::timestamptz AS expires_at, j.slot::timestamptz AS slot,
    j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.run_id, COALESCE(j.controller, '')::text AS controller,
    COALESCE(j.parent_id, 0)::bigint AS parent_id, COALESCE(j.parent_salt, 0)::int AS parent_salt, j.children::int AS children, COALESCE(j.progress, '')::text AS progress, j.tags, j.payload::bytea AS payload, ''::bytea AS output,
    j.errors, j.cancelled::bool AS cancelled, COALESCE(j.trigger_id, 0)::bigint AS trigger_id, j.envelope
FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
WHERE j.trigger_id = sqlc.arg(trigger_id)::bigint
ORDER BY j.created_at DESC, j.id DESC LIMIT sqlc.arg(page)::int;

-- name: ListTriggerHistory :many
-- Ended jobs of a trigger, the newest first; the index has them by state. Shares its row with GetJob.
SELECT h.id, h.salt, q.tenant, q.ref, h.state::text AS state, h.priority, h.due_at::timestamptz AS due_at, h.created_at::timestamptz AS created_at,
    h.started_at::timestamptz AS started_at, h.ended_at::timestamptz AS ended_at, h.expires_at::timestamptz AS expires_at, h.slot::timestamptz AS slot,
    h.attempt, h.max_attempts, h.backoff_ms, h.backoff_max_ms, h.timeout_ms, h.run_id, COALESCE(h.controller, '')::text AS controller,
    COALESCE(h.parent_id, 0)::bigint AS parent_id, COALESCE(h.parent_salt, 0)::int AS parent_salt, 0::int AS children, COALESCE(h.progress, '')::text AS progress, h.tags, h.payload::bytea AS payload, COALESCE(h.output, ''::bytea) AS output,
    h.errors, (h.state = 'cancelled')::bool AS cancelled, COALESCE(h.trigger_id, 0)::bigint AS trigger_id, (h.envelope - '{event,payload}'::text[])::jsonb AS envelope
FROM (VALUES ('succeeded'::carillon.job_status), ('failed'), ('cancelled')) s (state)
CROSS JOIN LATERAL (
    SELECT e.* FROM carillon.job_history e WHERE e.trigger_id = sqlc.arg(trigger_id)::bigint AND e.state = s.state
    ORDER BY e.created_at DESC, e.id DESC LIMIT sqlc.arg(page)::int
) h
JOIN carillon.queues q ON q.id = h.queue_id
ORDER BY h.created_at DESC, h.id DESC LIMIT sqlc.arg(page)::int;

-- name: ListTriggerRan :many
-- What the state of triggers is made of, the oldest first: of each trigger the newest live job, the newest ended one of each
-- state, and the newest that somebody asked for. Each is one step of an index per partition, however many there were.
SELECT t.id AS trigger_id, t.key, COALESCE(r.id, 0)::bigint AS id, COALESCE(r.salt, 0)::int AS salt, COALESCE(r.state::text, '')::text AS state, COALESCE(r.attempt, 0)::int AS attempt,
    COALESCE((r.errors -> 0 ->> 'started')::timestamptz, r.started_at)::timestamptz AS started_at, -- of the first attempt
   
    COALESCE(r.manual, false)::bool AS manual, COALESCE(r.errors -> -1 ->> 'text', '')::text AS error,
    COALESCE(r.errors -> -1 ->> 'verdict', '')::text AS verdict
FROM carillon.triggers t
LEFT JOIN LATERAL (
    (SELECT j.id, j.salt, j.state, j.attempt, j.started_at, j.created_at, j.errors, COALESCE((j.envelope ->> 'manual') = 'true', false) AS manual
     FROM carillon.jobs j WHERE j.trigger_id = t.id ORDER BY j.created_at DESC, j.id DESC LIMIT 1)
    UNION
    (SELECT j.id, j.salt, j.state, j.attempt, j.started_at, j.created_at, j.errors, true
     FROM carillon.jobs j WHERE j.trigger_id = t.id AND (j.envelope ->> 'manual') = 'true' ORDER BY j.created_at DESC, j.id DESC LIMIT 1)
    UNION
    (SELECT h.id, h.salt, h.state, h.attempt, h.started_at, h.created_at, h.errors, COALESCE((h.envelope ->> 'manual') = 'true', false)
     FROM carillon.job_history h WHERE h.trigger_id = t.id AND h.state = 'succeeded' ORDER BY h.created_at DESC, h.id DESC LIMIT 1)
    UNION
    (SELECT h.id, h.salt, h.state, h.attempt, h.started_at, h.created_at, h.errors, COALESCE((h.envelope ->> 'manual') = 'true', false)
     FROM carillon.job_history h WHERE h.trigger_id = t.id AND h.state = 'failed' ORDER BY h.created_at DESC, h.id DESC LIMIT 1)
    UNION
    (SELECT h.id, h.salt, h.state, h.attempt, h.started_at, h.created_at, h.errors, COALESCE((h.envelope ->> 'manual') = 'true', false)
     FROM carillon.job_history h WHERE h.trigger_id = t.id AND h.state = 'cancelled' ORDER BY h.created_at DESC, h.id DESC LIMIT 1)
    UNION
    (SELECT h.id, h.salt, h.state, h.attempt, h.started_at, h.created_at, h.errors, true
     FROM carillon.job_history h WHERE h.trigger_id = t.id AND (h.envelope ->> 'manual') = 'true' ORDER BY h.created_at DESC, h.id DESC LIMIT 1)
) r ON true
WHERE t.id = ANY (sqlc.arg(ids)::bigint[])
ORDER BY t.id, r.created_at, r.id;

-- name: InsertClientJob :one
-- A job that its client runs: nobody claims it and no sweep of runs knows it, for it is neither ready nor running; its run
-- is one all the same, with a deadline.
INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, started_at, deadline_at, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload, state, run_id,
    attempt, trigger_id, envelope)
SELECT a.id, sqlc.arg(queue_id)::int, (a.id % 1021)::int, sqlc.arg(salt)::int, now(), now(), now() + make_interval(secs => sqlc.arg(timeout_ms)::int / 1000.0), sqlc.arg(max_attempts)::int, sqlc.arg(backoff_ms)::int,
    sqlc.arg(backoff_max_ms)::int, sqlc.arg(timeout_ms)::int, sqlc.arg(priority)::smallint, sqlc.arg(payload)::bytea, 'blocked', sqlc.arg(run_id)::uuid, 1,
    NULLIF(sqlc.arg(trigger_id)::bigint, 0), sqlc.arg(envelope)::jsonb
FROM (SELECT sqlc.arg(id)::bigint AS id) a
RETURNING id;

-- name: EndClientJob :one
-- What its client says became of a job, once.
WITH gone AS (
    DELETE FROM carillon.jobs j USING carillon.queues q
    WHERE j.id = sqlc.arg(id)::bigint AND j.salt = sqlc.arg(salt)::int AND q.id = j.queue_id AND q.ref = 'client'
      AND j.state = 'blocked' AND j.run_id IS NOT NULL AND NOT j.cancelled
    RETURNING j.*
)
INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, expires_at, slot, parent_id, parent_salt, cron_job_id, run_deployment, queue_id, salt,
    attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, state, run_id, controller, progress, tags, payload, errors, trigger_id, envelope)
SELECT g.id, now(), g.created_at, g.due_at, g.started_at, g.expires_at, g.slot, g.parent_id, g.parent_salt, g.cron_job_id, g.run_deployment, g.queue_id, g.salt,
    g.attempt, g.max_attempts, g.backoff_ms, g.backoff_max_ms, g.timeout_ms, g.priority, sqlc.arg(state)::text::carillon.job_status, g.run_id, g.controller, g.progress,
    g.tags, g.payload, CASE WHEN sqlc.arg(state)::text = 'succeeded' THEN g.errors ELSE carillon.add_error(g.errors,
        jsonb_build_object('at', now(), 'attempt', g.attempt, 'run', g.run_id, 'verdict', 'failed', 'text', sqlc.arg(text)::text)) END,
    g.trigger_id, g.envelope - '{event,payload}'::text[]
FROM gone g
RETURNING id;

-- name: EndLateClientJobs :execrows
-- Fails jobs of clients that did not say in time how it went. Read by their queues: an index of deadlines would cost every
-- claim its HOT update.
WITH late AS (
    SELECT j.id FROM carillon.jobs j
    WHERE j.id = ANY (ARRAY(
        SELECT w.id FROM carillon.queues q
        CROSS JOIN LATERAL (
            SELECT v.id FROM carillon.jobs v
            WHERE v.queue_id = q.id AND v.state = 'blocked' AND v.run_id IS NOT NULL AND NOT v.cancelled AND v.deadline_at < now()
            ORDER BY v.due_at, v.id LIMIT sqlc.arg(page)::int
        ) w
        WHERE q.ref = 'client' LIMIT sqlc.arg(page)::int))
    ORDER BY j.id FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM carillon.jobs j USING late l
    WHERE j.id = l.id AND j.state = 'blocked' AND j.run_id IS NOT NULL AND NOT j.cancelled AND j.deadline_at < now()
    RETURNING j.*
)
INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, expires_at, slot, parent_id, parent_salt, cron_job_id, run_deployment, queue_id, salt,
    attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, state, run_id, controller, progress, tags, payload, errors, trigger_id, envelope)
SELECT g.id, now(), g.created_at, g.due_at, g.started_at, g.expires_at, g.slot, g.parent_id, g.parent_salt, g.cron_job_id, g.run_deployment, g.queue_id, g.salt,
    g.attempt, g.max_attempts, g.backoff_ms, g.backoff_max_ms, g.timeout_ms, g.priority, 'failed', g.run_id, g.controller, g.progress, g.tags, g.payload,
    carillon.add_error(g.errors, jsonb_build_object('at', now(), 'attempt', g.attempt, 'run', g.run_id, 'verdict', 'timed_out', 'text', 'context deadline exceeded')),
    g.trigger_id, g.envelope - '{event,payload}'::text[]
FROM gone g;

-- name: ListQueueJobs :many
-- Live jobs of a tenant in order of their due time, by keyset, each queue from its index; a page ends before it has too many
-- bytes of requests. Shares its row with GetJob.
SELECT j.id, j.salt, j.tenant, j.ref, j.state::text AS state, j.priority, j.due_at::timestamptz AS due_at, j.created_at::timestamptz AS created_at,
    j.started_at::timestamptz AS started_at, NULLIF(j.due_at, j.due_at)::timestamptz AS ended_at, j.expires_at::timestamptz AS expires_at, j.slot::timestamptz AS slot,
    j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.run_id, COALESCE(j.controller, '')::text AS controller,
    COALESCE(j.parent_id, 0)::bigint AS parent_id, COALESCE(j.parent_salt, 0)::int AS parent_salt, j.children::int AS children, COALESCE(j.progress, '')::text AS progress, j.tags, j.payload::bytea AS payload, ''::bytea AS output,
    j.errors, j.cancelled::bool AS cancelled, COALESCE(j.trigger_id, 0)::bigint AS trigger_id, j.envelope
FROM (
    SELECT w.*, q.tenant, q.ref,
        sum(octet_length(w.payload) + COALESCE(pg_column_size(w.envelope), 0)) OVER (ORDER BY w.due_at, w.id) AS bytes, row_number() OVER (ORDER BY w.due_at, w.id) AS place
    FROM carillon.queues q
    CROSS JOIN LATERAL (
        SELECT v.* FROM carillon.jobs v WHERE v.queue_id = q.id AND (v.due_at, v.id + 0) > (sqlc.arg(after_due)::timestamptz, sqlc.arg(after_id)::bigint)
        ORDER BY v.due_at, v.id + 0 LIMIT sqlc.arg(page)::int
    ) w
    WHERE q.tenant = sqlc.arg(tenant)::text AND sqlc.arg(ref)::text IN ('', q.ref)
    ORDER BY w.due_at, w.id LIMIT sqlc.arg(page)::int
) j
WHERE j.place = 1 OR j.bytes <= sqlc.arg(max_bytes)::bigint
ORDER BY j.due_at, j.id;

-- name: ListTenantQueues :many
SELECT q.id, q.ref FROM carillon.queues q WHERE q.tenant = sqlc.arg(tenant)::text ORDER BY q.ref, q.id;

-- name: FindKept :many
-- The newest jobs of one worker in some states, of which a purge leaves so many: what comes after them may go.
SELECT h.created_at::timestamptz AS created_at, h.id
FROM (SELECT unnest(sqlc.arg(queue_ids)::int[]) AS queue_id) q
CROSS JOIN (SELECT unnest(sqlc.arg(states)::text[])::carillon.job_status AS state) s
CROSS JOIN LATERAL (
    SELECT e.created_at, e.id FROM carillon.job_history e
    WHERE e.queue_id = q.queue_id AND e.state = s.state AND e.envelope IS NOT NULL
    ORDER BY e.created_at DESC, e.id DESC LIMIT sqlc.arg(keep)::int
) h
ORDER BY h.created_at DESC, h.id DESC
OFFSET sqlc.arg(keep)::int - 1 LIMIT 1;

-- name: FindPurgeable :many
-- Ended jobs of one queue and state, oldest first, by keyset: those made before a time, and before the oldest that is kept.
SELECT e.created_at::timestamptz AS created_at, e.id, e.ended_at::timestamptz AS ended_at FROM carillon.job_history e
WHERE e.queue_id = sqlc.arg(queue_id)::int AND e.state = sqlc.arg(state)::text::carillon.job_status AND e.envelope IS NOT NULL
  AND e.created_at < sqlc.arg(before)::timestamptz AND (e.created_at, e.id) < (sqlc.arg(kept_at)::timestamptz, sqlc.arg(kept_id)::bigint)
  AND (e.created_at, e.id) > (sqlc.arg(after_at)::timestamptz, sqlc.arg(after_id)::bigint)
ORDER BY e.created_at, e.id
LIMIT sqlc.arg(page)::int;

-- name: PurgeJobs :execrows
-- Between the ends of the first and the last of them, so that only the partitions of these days are looked at.
DELETE FROM carillon.job_history h
USING (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(ends)::timestamptz[]) AS ended_at) a
WHERE h.id = a.id AND h.ended_at = a.ended_at AND h.ended_at >= sqlc.arg(first_end)::timestamptz AND h.ended_at <= sqlc.arg(last_end)::timestamptz;
