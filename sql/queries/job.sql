-- name: PutQueues :exec
-- Makes sure that queues exist, paused and limited as what covers them. The caller holds LockQueues, so that a pause or a
-- limit that comes in the same instant covers them, too.
INSERT INTO carillon.queues (tenant, ref, lane, paused_at, limited)
SELECT a.tenant, a.ref, a.lane, (SELECT min(p.paused_at) FROM carillon.pauses p WHERE p.tenant IN ('', a.tenant) AND p.ref IN ('', a.ref)),
       EXISTS (SELECT FROM carillon.limits l WHERE l.ref = a.ref)
FROM (SELECT DISTINCT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(refs)::text[]) AS ref, unnest(sqlc.arg(lanes)::smallint[]) AS lane ORDER BY 1, 2, 3) a
ON CONFLICT (tenant, ref, lane) DO NOTHING;

-- name: GetQueues :many
SELECT q.id, q.tenant, q.ref, q.lane, q.paused_at, COALESCE(l.max_running, 0)::int AS max_running, COALESCE(l.running, 0)::int AS running
FROM (SELECT DISTINCT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(refs)::text[]) AS ref, unnest(sqlc.arg(lanes)::smallint[]) AS lane) a
JOIN carillon.queues q ON q.tenant = a.tenant AND q.ref = a.ref AND q.lane = a.lane
LEFT JOIN carillon.limits l ON l.ref = q.ref
ORDER BY q.id;

-- name: ShareQueues :exec
-- Held by who makes queues: many may.
SELECT pg_advisory_xact_lock_shared(hashtext('carillon.queues'));

-- name: LockQueues :one
-- Held by who pauses, resumes or limits queues that are there and that come later. Tried, and not waited for: behind who
-- waits nobody could make a queue, and an application may have made one in a transaction that goes on for long.
SELECT pg_try_advisory_xact_lock(hashtext('carillon.queues'));

-- name: ListQueues :many
SELECT q.id, q.tenant, q.ref, q.lane, q.paused_at, COALESCE(l.max_running, 0)::int AS max_running, COALESCE(l.running, 0)::int AS running
FROM carillon.queues q LEFT JOIN carillon.limits l ON l.ref = q.ref
ORDER BY q.id;

-- name: PutJobKeys :many
-- Takes the keys of a batch; those that come back are ours, the others are held by a job that came before. It waits for
-- who takes or frees the same key at this moment, and DO NOTHING leaves no lock on a key that is held, so that an end
-- that frees keys never waits for it. A key must not stand twice in one batch.
INSERT INTO carillon.job_keys (tenant, kind, key, job_id, salt, hash, expires_at)
SELECT a.tenant, sqlc.arg(kind)::text, a.key, a.job_id, a.salt, a.hash, CASE WHEN a.keep_ms > 0 THEN now() + make_interval(secs => a.keep_ms / 1000.0) END
FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(job_ids)::bigint[]) AS job_id,
       unnest(sqlc.arg(salts)::int[]) AS salt, unnest(sqlc.arg(hashes)::bytea[]) AS hash, unnest(sqlc.arg(keep_ms)::bigint[]) AS keep_ms ORDER BY 1, 2) a
ON CONFLICT (tenant, kind, key) DO NOTHING
RETURNING tenant, key;

-- name: DropExpiredKeys :exec
-- Frees the expired ones of these keys, in order, so that they can be taken in the same transaction.
DELETE FROM carillon.job_keys WHERE (tenant, kind, key) IN (
    SELECT k.tenant, k.kind, k.key FROM carillon.job_keys k
    JOIN (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(keys)::text[]) AS key) a ON k.tenant = a.tenant AND k.key = a.key
    WHERE k.kind = sqlc.arg(kind)::text AND k.expires_at < now()
    ORDER BY k.tenant, k.key FOR UPDATE OF k);

-- name: PointJobKeys :exec
-- Idempotency keys that this transaction took, for requests whose unique key turned out to be held: they name that job.
UPDATE carillon.job_keys k SET job_id = a.job_id, salt = a.salt
FROM (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(keys)::text[]) AS key, unnest(sqlc.arg(job_ids)::bigint[]) AS job_id,
             unnest(sqlc.arg(salts)::int[]) AS salt) a
WHERE k.tenant = a.tenant AND k.kind = 'idempotency' AND k.key = a.key;

-- name: GetJobKeys :many
SELECT k.tenant, k.key, k.job_id, k.salt, k.hash, COALESCE(k.expires_at < now(), false)::bool AS expired
FROM carillon.job_keys k
JOIN (SELECT unnest(sqlc.arg(tenants)::text[]) AS tenant, unnest(sqlc.arg(keys)::text[]) AS key) a ON k.tenant = a.tenant AND k.key = a.key
WHERE k.kind = sqlc.arg(kind)::text;

-- name: NextJobIDs :many
SELECT nextval('carillon.job_ids')::bigint AS id FROM generate_series(1, sqlc.arg(n)::int);

-- name: InsertJobs :many
-- Concurrent single inserts share this statement; rows come back in the order of the arrays, and the salt proves it. Ids
-- are given only where a key names them already. Rows with a run id start running at once, in the name of the controller
-- that takes them in: nothing waits before them, and it has room; in a queue that was paused or limited meanwhile they
-- become ready.
INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, expires_at, slot, parent_id, parent_salt, cron_job_id, max_attempts, backoff_ms,
    backoff_max_ms, timeout_ms, priority, unique_key, tags, payload, state, run_id, attempt, run_deployment, controller, started_at, deadline_at, trigger_id, envelope)
SELECT b.id, b.queue_id, (b.id % 1021)::int, b.salt, now() + make_interval(secs => b.delay_ms / 1000.0), b.expires_at, b.slot, NULLIF(b.parent_id, 0),
    CASE WHEN b.parent_id <> 0 THEN b.parent_salt END, NULLIF(b.cron_job_id, 0), b.max_attempts, b.backoff_ms, b.backoff_max_ms, b.timeout_ms, b.priority, NULLIF(b.unique_key, ''),
    CASE WHEN b.tags = '' THEN NULL ELSE string_to_array(b.tags, E'\x1f') END, b.payload,
    CASE WHEN b.starts THEN 'running' ELSE 'ready' END::carillon.job_status, CASE WHEN b.starts THEN b.run_id END, CASE WHEN b.starts THEN 1 ELSE 0 END,
    CASE WHEN b.starts THEN b.run_deployment END, CASE WHEN b.starts THEN sqlc.arg(controller)::text END, CASE WHEN b.starts THEN now() END,
    CASE WHEN b.starts THEN now() + make_interval(secs => (b.timeout_ms + sqlc.arg(grace_ms)::int) / 1000.0) END, NULLIF(b.trigger_id, 0), b.envelope
FROM (
    SELECT COALESCE(NULLIF(a.given, 0), nextval('carillon.job_ids')) AS id, a.*,
        a.run_id IS NOT NULL AND EXISTS (SELECT FROM carillon.queues q WHERE q.id = a.queue_id AND q.paused_at IS NULL AND NOT q.limited) AS starts
    FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS given, unnest(sqlc.arg(queue_ids)::int[]) AS queue_id, unnest(sqlc.arg(salts)::int[]) AS salt,
        unnest(sqlc.arg(delays_ms)::bigint[]) AS delay_ms, unnest(sqlc.arg(expires)::timestamptz[]) AS expires_at, unnest(sqlc.arg(slots)::timestamptz[]) AS slot,
        unnest(sqlc.arg(parent_ids)::bigint[]) AS parent_id, unnest(sqlc.arg(parent_salts)::int[]) AS parent_salt, unnest(sqlc.arg(cron_job_ids)::bigint[]) AS cron_job_id, unnest(sqlc.arg(max_attempts)::int[]) AS max_attempts,
        unnest(sqlc.arg(backoffs_ms)::int[]) AS backoff_ms, unnest(sqlc.arg(backoff_maxs_ms)::int[]) AS backoff_max_ms, unnest(sqlc.arg(timeouts_ms)::int[]) AS timeout_ms,
        unnest(sqlc.arg(priorities)::smallint[]) AS priority, unnest(sqlc.arg(unique_keys)::text[]) AS unique_key, unnest(sqlc.arg(tags)::text[]) AS tags,
        unnest(sqlc.arg(payloads)::bytea[]) AS payload, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id, unnest(sqlc.arg(run_deployments)::bigint[]) AS run_deployment,
        unnest(sqlc.arg(trigger_ids)::bigint[]) AS trigger_id, unnest(sqlc.arg(envelopes)::jsonb[]) AS envelope) a
) b
RETURNING id, salt, due_at, created_at, started_at;

-- name: FetchWindow :many
-- What an owner may claim next of its queues, so many of each: a keyset on (due_at, id), so that neither dead rows of
-- finished jobs nor a held snapshot slow it down. The owned shards are a bitmap: one look, not up to 1,021.
SELECT j.id, j.queue_id, j.due_at, j.priority, j.shard, j.expires_at, clock_timestamp()::timestamptz AS now
FROM (SELECT unnest(sqlc.arg(queue_ids)::int[]) AS queue_id, unnest(sqlc.arg(after_due)::timestamptz[]) AS due_at, unnest(sqlc.arg(after_id)::bigint[]) AS id) a
CROSS JOIN LATERAL (
    SELECT w.id, w.queue_id, w.due_at, w.priority, w.shard, w.expires_at FROM carillon.jobs w
    WHERE w.queue_id = a.queue_id AND (w.due_at, w.id + 0) > (a.due_at, a.id) AND w.state = 'ready'
      AND get_bit(sqlc.arg(owned)::bytea, w.shard) = 1 AND w.due_at <= now() + make_interval(secs => sqlc.arg(ahead_secs)::float8)
    ORDER BY w.due_at, w.id + 0
    LIMIT sqlc.arg(page)::int
) j;

-- name: FetchOverdue :many
-- What no owner took up: ready jobs of any shard that have been due for a while, so many of each queue.
SELECT j.id, j.queue_id, j.due_at, j.priority, j.shard, j.expires_at, clock_timestamp()::timestamptz AS now
FROM carillon.queues q
CROSS JOIN LATERAL (
    SELECT w.id, w.queue_id, w.due_at, w.priority, w.shard, w.expires_at FROM carillon.jobs w
    WHERE w.queue_id = q.id AND w.state = 'ready' AND w.due_at < now() - make_interval(secs => sqlc.arg(late_secs)::float8)
    ORDER BY w.due_at, w.id + 0
    LIMIT sqlc.arg(page)::int
) j
WHERE q.paused_at IS NULL
ORDER BY j.queue_id, j.due_at, j.id;

-- name: FetchExpired :many
-- Ready jobs of owned shards that must not begin any more: also those of paused queues, and behind what windows hold.
SELECT id FROM carillon.jobs
WHERE expires_at <= now() AND state = 'ready' AND get_bit(sqlc.arg(owned)::bytea, shard) = 1
ORDER BY expires_at
LIMIT sqlc.arg(page)::int;

-- name: ClaimJobs :many
-- Claims by id, in id order. Losers are simply not returned: somebody else has them, or they are not to run now. A
-- limited verb's jobs are claimed only by who says so and holds the lock of its places (LockLimit).
-- Jobs are to be found by their ids alone, whatever the statistics believe to be ready: queue_id without the + 0 lets the
-- planner come from the queue through its whole backlog (60,000 waiting: 2,200 to 15,000 jobs/s claimed and ended instead
-- of 70,000), an id that is compared without ANY lets it walk through the primary key in order, and the CASE here and below,
-- which names both sides, is asked after the join for the same reason.
UPDATE carillon.jobs j
SET state = 'running', run_id = a.run_id, controller = sqlc.arg(controller)::text, run_deployment = a.run_deployment, attempt = j.attempt + 1, started_at = now(),
    limited = sqlc.arg(limited)::bool, deadline_at = now() + make_interval(secs => (j.timeout_ms + sqlc.arg(grace_ms)::int) / 1000.0)
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id, unnest(sqlc.arg(run_deployments)::bigint[]) AS run_deployment ORDER BY 1) a,
     carillon.queues q
WHERE j.id = ANY (ARRAY[a.id]) AND q.id = j.queue_id + 0
  AND CASE WHEN a.id IS NOT NULL THEN j.state = 'ready' AND j.due_at <= now() AND (j.expires_at IS NULL OR j.expires_at > now()) END
  AND q.paused_at IS NULL AND q.limited = sqlc.arg(limited)::bool AND (NOT sqlc.arg(limited)::bool OR q.ref = sqlc.arg(ref)::text)
RETURNING j.id, j.run_id, j.queue_id, q.tenant, q.ref, j.salt, j.attempt, j.max_attempts, j.timeout_ms, j.backoff_ms, j.backoff_max_ms, j.slot, j.due_at, j.created_at,
    j.started_at, j.expires_at, COALESCE(j.parent_id, 0)::bigint AS parent_id, j.payload, j.limited, COALESCE(j.trigger_id, 0)::bigint AS trigger_id, j.envelope;

-- name: GetLimit :one
-- The free places of a verb, without a lock: a hint that spares a full one the waiting.
SELECT GREATEST(max_running - running, 0)::int AS free FROM carillon.limits WHERE ref = sqlc.arg(ref)::text;

-- name: LockLimit :one
-- The free places of a verb's cluster-wide limit, in the transaction of the claim that takes them.
SELECT GREATEST(max_running - running, 0)::int AS free FROM carillon.limits WHERE ref = sqlc.arg(ref)::text FOR NO KEY UPDATE;

-- name: FreeJobs :many
-- Those of these jobs that nobody else is changing, locked in id order. Who holds the lock of places must wait for no job:
-- the end of a child locks its parent, which may be such a job, and then wants places.
SELECT id FROM carillon.jobs WHERE id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- name: AddRunning :exec
UPDATE carillon.limits SET running = running + sqlc.arg(n)::int WHERE ref = sqlc.arg(ref)::text;

-- name: PutLimit :exec
INSERT INTO carillon.limits (ref, max_running) VALUES (sqlc.arg(ref)::text, sqlc.arg(max_running)::int)
ON CONFLICT (ref) DO UPDATE SET max_running = excluded.max_running;

-- name: MarkQueues :exec
UPDATE carillon.queues SET limited = sqlc.arg(limited)::bool WHERE ref = sqlc.arg(ref)::text AND limited <> sqlc.arg(limited)::bool;

-- name: LockLimits :many
SELECT ref FROM carillon.limits WHERE sqlc.arg(ref)::text IN ('', ref) ORDER BY ref FOR NO KEY UPDATE;

-- name: AdoptRunning :exec
-- Runs that began before their verb had a limit hold a place from now on. Rows that somebody is changing are skipped: who
-- holds a place's lock must wait for no job.
UPDATE carillon.jobs SET limited = true WHERE id IN (
    SELECT j.id FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
    WHERE j.state = 'running' AND NOT j.limited AND q.limited AND q.ref = ANY (sqlc.arg(refs)::text[])
    FOR NO KEY UPDATE OF j SKIP LOCKED);

-- name: CountRunning :many
-- Under the locks of these limits, the truth; returns those that were wrong.
UPDATE carillon.limits l SET running = n.running
FROM (SELECT r.ref, COALESCE(c.n, 0)::int AS running
      FROM (SELECT unnest(sqlc.arg(refs)::text[]) AS ref) r
      LEFT JOIN (SELECT q.ref, count(*) AS n FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
                 WHERE j.state = 'running' AND j.limited GROUP BY q.ref) c ON c.ref = r.ref) n
WHERE l.ref = n.ref AND l.running <> n.running
RETURNING l.ref, l.running;

-- name: DropLimit :exec
DELETE FROM carillon.limits WHERE ref = sqlc.arg(ref)::text;

-- name: FinishJobs :many
-- Ends jobs for good by their run id: the row leaves the live table for the history, its place and its unique key are
-- free again, all in the same statement. No row for an input: the run is not current. A job that was cancelled in the
-- run and did not succeed is cancelled. An error enters the list where a verdict is given. Children are ended only by who
-- says so, and holds the locks of their parents (LockParents). What a success has done with, its event and its payload, goes.
-- What is compared by ANY can be found by the primary key and in no other way. What the caller says of a job comes along with
-- the row that goes: nothing is to be joined after that (final(a) is a.final, which sqlc does not know there).
WITH a AS (
    SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id, unnest(sqlc.arg(states)::text[]) AS final,
           unnest(sqlc.arg(outputs)::bytea[]) AS output, unnest(sqlc.arg(verdicts)::text[]) AS fault, unnest(sqlc.arg(texts)::text[]) AS words,
           unnest(sqlc.arg(progress)::text[]) AS told
    ORDER BY 1
), gone AS (
    DELETE FROM carillon.jobs j USING a
    WHERE j.id = ANY (ARRAY[a.id])
      AND CASE WHEN a.id IS NOT NULL THEN j.run_id = a.run_id AND j.state = 'running' AND (j.cancelled OR NOT sqlc.arg(if_cancelled)::bool)
          AND (j.parent_id IS NULL OR sqlc.arg(children)::bool) END
    RETURNING j.*, final(a) AS final, output(a) AS output, fault(a) AS fault, words(a) AS words, told(a) AS told
), history AS (
    INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, expires_at, slot, parent_id, parent_salt, cron_job_id, run_deployment, queue_id, salt,
        attempt, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, state, run_id, controller, unique_key, progress, tags, payload, output, errors, trigger_id, envelope)
    SELECT g.id, now(), g.created_at, g.due_at, g.started_at, g.expires_at, g.slot, g.parent_id, g.parent_salt, g.cron_job_id, g.run_deployment, g.queue_id,
        g.salt, g.attempt, g.max_attempts, g.backoff_ms, g.backoff_max_ms, g.timeout_ms, g.priority,
        CASE WHEN g.cancelled AND g.final <> 'succeeded' THEN 'cancelled' ELSE g.final END::carillon.job_status, g.run_id, g.controller, CASE WHEN g.final = 'failed' THEN g.unique_key END,
        COALESCE(NULLIF(g.told, ''), g.progress), g.tags, g.payload,
        NULLIF(g.output, ''::bytea), CASE WHEN g.fault = '' THEN g.errors ELSE carillon.add_error(g.errors,
            jsonb_build_object('at', now(), 'started', g.started_at, 'attempt', g.attempt, 'run', g.run_id, 'verdict', g.fault, 'text', g.words)) END,
        g.trigger_id, CASE WHEN g.final = 'succeeded' THEN g.envelope - '{event,payload}'::text[] ELSE g.envelope END
    FROM gone g
), freed AS (
    DELETE FROM carillon.job_keys k USING gone g, carillon.queues q
    WHERE g.unique_key IS NOT NULL AND q.id = g.queue_id AND k.tenant = q.tenant AND k.kind = 'unique' AND k.key = g.unique_key
      AND k.job_id = g.id AND k.expires_at IS NULL
), places AS (
    UPDATE carillon.limits l SET running = GREATEST(l.running - a.n, 0)
    FROM (SELECT q.ref, count(*)::int AS n FROM gone g JOIN carillon.queues q ON q.id = g.queue_id WHERE g.limited GROUP BY q.ref ORDER BY q.ref) a
    WHERE l.ref = a.ref
)
SELECT id, run_id, queue_id, parent_id, cancelled, children FROM gone;

-- name: LockParents :many
-- The rows of these jobs, locked in id order, before any of their children is made, ended or cancelled.
SELECT id, salt, state, run_id, cancelled FROM carillon.jobs WHERE id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY id FOR UPDATE;

-- name: AddChildren :exec
-- Counts children that the same transaction made.
UPDATE carillon.jobs p SET children = p.children + a.n
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(counts)::int[]) AS n ORDER BY 1) a
WHERE p.id = ANY (ARRAY[a.id]);

-- name: DropChildren :many
-- Counts children off that the same transaction ended; a parent that waited for the last of them is due now. Parents
-- that have ended are not there. By what the ended rows said, not by what was locked: a job that was re-driven
-- in between counts its children, too.
UPDATE carillon.jobs p
SET children = GREATEST(p.children - a.n, 0),
    state = CASE WHEN p.state = 'blocked' AND p.children <= a.n THEN 'ready' ELSE p.state END,
    due_at = CASE WHEN p.state = 'blocked' AND p.children <= a.n THEN now() ELSE p.due_at END
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(counts)::int[]) AS n ORDER BY 1) a
WHERE p.id = ANY (ARRAY[a.id])
RETURNING p.id, p.queue_id, p.shard, p.priority, p.due_at, p.expires_at, (p.state = 'ready' AND p.children = 0 AND p.due_at = now())::bool AS woken;

-- name: ParentsOf :many
-- Whose rows are to be locked before these jobs are ended. A job keeps its parent as long as it lives.
SELECT DISTINCT parent_id::bigint AS parent_id FROM carillon.jobs WHERE id = ANY (sqlc.arg(ids)::bigint[]) AND parent_id IS NOT NULL;

-- name: LockChildren :many
-- The live children of jobs that begin to live again, locked, so that none ends before it is counted.
SELECT parent_id::bigint AS parent_id FROM carillon.jobs WHERE parent_id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY id FOR UPDATE;

-- name: RetryJobs :many
-- Gives jobs back, fenced by run id: after a failed run (counted), or after one that did not begin (no room, drain) or
-- was snoozed, whose attempt is taken back. One that comes again at once keeps its due time, and so its turn. A job that
-- was cancelled in the run is not returned: FinishJobs ends it. One that awaits its children is blocked while any lives:
-- who ends one changes the same row.
WITH back AS (
    UPDATE carillon.jobs j
    SET state = CASE WHEN a.awaits AND j.children > 0 THEN 'blocked' ELSE 'ready' END::carillon.job_status, due_at = CASE WHEN a.delay_ms = 0 AND NOT a.counted THEN j.due_at ELSE now() + make_interval(secs => a.delay_ms / 1000.0) END,
        run_id = NULL, controller = NULL, started_at = NULL, deadline_at = NULL, run_deployment = NULL, progress = COALESCE(NULLIF(a.progress, ''), j.progress),
        attempt = j.attempt - CASE WHEN a.counted THEN 0 ELSE 1 END,
        errors = CASE WHEN a.verdict = '' THEN j.errors ELSE carillon.add_error(j.errors,
            jsonb_build_object('at', now(), 'started', j.started_at, 'attempt', j.attempt, 'run', a.run_id, 'verdict', a.verdict, 'text', a.text)) END
    FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id, unnest(sqlc.arg(delays_ms)::bigint[]) AS delay_ms,
                 unnest(sqlc.arg(counted)::bool[]) AS counted, unnest(sqlc.arg(awaits)::bool[]) AS awaits, unnest(sqlc.arg(verdicts)::text[]) AS verdict,
                 unnest(sqlc.arg(texts)::text[]) AS text, unnest(sqlc.arg(progress)::text[]) AS progress ORDER BY 1) a
    WHERE j.id = ANY (ARRAY[a.id]) AND j.run_id = ANY (ARRAY[a.run_id]) AND CASE WHEN a.id IS NOT NULL THEN j.state = 'running' AND NOT j.cancelled END
    RETURNING j.id, a.run_id, j.queue_id, j.due_at, j.limited, j.state
), places AS (
    UPDATE carillon.limits l SET running = GREATEST(l.running - a.n, 0)
    FROM (SELECT q.ref, count(*)::int AS n FROM back g JOIN carillon.queues q ON q.id = g.queue_id WHERE g.limited GROUP BY q.ref ORDER BY q.ref) a
    WHERE l.ref = a.ref
)
SELECT id, run_id::uuid AS run_id, queue_id, due_at, state FROM back;

-- name: PutProgress :exec
-- What runs say about themselves, by their run ids. HOT: no index knows it.
UPDATE carillon.jobs j SET progress = a.text
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id, unnest(sqlc.arg(texts)::text[]) AS text ORDER BY 1) a
WHERE j.id = ANY (ARRAY[a.id]) AND j.run_id = ANY (ARRAY[a.run_id]) AND CASE WHEN a.id IS NOT NULL THEN j.state = 'running' END;

-- name: GetEndedJobRuns :many
-- Which of these runs stand in the history already: an end that is repeated because its answer got lost is not late.
SELECT h.id, h.run_id, h.state
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id) a
JOIN carillon.job_history h ON h.id = ANY (ARRAY[a.id]) AND h.run_id = ANY (ARRAY[a.run_id]);

-- name: FindJob :one
SELECT id FROM carillon.jobs WHERE id = sqlc.arg(id)::bigint AND salt = sqlc.arg(salt)::int;

-- name: AskCancel :many
-- Notes cancels whatever the state, so that a claim or an end in the same instant comes before them or after them, never
-- both; jobs that wait are ended by EndWaiting in the same transaction, under these row locks.
UPDATE carillon.jobs j SET cancelled = true
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id ORDER BY 1) a
WHERE j.id = ANY (ARRAY[a.id])
RETURNING j.id, j.salt, j.state, j.run_id, COALESCE(j.controller, '')::text AS controller, j.queue_id, j.children;

-- name: ListChildren :many
-- id + 0: the primary key must not serve the order, for it would be read to its end where a parent has no children.
SELECT id FROM carillon.jobs WHERE parent_id = ANY (sqlc.arg(parents)::bigint[]) AND id + 0 > sqlc.arg(after)::bigint ORDER BY id + 0 LIMIT sqlc.arg(page)::int;

-- name: ListUnfelled :many
-- Jobs that were cancelled and below which jobs live that nobody cancelled: whoever was at it died in between. It reads
-- the live children once.
SELECT c.parent_id::bigint AS id
FROM (SELECT DISTINCT parent_id, parent_salt FROM carillon.jobs WHERE parent_id IS NOT NULL AND NOT cancelled) c
LEFT JOIN carillon.jobs p ON p.id = c.parent_id
WHERE CASE WHEN p.id IS NOT NULL THEN p.cancelled
    ELSE EXISTS (SELECT FROM carillon.job_history h WHERE h.id = c.parent_id AND h.salt = c.parent_salt AND h.state = 'cancelled') END
ORDER BY c.parent_id LIMIT sqlc.arg(page)::int;

-- name: EndWaiting :many
-- Ends jobs that wait, without a run: cancelled ones, or ready ones past their expiry. The caller has locked their parents.
WITH gone AS (
    DELETE FROM carillon.jobs j USING (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id ORDER BY 1) a
    WHERE j.id = ANY (ARRAY[a.id])
      AND CASE WHEN a.id IS NOT NULL THEN CASE WHEN sqlc.arg(expired)::bool THEN j.state = 'ready' AND j.expires_at <= now() ELSE j.state IN ('ready', 'blocked') AND j.cancelled END END
    RETURNING j.*
), history AS (
    INSERT INTO carillon.job_history (id, ended_at, created_at, due_at, started_at, expires_at, slot, parent_id, parent_salt, cron_job_id, run_deployment, queue_id, salt, attempt,
        max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, state, run_id, controller, unique_key, progress, tags, payload, errors, trigger_id, envelope)
    SELECT id, now(), created_at, due_at, started_at, expires_at, slot, parent_id, parent_salt, cron_job_id, run_deployment, queue_id, salt, attempt,
        max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, CASE WHEN cancelled THEN 'cancelled' ELSE 'failed' END::carillon.job_status,
        run_id, controller, unique_key, progress, tags, payload, carillon.add_error(errors,
            jsonb_build_object('at', now(), 'attempt', attempt, 'verdict', CASE WHEN cancelled THEN 'cancelled' ELSE 'failed' END, 'text', sqlc.arg(text)::text)), trigger_id, envelope
    FROM gone
), freed AS (
    DELETE FROM carillon.job_keys k USING gone g, carillon.queues q
    WHERE g.unique_key IS NOT NULL AND q.id = g.queue_id AND k.tenant = q.tenant AND k.kind = 'unique' AND k.key = g.unique_key
      AND k.job_id = g.id AND k.expires_at IS NULL
)
SELECT id, COALESCE(parent_id, 0)::bigint AS parent_id FROM gone;

-- name: FindLostJobs :many
-- Runs of jobs whose controller fell silent or whose hard timeout passed, judged as SweepCronJobs judges: the answer
-- names them, and the caller retries or ends them by their run id, which is the fence. Sequential on purpose, as
-- ScanCronJobs is: an index that knows who is running would cost every claim its HOT update.
SELECT j.id, j.run_id, j.salt, q.tenant, q.ref, j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.queue_id, j.slot, j.due_at, j.created_at,
    j.started_at, j.expires_at, COALESCE(j.parent_id, 0)::bigint AS parent_id, j.limited, j.cancelled, COALESCE(j.controller, '')::text AS controller, (j.deadline_at < now())::bool AS timed_out
FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
WHERE j.state = 'running'
  AND EXISTS (SELECT FROM carillon.controllers me WHERE me.key = sqlc.arg(controller)::text
      AND me.alive_since < now() - make_interval(secs => sqlc.arg(lease_secs)::float8)
      AND me.heartbeat_at > now() - make_interval(secs => sqlc.arg(silence_secs)::float8))
  AND (j.deadline_at < now() OR NOT EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller
      AND c.heartbeat_at >= now() - make_interval(secs => sqlc.arg(lease_secs)::float8)))
LIMIT sqlc.arg(page)::int;

-- name: FindOwnJobs :many
-- Runs in a controller's own name: it knows which of them it has, and gives back what a lost answer left behind.
SELECT j.id, j.run_id, j.salt, q.tenant, q.ref, j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.queue_id, j.slot, j.due_at, j.created_at,
    j.started_at, j.expires_at, COALESCE(j.parent_id, 0)::bigint AS parent_id, j.limited, j.cancelled
FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
WHERE j.state = 'running' AND j.controller = sqlc.arg(controller)::text
  AND j.started_at < now() - make_interval(secs => sqlc.arg(older_secs)::float8) AND j.id > sqlc.arg(after)::bigint
ORDER BY j.id
LIMIT sqlc.arg(page)::int;

-- name: GetJob :one
SELECT j.id, j.salt, q.tenant, q.ref, j.state::text AS state, j.priority, j.due_at::timestamptz AS due_at, j.created_at::timestamptz AS created_at,
    j.started_at::timestamptz AS started_at, NULLIF(j.due_at, j.due_at)::timestamptz AS ended_at, j.expires_at::timestamptz AS expires_at, j.slot::timestamptz AS slot,
    j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.run_id, COALESCE(j.controller, '')::text AS controller,
    COALESCE(j.parent_id, 0)::bigint AS parent_id, COALESCE(j.parent_salt, 0)::int AS parent_salt, j.children::int AS children, COALESCE(j.progress, '')::text AS progress, j.tags, j.payload::bytea AS payload, ''::bytea AS output,
    j.errors, j.cancelled::bool AS cancelled, COALESCE(j.trigger_id, 0)::bigint AS trigger_id, j.envelope
FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
WHERE j.id = sqlc.arg(id)::bigint AND j.salt = sqlc.arg(salt)::int;

-- name: GetEndedJob :one
-- Event and payload are kept for a re-drive, and are nobody else's business any more.
SELECT h.id, h.salt, q.tenant, q.ref, h.state::text AS state, h.priority, h.due_at::timestamptz AS due_at, h.created_at::timestamptz AS created_at,
    h.started_at::timestamptz AS started_at, h.ended_at::timestamptz AS ended_at, h.expires_at::timestamptz AS expires_at, h.slot::timestamptz AS slot,
    h.attempt, h.max_attempts, h.backoff_ms, h.backoff_max_ms, h.timeout_ms, h.run_id, COALESCE(h.controller, '')::text AS controller,
    COALESCE(h.parent_id, 0)::bigint AS parent_id, COALESCE(h.parent_salt, 0)::int AS parent_salt, 0::int AS children, COALESCE(h.progress, '')::text AS progress, h.tags, h.payload::bytea AS payload, COALESCE(h.output, ''::bytea) AS output,
    h.errors, (h.state = 'cancelled')::bool AS cancelled, COALESCE(h.trigger_id, 0)::bigint AS trigger_id, (h.envelope - '{event,payload}'::text[])::jsonb AS envelope
FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
WHERE h.id = sqlc.arg(id)::bigint AND h.salt = sqlc.arg(salt)::int
ORDER BY h.ended_at DESC LIMIT 1;

-- name: ListJobs :many
-- Live jobs, latest id first, without their payloads. GetJob, GetEndedJob, ListJobs and ListEndedJobs share one row.
SELECT j.id, j.salt, q.tenant, q.ref, j.state::text AS state, j.priority, j.due_at::timestamptz AS due_at, j.created_at::timestamptz AS created_at,
    j.started_at::timestamptz AS started_at, NULLIF(j.due_at, j.due_at)::timestamptz AS ended_at, j.expires_at::timestamptz AS expires_at, j.slot::timestamptz AS slot,
    j.attempt, j.max_attempts, j.backoff_ms, j.backoff_max_ms, j.timeout_ms, j.run_id, COALESCE(j.controller, '')::text AS controller,
    COALESCE(j.parent_id, 0)::bigint AS parent_id, COALESCE(j.parent_salt, 0)::int AS parent_salt, j.children::int AS children, COALESCE(j.progress, '')::text AS progress, j.tags, ''::bytea AS payload, ''::bytea AS output,
    j.errors, j.cancelled::bool AS cancelled, COALESCE(j.trigger_id, 0)::bigint AS trigger_id, (j.envelope - '{event,payload}'::text[])::jsonb AS envelope
FROM carillon.jobs j JOIN carillon.queues q ON q.id = j.queue_id
WHERE (sqlc.arg(tenant)::text = '' OR q.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(ref)::text = '' OR q.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(module)::text = '' OR starts_with(q.ref, sqlc.arg(module)::text || '.'))
  AND (cardinality(sqlc.arg(states)::text[]) = 0 OR j.state::text = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.arg(tag)::text = '' OR sqlc.arg(tag)::text = ANY (j.tags))
  AND (sqlc.arg(parent)::bigint = 0 OR (j.parent_id = sqlc.arg(parent)::bigint AND j.parent_salt = sqlc.arg(parent_salt)::int))
  AND j.created_at >= sqlc.arg(created_from)::timestamptz AND j.created_at < sqlc.arg(created_until)::timestamptz
  AND j.id < sqlc.arg(before)::bigint
ORDER BY j.id DESC LIMIT sqlc.arg(page)::int;

-- name: ListEndedJobs :many
-- The history, latest end first, without payloads and outputs.
SELECT h.id, h.salt, q.tenant, q.ref, h.state::text AS state, h.priority, h.due_at::timestamptz AS due_at, h.created_at::timestamptz AS created_at,
    h.started_at::timestamptz AS started_at, h.ended_at::timestamptz AS ended_at, h.expires_at::timestamptz AS expires_at, h.slot::timestamptz AS slot,
    h.attempt, h.max_attempts, h.backoff_ms, h.backoff_max_ms, h.timeout_ms, h.run_id, COALESCE(h.controller, '')::text AS controller,
    COALESCE(h.parent_id, 0)::bigint AS parent_id, COALESCE(h.parent_salt, 0)::int AS parent_salt, 0::int AS children, COALESCE(h.progress, '')::text AS progress, h.tags, ''::bytea AS payload, ''::bytea AS output,
    h.errors, (h.state = 'cancelled')::bool AS cancelled, COALESCE(h.trigger_id, 0)::bigint AS trigger_id, (h.envelope - '{event,payload}'::text[])::jsonb AS envelope
FROM carillon.job_history h JOIN carillon.queues q ON q.id = h.queue_id
WHERE (sqlc.arg(tenant)::text = '' OR q.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(ref)::text = '' OR q.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(module)::text = '' OR starts_with(q.ref, sqlc.arg(module)::text || '.'))
  AND (cardinality(sqlc.arg(states)::text[]) = 0 OR h.state::text = ANY (sqlc.arg(states)::text[]))
  AND (sqlc.arg(parent)::bigint = 0 OR (h.parent_id = sqlc.arg(parent)::bigint AND h.parent_salt = sqlc.arg(parent_salt)::int))
  AND (sqlc.arg(tag)::text = '' OR sqlc.arg(tag)::text = ANY (h.tags)) AND (NOT sqlc.arg(dead)::bool OR (h.state = 'failed' AND NOT h.redriven))
  AND h.ended_at >= sqlc.arg(ended_from)::timestamptz AND h.ended_at < sqlc.arg(ended_until)::timestamptz
  AND (h.ended_at, h.id) < (sqlc.arg(before_end)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY h.ended_at DESC, h.id DESC LIMIT sqlc.arg(page)::int;

-- name: LockDeadJobs :many
-- Those of these jobs that may be re-driven, locked, with the unique keys that they want back. A client's jobs do not come
-- again: nobody would run them.
SELECT h.id, h.salt, q.tenant, COALESCE(h.unique_key, '')::text AS unique_key
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(salts)::int[]) AS salt) a
JOIN carillon.job_history h ON h.id = a.id AND h.salt = a.salt
JOIN carillon.queues q ON q.id = h.queue_id
WHERE h.state = 'failed' AND NOT h.redriven AND q.ref <> 'client'
ORDER BY h.id FOR NO KEY UPDATE OF h;

-- name: RedriveJobs :many
-- Makes dead jobs live again that the caller locked, and whose keys it took, with their attempts anew; their history stays,
-- marked. One that was a child is none any more: its parent has counted its end.
WITH dead AS (
    UPDATE carillon.job_history h SET redriven = true
    FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(salts)::int[]) AS salt ORDER BY 1) a
    WHERE h.id = a.id AND h.salt = a.salt AND h.state = 'failed' AND NOT h.redriven
    RETURNING h.*
)
INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, created_at, slot, cron_job_id, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, unique_key, tags, payload, errors, trigger_id, envelope)
SELECT id, queue_id, (id % 1021)::int, salt, now(), created_at, slot, cron_job_id, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, unique_key, tags, payload, errors, trigger_id, envelope FROM dead
ON CONFLICT (id) DO NOTHING
RETURNING id, queue_id, shard, priority, due_at, expires_at;

-- name: HurryJob :one
-- A job that waits for its time is due now.
UPDATE carillon.jobs SET due_at = LEAST(due_at, now())
WHERE id = sqlc.arg(id)::bigint AND salt = sqlc.arg(salt)::int AND state = 'ready'
RETURNING id, queue_id, shard, priority, due_at, expires_at;

-- name: PauseQueues :many
-- The caller holds LockQueues. A pause that stands keeps its time.
WITH noted AS (
    INSERT INTO carillon.pauses (tenant, ref, reason) VALUES (sqlc.arg(tenant)::text, sqlc.arg(ref)::text, sqlc.arg(reason)::text)
    ON CONFLICT (tenant, ref) DO UPDATE SET reason = excluded.reason
)
UPDATE carillon.queues q SET paused_at = COALESCE(q.paused_at, now())
WHERE (sqlc.arg(tenant)::text = '' OR q.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(ref)::text = '' OR q.ref = sqlc.arg(ref)::text)
RETURNING q.id;

-- name: ListPauses :many
SELECT tenant, ref, paused_at, reason FROM carillon.pauses ORDER BY tenant, ref;

-- name: DropPause :execrows
-- The caller holds LockQueues, and resumes the queues.
DELETE FROM carillon.pauses WHERE tenant = sqlc.arg(tenant)::text AND ref = sqlc.arg(ref)::text;

-- name: ResumeQueues :many
-- The caller holds LockQueues and has dropped the pause. What another one covers stays paused.
UPDATE carillon.queues q SET paused_at = NULL
WHERE q.paused_at IS NOT NULL
  AND (sqlc.arg(tenant)::text = '' OR q.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(ref)::text = '' OR q.ref = sqlc.arg(ref)::text)
  AND NOT EXISTS (SELECT FROM carillon.pauses p WHERE p.tenant IN ('', q.tenant) AND p.ref IN ('', q.ref))
RETURNING q.id;

-- name: CountPaused :one
SELECT count(*)::int FROM carillon.queues q
WHERE q.paused_at IS NOT NULL
  AND (sqlc.arg(tenant)::text = '' OR q.tenant = sqlc.arg(tenant)::text) AND (sqlc.arg(ref)::text = '' OR q.ref = sqlc.arg(ref)::text);

-- name: ListWaitingRefs :many
-- The refs whose jobs have been due for long without a pause, and since when: for the doctor.
SELECT q.ref, min(w.due_at)::timestamptz AS since
FROM carillon.queues q
CROSS JOIN LATERAL (SELECT j.due_at FROM carillon.jobs j WHERE j.queue_id = q.id AND j.state = 'ready' ORDER BY j.due_at LIMIT 1) w
WHERE q.paused_at IS NULL AND w.due_at < now() - make_interval(secs => sqlc.arg(wait_secs)::float8)
GROUP BY q.ref ORDER BY since LIMIT 100;

-- name: ForgetJobKeys :execrows
DELETE FROM carillon.job_keys WHERE (tenant, kind, key) IN (
    SELECT tenant, kind, key FROM carillon.job_keys WHERE expires_at < now() LIMIT sqlc.arg(page)::int FOR UPDATE SKIP LOCKED);

-- name: CreateJobPartitions :one
SELECT carillon.create_job_partitions(sqlc.arg(ahead)::int)::int;

-- name: DropJobPartitions :one
SELECT carillon.drop_job_partitions(sqlc.arg(keep)::int)::int;
