-- name: StartCronJobs :many
-- Claims slots (seed 003): a compare-and-set per row on version, enabled, state, the first undecided slot, and the
-- database's clock. Rows are visited in id order, so that two claimers with overlapping batches do not deadlock: the
-- nested loop over the sorted list gives the order. On a small table the planner would rather scan it, in heap order, so
-- the sessions that claim and end have scans switched off, and 40P01 is still retried. Skipped slots
-- before the one that runs enter the ledger in the same statement. Rows not returned were not won: read them with
-- GetCronJobs afterwards, never here (this statement's snapshot is older than the winner's commit).
-- A plain UPDATE .. FROM beats a locking CTE by 10-20 % and every update is HOT: see integration/bench/README.md.
WITH won AS (
    UPDATE carillon.cron_jobs j
    SET state = 'executing', next_execution = a.next_after, run_id = a.run_id, run_slot = a.slot, run_kind = 'slot',
        run_deployment = j.deployment_id, attempt = 1, started_at = a.at, controller = sqlc.arg(controller)::text,
        deadline_at = a.at + make_interval(secs => (j.timeout_ms + sqlc.arg(grace_ms)::int) / 1000.0)
    FROM (SELECT s.*, clock_timestamp() AS at FROM ( -- one reading for each row, when its turn comes
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(versions)::bigint[]) AS version,
               unnest(sqlc.arg(expected)::timestamptz[]) AS expected, unnest(sqlc.arg(slots)::timestamptz[]) AS slot,
               unnest(sqlc.arg(next_after)::timestamptz[]) AS next_after, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id,
               unnest(sqlc.arg(skip_from)::timestamptz[]) AS skip_from, unnest(sqlc.arg(skip_to)::timestamptz[]) AS skip_to,
               unnest(sqlc.arg(skip_count)::int[]) AS skip_count
        ORDER BY 1
    ) s) a
    WHERE j.id = a.id AND j.version = a.version AND j.enabled AND j.state = 'idle' AND NOT j.fires
      AND j.next_execution = a.expected AND a.slot <= now()
    RETURNING j.id, j.started_at, j.deadline_at, j.deployment_id, a.skip_from, a.skip_to, a.skip_count
), skipped AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at, controller)
    SELECT id, skip_from, skip_to, skip_count, 'skipped_missed', now(), sqlc.arg(controller)::text
    FROM won WHERE skip_from IS NOT NULL
)
SELECT id, started_at, deadline_at, deployment_id FROM won;

-- name: FireCronJobs :many
-- Makes jobs of slots, idle to idle: the same compare-and-set as StartCronJobs, and in the same statement the job, the
-- ledger row that names it, and the skipped range. The ledger's key makes a slot's job the only one. Where the jobs of
-- earlier slots are in the way (overlap skip: any that lives; otherwise as many as are kept at most, but for those that a
-- limit put off), the slot is skipped_overlap, with the reason there and at the trigger. A trigger whose verb no module
-- that runs has says so until it fires with one that has; its jobs wait. Rows of overlap cancel have a transaction, with
-- CancelEarlierJobs after this, and those whose firings count for a limit another, with their meters. The job of a
-- trigger's row carries what the trigger says; a trigger that fires once is gone in the same instant. Losers as there.
WITH won AS (
    UPDATE carillon.cron_jobs j
    SET next_execution = a.next_after, enabled = NOT (j.trigger_id IS NOT NULL AND a.next_after IS NULL AND starts_with(j.schedule, '@at ')),
        removed_at = CASE WHEN j.trigger_id IS NOT NULL AND a.next_after IS NULL AND starts_with(j.schedule, '@at ') THEN now() END, run_id = a.run_id, run_slot = a.slot, run_kind = 'slot', run_deployment = j.deployment_id,
        attempt = 0, started_at = clock_timestamp(), deadline_at = NULL, controller = sqlc.arg(controller)::text
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(versions)::bigint[]) AS version,
               unnest(sqlc.arg(expected)::timestamptz[]) AS expected, unnest(sqlc.arg(slots)::timestamptz[]) AS slot,
               unnest(sqlc.arg(next_after)::timestamptz[]) AS next_after, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id,
               unnest(sqlc.arg(skip_from)::timestamptz[]) AS skip_from, unnest(sqlc.arg(skip_to)::timestamptz[]) AS skip_to,
               unnest(sqlc.arg(skip_count)::int[]) AS skip_count, unnest(sqlc.arg(salts)::int[]) AS salt
        ORDER BY 1
    ) a
    WHERE j.id = a.id AND j.version = a.version AND j.enabled AND j.state = 'idle' AND j.fires
      AND j.next_execution = a.expected AND a.slot <= now() AND (j.overlap::text = 'cancel') = sqlc.arg(cancels)::bool AND j.limited = sqlc.arg(limited)::bool
    RETURNING j.id, j.ref, j.started_at, j.deployment_id, j.queue_id, j.timeout_ms, j.max_attempts, j.backoff_ms, j.backoff_max_ms,
        a.slot, a.run_id, a.salt, a.skip_from, a.skip_to, a.skip_count, j.trigger_id, j.removed_at,
        -- Under catchup all every slot has its turn, one after the other.
        (EXISTS (SELECT FROM carillon.jobs w WHERE w.cron_job_id = j.id AND (NOT j.limited OR w.due_at <= now())
            OFFSET CASE WHEN j.overlap::text = 'skip' AND j.catchup <> 'all' THEN 0 ELSE sqlc.arg(max_live)::int - 1 END))::bool AS busy,
        CASE WHEN j.overlap::text = 'skip' AND j.catchup <> 'all' THEN 'the job before has not ended' ELSE sqlc.arg(max_live)::int || ' jobs of earlier slots have not ended' END AS why
), numbered AS (
    SELECT won.*, CASE WHEN NOT busy THEN nextval('carillon.job_ids') END AS job_id FROM won
), made AS (
    INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, slot, cron_job_id, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload, trigger_id, envelope)
    SELECT n.job_id, n.queue_id, (n.job_id % 1021)::int, n.salt, now(), n.slot, n.id, n.max_attempts, n.backoff_ms, n.backoff_max_ms, n.timeout_ms,
           COALESCE(t.priority, sqlc.arg(priority)::smallint), COALESCE(t.message, ''), n.trigger_id,
           CASE WHEN t.id IS NOT NULL THEN jsonb_build_object('trigger', t.key, 'kind', t.kind, 'domain', t.domain, 'worker', t.worker)
               || CASE WHEN t.options IS NULL THEN '{}' ELSE jsonb_build_object('options', t.options) END END
    FROM numbered n LEFT JOIN carillon.triggers t ON t.id = n.trigger_id WHERE NOT n.busy
), once AS (
    UPDATE carillon.triggers t SET deleted_at = now(), updated_at = now(), rev = t.rev + 1
    FROM (SELECT trigger_id FROM won WHERE removed_at IS NOT NULL ORDER BY 1) w WHERE t.id = w.trigger_id
), stays AS (
    SELECT n.trigger_id, n.busy, n.slot, n.why, t.ref, t.last_error FROM numbered n JOIN carillon.triggers t ON t.id = n.trigger_id WHERE n.removed_at IS NULL
), workers AS MATERIALIZED ( -- a schema is stored as Module.Text prints it: nothing but a verb begins a line so
    SELECT s.ref, EXISTS (SELECT FROM carillon.modules m JOIN carillon.deployments d ON d.id = m.deployment_id
        WHERE m.name = split_part(s.ref, '.', 1) AND d.min_replicas > 0
          AND (strpos(d.schema, E'\nverb ' || split_part(s.ref, '.', 2) || '(') > 0 OR strpos(d.schema, E'\nexport verb ' || split_part(s.ref, '.', 2) || '(') > 0)) AS there
    FROM (SELECT DISTINCT ref FROM stays) s
), noted AS (
    UPDATE carillon.triggers t SET last_error = w.error
    FROM (SELECT s.trigger_id, CASE
            WHEN s.busy THEN 'skipped ' || to_char(s.slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ': ' || s.why
            WHEN NOT k.there THEN 'jobs: could not find worker'
            WHEN s.last_error <> 'jobs: could not find worker' THEN s.last_error END AS error, s.last_error
        FROM stays s JOIN workers k ON k.ref = s.ref ORDER BY 1) w
    WHERE t.id = w.trigger_id AND w.last_error IS DISTINCT FROM w.error
), ledger AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, run_id, deployment_id, controller, started_at, ended_at, verdict, job_id, job_salt, error)
    SELECT id, slot, slot, CASE WHEN NOT busy THEN run_id END, CASE WHEN NOT busy THEN deployment_id END, sqlc.arg(controller)::text,
           CASE WHEN NOT busy THEN started_at END, now(), (CASE WHEN busy THEN 'skipped_overlap' ELSE 'fired' END)::carillon.verdict,
           job_id, CASE WHEN NOT busy THEN salt END, CASE WHEN busy THEN why END
    FROM numbered
), skipped AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at, controller)
    SELECT id, skip_from, skip_to, skip_count, 'skipped_missed', now(), sqlc.arg(controller)::text
    FROM won WHERE skip_from IS NOT NULL
)
SELECT id, ref, started_at, run_id::uuid AS run_id, slot::timestamptz AS slot, queue_id, COALESCE(job_id, 0)::bigint AS job_id, salt::int AS salt FROM numbered;

-- name: FireManualRun :many
-- Run now, of a row that fires: as StartManualRun, but a job is made, and the ledger has it at once. No row: jobs that it
-- made are in the way, as for a slot, or the row is not to run.
WITH won AS (
    UPDATE carillon.cron_jobs j
    SET run_id = sqlc.arg(run_id)::uuid, run_slot = now(), run_kind = 'manual', run_deployment = j.deployment_id,
        attempt = 0, started_at = clock_timestamp(), deadline_at = NULL, controller = sqlc.arg(controller)::text
    WHERE j.ref = sqlc.arg(ref)::text AND j.fires AND j.state = 'idle' AND j.removed_at IS NULL AND j.trigger_id IS NULL
      AND EXISTS (SELECT FROM carillon.deployments d WHERE d.id = j.deployment_id AND d.min_replicas > 0)
      AND NOT EXISTS (SELECT FROM carillon.jobs w WHERE w.cron_job_id = j.id
          OFFSET CASE WHEN j.overlap::text = 'skip' AND j.catchup <> 'all' THEN 0 ELSE sqlc.arg(max_live)::int - 1 END)
    RETURNING j.id, j.ref, j.started_at, j.deployment_id, j.queue_id, j.timeout_ms, j.max_attempts, j.backoff_ms, j.backoff_max_ms,
        j.run_slot AS slot, (j.overlap::text = 'cancel')::bool AS cancels
), numbered AS (
    SELECT won.*, nextval('carillon.job_ids') AS job_id FROM won
), made AS (
    INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, slot, cron_job_id, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload)
    SELECT job_id, queue_id, (job_id % 1021)::int, sqlc.arg(salt)::int, now(), slot, id, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, sqlc.arg(priority)::smallint, ''
    FROM numbered
), ledger AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, run_id, deployment_id, kind, controller, started_at, ended_at, verdict, job_id, job_salt)
    SELECT id, slot, slot, sqlc.arg(run_id)::uuid, deployment_id, 'manual', sqlc.arg(controller)::text, started_at, now(), 'fired', job_id, sqlc.arg(salt)::int
    FROM numbered
)
SELECT id, ref, started_at, slot::timestamptz AS slot, queue_id, cancels, job_id::bigint AS job_id FROM numbered;

-- name: CancelEarlierJobs :many
-- Notes the cancel of what earlier slots made and still lives, in id order, in the transaction that made the new job;
-- those that wait are ended in it, too (as AskCancel and EndWaiting do for one).
UPDATE carillon.jobs j SET cancelled = true
FROM (
    SELECT w.id FROM carillon.jobs w
    JOIN (SELECT unnest(sqlc.arg(cron_job_ids)::bigint[]) AS cron_job_id, unnest(sqlc.arg(job_ids)::bigint[]) AS job_id) a
      ON w.cron_job_id = a.cron_job_id AND w.id <> a.job_id
    ORDER BY w.id
    FOR UPDATE OF w
) e
WHERE j.id = e.id
RETURNING j.id, j.salt, j.state, j.run_id, COALESCE(j.controller, '')::text AS controller, j.cron_job_id, j.children;

-- name: GetFired :many
-- What became of firings whose answer got lost: the ledger knows their run ids.
SELECT r.cron_job_id, r.slot, r.run_id, r.started_at, r.job_id, r.job_salt, j.ref, COALESCE(j.queue_id, 0)::int AS queue_id
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(slots)::timestamptz[]) AS slot,
             unnest(sqlc.arg(run_ids)::uuid[]) AS run_id) a
JOIN carillon.runs r ON r.cron_job_id = a.id AND r.slot = a.slot AND r.run_id = a.run_id
JOIN carillon.cron_jobs j ON j.id = r.cron_job_id
WHERE r.verdict = 'fired';

-- name: ListCancelledRuns :many
-- Runs of jobs that these cron jobs made, which somebody cancelled and which go on.
SELECT w.id, w.salt, w.run_id, COALESCE(w.controller, '')::text AS controller, w.cron_job_id
FROM carillon.jobs w
WHERE w.cron_job_id = ANY (sqlc.arg(cron_job_ids)::bigint[]) AND w.cancelled AND w.state = 'running';

-- name: PassCronJob :many
-- The last resort for one slot that has a verdict already, by hand or by a restored backup: it stands, and the row goes
-- on; a trigger that fires once has done so.
WITH passed AS (
    UPDATE carillon.cron_jobs j SET next_execution = sqlc.arg(next_after)::timestamptz,
        enabled = NOT (j.trigger_id IS NOT NULL AND sqlc.arg(next_after)::timestamptz IS NULL AND starts_with(j.schedule, '@at ')),
        removed_at = CASE WHEN j.trigger_id IS NOT NULL AND sqlc.arg(next_after)::timestamptz IS NULL AND starts_with(j.schedule, '@at ') THEN now() END
    WHERE j.id = sqlc.arg(id)::bigint AND j.version = sqlc.arg(version)::bigint AND j.enabled AND j.state = 'idle' AND j.fires
      AND j.next_execution = sqlc.arg(expected)::timestamptz AND sqlc.arg(slot)::timestamptz <= now()
    RETURNING j.id, j.trigger_id, j.removed_at
), once AS (
    UPDATE carillon.triggers t SET deleted_at = now(), updated_at = now(), rev = t.rev + 1 FROM passed p WHERE t.id = p.trigger_id AND p.removed_at IS NOT NULL
)
SELECT id FROM passed;

-- name: SkipCronJobs :many
-- Decides a range of missed slots of which none runs (catchup none): idle to idle, the same compare-and-set.
WITH passed AS (
    UPDATE carillon.cron_jobs j
    SET next_execution = a.next_after
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(versions)::bigint[]) AS version,
               unnest(sqlc.arg(skip_from)::timestamptz[]) AS skip_from, unnest(sqlc.arg(skip_to)::timestamptz[]) AS skip_to,
               unnest(sqlc.arg(next_after)::timestamptz[]) AS next_after, unnest(sqlc.arg(skip_count)::int[]) AS skip_count
        ORDER BY 1
    ) a
    WHERE j.id = a.id AND j.version = a.version AND j.enabled AND j.state = 'idle'
      AND j.next_execution = a.skip_from AND a.skip_to <= now()
    RETURNING j.id, a.skip_from, a.skip_to, a.skip_count
), skipped AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at, controller)
    SELECT id, skip_from, skip_to, skip_count, 'skipped_missed', now(), sqlc.arg(controller)::text FROM passed
)
SELECT id FROM passed;

-- name: StartManualRun :one
-- Run now: the slot is the database's now, the schedule is untouched, pause does not matter; refused while executing,
-- and where the module is scaled to 0.
UPDATE carillon.cron_jobs j
SET state = 'executing', run_id = sqlc.arg(run_id)::uuid, run_slot = now(), run_kind = 'manual',
    run_deployment = j.deployment_id, attempt = 1, started_at = clock.at, controller = sqlc.arg(controller)::text,
    deadline_at = clock.at + make_interval(secs => (j.timeout_ms + sqlc.arg(grace_ms)::int) / 1000.0)
FROM (SELECT clock_timestamp() AS at) clock
WHERE j.ref = sqlc.arg(ref)::text AND j.state = 'idle' AND j.removed_at IS NULL AND NOT j.fires
  AND EXISTS (SELECT FROM carillon.deployments d WHERE d.id = j.deployment_id AND d.min_replicas > 0)
RETURNING j.id;

-- name: EndCronJobs :many
-- Ends runs by their run id, and writes the ledger in the same statement. The End alone decides the slots that came
-- while it ran: the range is applied only if nothing changed what it was computed from and its last slot is past;
-- otherwise the row goes idle as it is, and the next claim decides them. No row for an input: the run is not current.
WITH ended AS (
    UPDATE carillon.cron_jobs j
    SET state = 'idle',
        next_execution = CASE
            WHEN j.version = a.version AND j.next_execution = a.skip_from AND a.skip_to <= now() THEN a.next_after
            ELSE j.next_execution END
    FROM (
        SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id,
               unnest(sqlc.arg(verdicts)::text[])::carillon.verdict AS verdict, unnest(sqlc.arg(errors)::text[]) AS error,
               unnest(sqlc.arg(versions)::bigint[]) AS version,
               unnest(sqlc.arg(skip_from)::timestamptz[]) AS skip_from, unnest(sqlc.arg(skip_to)::timestamptz[]) AS skip_to,
               unnest(sqlc.arg(skip_count)::int[]) AS skip_count, unnest(sqlc.arg(next_after)::timestamptz[]) AS next_after
        ORDER BY 1
    ) a
    WHERE j.id = a.id AND j.run_id = a.run_id AND j.state = 'executing'
    RETURNING j.id, j.run_id, j.run_slot, j.run_deployment, j.attempt, j.run_kind, j.started_at, j.controller,
        j.next_execution, j.version, j.enabled, a.verdict, a.error, a.skip_from, a.skip_to, a.skip_count,
        -- The new row tells whether the range was applied: then, and only then, the first of it is decided.
        COALESCE(j.version = a.version AND a.skip_to <= now() AND j.next_execution IS DISTINCT FROM a.skip_from, false)::bool AS applied
), ledger AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, run_id, deployment_id, attempt, kind, controller, started_at, ended_at, verdict, error)
    SELECT id, run_slot, run_slot, run_id, run_deployment, attempt, run_kind, controller, started_at, now(), verdict, NULLIF(error, '')
    FROM ended
), skipped AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at, controller)
    SELECT id, skip_from, skip_to, skip_count, 'skipped_overlap', now(), controller FROM ended WHERE applied
)
SELECT id, run_id, next_execution, version, enabled, applied FROM ended;

-- name: ReleaseCronJob :execrows
-- The last resort for one run whose ledger row cannot be written (its slot has a verdict already, by hand or by a
-- restored backup): the verdict that stands is kept, and the row must not stay executing.
UPDATE carillon.cron_jobs SET state = 'idle'
WHERE id = sqlc.arg(id)::bigint AND run_id = sqlc.arg(run_id)::uuid AND state = 'executing';

-- name: GetEndedRuns :many
-- Which of these runs stand in the ledger already: an End that is repeated because its answer got lost is no zombie.
-- The text tells it from the sweep's end of the same run, whose verdict may be the same.
SELECT r.cron_job_id, r.run_id, r.verdict, r.error
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(slots)::timestamptz[]) AS slot,
             unnest(sqlc.arg(run_ids)::uuid[]) AS run_id) a
JOIN carillon.runs r ON r.cron_job_id = a.id AND r.slot = a.slot AND r.run_id = a.run_id;

-- name: GetCronJobs :many
-- The present state of these rows, in a statement of its own: read after a claim, it sees the winner's commit.
SELECT sqlc.embed(j), COALESCE(d.key, '')::text AS deployment, clock_timestamp()::timestamptz AS now
FROM carillon.cron_jobs j LEFT JOIN carillon.deployments d ON d.id = j.deployment_id
WHERE j.id = ANY (sqlc.arg(ids)::bigint[]);

-- name: AwaitCronJobs :many
-- Waits for every claim that is under way on these rows. They are read by GetCronJobs afterwards, in the same
-- transaction: read in this statement, a row whose deployment changed while it waited would not be found.
SELECT j.id FROM carillon.cron_jobs j WHERE j.id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY j.id FOR NO KEY UPDATE;

-- name: GetCronJob :one
SELECT sqlc.embed(j), COALESCE(d.key, '')::text AS deployment, clock_timestamp()::timestamptz AS now
FROM carillon.cron_jobs j LEFT JOIN carillon.deployments d ON d.id = j.deployment_id
WHERE j.ref = $1;

-- name: ListShards :many
-- The reset: all rows of some shards, in pages by id.
SELECT sqlc.embed(j), COALESCE(d.key, '')::text AS deployment, clock_timestamp()::timestamptz AS now
FROM carillon.cron_jobs j LEFT JOIN carillon.deployments d ON d.id = j.deployment_id
WHERE j.shard = ANY (sqlc.arg(shards)::int[]) AND j.id > sqlc.arg(after)::bigint AND j.removed_at IS NULL
ORDER BY j.id
LIMIT sqlc.arg(page)::int;

-- name: ListModules :many
-- The rows of some modules, also the removed ones: what a hint makes a controller read again. A trigger's row is of none.
SELECT sqlc.embed(j), d.key AS deployment, clock_timestamp()::timestamptz AS now
FROM carillon.cron_jobs j JOIN carillon.deployments d ON d.id = j.deployment_id
JOIN carillon.modules m ON m.id = j.module_id
WHERE m.name = ANY (sqlc.arg(modules)::text[]) AND j.id > sqlc.arg(after)::bigint
ORDER BY j.id
LIMIT sqlc.arg(page)::int;

-- name: ListCronJobs :many
-- For people: in order of ref, with the long texts. Triggers have a list of their own.
SELECT sqlc.embed(j), d.key AS deployment, clock_timestamp()::timestamptz AS now,
       COALESCE(n.paused, '')::text AS paused_note, COALESCE(n.set_aside, '')::text AS set_aside_note, d.min_replicas
FROM carillon.cron_jobs j
JOIN carillon.deployments d ON d.id = j.deployment_id
JOIN carillon.modules m ON m.id = j.module_id
LEFT JOIN carillon.cron_job_notes n ON n.cron_job_id = j.id
WHERE (sqlc.arg(module)::text = '' OR m.name = sqlc.arg(module)::text)
  AND (sqlc.arg(ref)::text = '' OR j.ref = sqlc.arg(ref)::text)
  AND (sqlc.arg(removed)::bool OR j.removed_at IS NULL)
  AND j.ref > sqlc.arg(after)::text
ORDER BY j.ref
LIMIT sqlc.arg(page)::int;

-- name: ScanCronJobs :many
-- One pass over the table, every few seconds on every controller, for what the ring should never leave behind: rows
-- that are overdue for anybody, rows executing past their deadline or under a silent controller, and runs in this
-- controller's own name (it knows which of them it has). Sequential on purpose: an index on any of these columns
-- would cost every claim its HOT update; 1M rows are read in about 50 ms.
SELECT j.id, j.run_id, j.ref, j.run_slot, j.controller,
       COALESCE(j.enabled AND j.state = 'idle' AND j.next_execution < now() - make_interval(secs => sqlc.arg(overdue_secs)::float8), false)::bool AS overdue,
       (j.state = 'executing' AND j.controller = sqlc.arg(controller)::text)::bool AS mine,
       (j.state = 'executing' AND (j.deadline_at < now() OR NOT EXISTS (
            SELECT FROM carillon.controllers c WHERE c.key = j.controller
               AND c.heartbeat_at >= now() - make_interval(secs => sqlc.arg(lease_secs)::float8))))::bool AS stuck
FROM carillon.cron_jobs j
WHERE (j.state = 'idle' AND j.enabled AND j.next_execution < now() - make_interval(secs => sqlc.arg(overdue_secs)::float8))
   OR (j.state = 'executing' AND (
        (j.controller = sqlc.arg(controller)::text AND j.started_at < now() - make_interval(secs => sqlc.arg(mine_secs)::float8))
        OR j.deadline_at < now()
        OR NOT EXISTS (SELECT FROM carillon.controllers c WHERE c.key = j.controller
               AND c.heartbeat_at >= now() - make_interval(secs => sqlc.arg(lease_secs)::float8))))
ORDER BY j.state DESC -- executing first: a backlog of overdue rows must not crowd lost runs out
LIMIT sqlc.arg(page)::int;

-- name: SweepCronJobs :many
-- Frees lost runs: one conditional UPDATE that re-checks run id, deadline and the controller's heartbeat itself, and
-- the sweeper's own beats, so that an outage of the database makes nobody look dead. next_execution stays: the slots
-- that came meanwhile are decided by the next claim.
WITH me AS (
    SELECT 1 FROM carillon.controllers
    WHERE key = sqlc.arg(controller)::text
      AND alive_since < now() - make_interval(secs => sqlc.arg(lease_secs)::float8)
      AND heartbeat_at > now() - make_interval(secs => sqlc.arg(silence_secs)::float8)
), freed AS (
    UPDATE carillon.cron_jobs j
    SET state = 'idle'
    FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(run_ids)::uuid[]) AS run_id ORDER BY 1) a, me
    WHERE j.id = a.id AND j.run_id = a.run_id AND j.state = 'executing'
      AND (j.deadline_at < now() OR NOT EXISTS (
            SELECT FROM carillon.controllers c WHERE c.key = j.controller
               AND c.heartbeat_at >= now() - make_interval(secs => sqlc.arg(lease_secs)::float8)))
    RETURNING j.id, j.run_id, j.run_slot, j.run_deployment, j.attempt, j.run_kind, j.started_at, j.controller, j.ref,
        (j.deadline_at < now())::bool AS timed_out
), ledger AS (
    INSERT INTO carillon.runs (cron_job_id, slot, slot_to, run_id, deployment_id, attempt, kind, controller, started_at, ended_at, verdict, error)
    SELECT id, run_slot, run_slot, run_id, run_deployment, attempt, run_kind, controller, started_at, now(),
           (CASE WHEN timed_out THEN 'timed_out' ELSE 'lost' END)::carillon.verdict,
           CASE WHEN timed_out THEN 'hard timeout: no end was written' ELSE 'controller ' || controller || ' stopped' END
    FROM freed
)
SELECT id, run_id, ref, run_slot, controller, timed_out FROM freed;

-- name: SetAsideCronJob :execrows
-- A schedule that cannot be used: the row leaves the clock, its neighbours go on.
WITH aside AS (
    UPDATE carillon.cron_jobs SET enabled = false, set_aside_at = now(), version = version + 1
    WHERE id = sqlc.arg(id)::bigint AND version = sqlc.arg(version)::bigint AND set_aside_at IS NULL AND removed_at IS NULL
    RETURNING id, trigger_id
), told AS (
    UPDATE carillon.triggers t SET last_error = sqlc.arg(reason)::text, updated_at = now() FROM aside a WHERE t.id = a.trigger_id
)
INSERT INTO carillon.cron_job_notes (cron_job_id, set_aside)
SELECT id, sqlc.arg(reason)::text FROM aside
ON CONFLICT (cron_job_id) DO UPDATE SET set_aside = excluded.set_aside;

-- name: RepairCronJob :execrows
-- A next slot later than the schedule's own, or none where there is one: the database's clock had jumped.
UPDATE carillon.cron_jobs SET next_execution = sqlc.arg(next_execution)::timestamptz, version = version + 1
WHERE id = sqlc.arg(id)::bigint AND version = sqlc.arg(version)::bigint AND enabled AND state = 'idle'
  AND next_execution IS NOT DISTINCT FROM sqlc.narg(expected)::timestamptz;

-- name: LockCronJobs :many
-- Inside the transaction that deploys, scales, pauses or resumes: the rows of a module, locked in id order.
SELECT j.* FROM carillon.cron_jobs j WHERE j.module_id = sqlc.arg(module_id)::bigint ORDER BY j.id FOR NO KEY UPDATE;

-- name: ListModuleCronJobs :many
SELECT j.* FROM carillon.cron_jobs j WHERE j.module_id = sqlc.arg(module_id)::bigint ORDER BY j.id;

-- name: ListUnlocked :many
-- Which of these rows nobody holds: a claim or an end that ran into a lock goes on with them alone, so that somebody's
-- open transaction on one row does not hold up its neighbours.
SELECT j.id FROM carillon.cron_jobs j WHERE j.id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED;

-- name: InsertCronJob :one
INSERT INTO carillon.cron_jobs (module_id, deployment_id, ref, shard, schedule, time_zone, timeout_ms, catchup, overlap, enabled, next_execution,
    fires, queue_id, max_attempts, backoff_ms, backoff_max_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
RETURNING id;

-- name: InsertTriggerRow :one
-- The row that the clock fires for a trigger.
INSERT INTO carillon.cron_jobs (trigger_id, ref, shard, schedule, time_zone, timeout_ms, catchup, overlap, enabled, next_execution,
    fires, queue_id, max_attempts, backoff_ms, backoff_max_ms, limited)
SELECT t.id, '@' || t.key, sqlc.arg(shard)::int, sqlc.arg(schedule)::text, t.time_zone, t.timeout_ms, 'last', 'allow', true, sqlc.narg(next_execution)::timestamptz,
    true, t.queue_id, t.max_attempts, t.backoff_ms, t.backoff_max_ms, sqlc.arg(limited)::bool
FROM carillon.triggers t WHERE t.id = sqlc.arg(trigger_id)::bigint
RETURNING id;

-- name: UpdateTriggerRow :exec
-- UpdateCronJob for the row of a trigger.
UPDATE carillon.cron_jobs
SET schedule = sqlc.arg(schedule), enabled = sqlc.arg(enabled), next_execution = sqlc.narg(next_execution), paused_at = sqlc.narg(paused_at),
    removed_at = sqlc.narg(removed_at), set_aside_at = sqlc.narg(set_aside_at), version = version + 1
WHERE id = sqlc.arg(id);

-- name: PutOffJobs :exec
-- Jobs that the same transaction made are due later.
UPDATE carillon.jobs j SET due_at = a.due_at
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(due)::timestamptz[]) AS due_at) a
WHERE j.id = a.id;

-- name: UpdateCronJob :exec
-- The one writer of what a claim is computed from; the caller holds the row's lock.
UPDATE carillon.cron_jobs
SET deployment_id = sqlc.arg(deployment_id), schedule = sqlc.arg(schedule), time_zone = sqlc.arg(time_zone), timeout_ms = sqlc.arg(timeout_ms),
    catchup = sqlc.arg(catchup), overlap = sqlc.arg(overlap), enabled = sqlc.arg(enabled), next_execution = sqlc.narg(next_execution),
    fires = sqlc.arg(fires), queue_id = sqlc.narg(queue_id), max_attempts = sqlc.arg(max_attempts), backoff_ms = sqlc.arg(backoff_ms),
    backoff_max_ms = sqlc.arg(backoff_max_ms), paused_at = sqlc.narg(paused_at), removed_at = sqlc.narg(removed_at), set_aside_at = sqlc.narg(set_aside_at), version = version + 1
WHERE id = sqlc.arg(id);

-- name: InsertSkippedRange :exec
INSERT INTO carillon.runs (cron_job_id, slot, slot_to, count, verdict, ended_at, error)
VALUES (sqlc.arg(cron_job_id), sqlc.arg(slot), sqlc.arg(slot_to), sqlc.arg(count), sqlc.arg(verdict), clock_timestamp(), NULLIF(sqlc.arg(error)::text, ''))
ON CONFLICT (cron_job_id, slot) DO NOTHING; -- decided already, by hand or by a restored backup: that stands, and the module is not blocked

-- name: PutPausedNote :exec
INSERT INTO carillon.cron_job_notes (cron_job_id, paused) VALUES ($1, $2)
ON CONFLICT (cron_job_id) DO UPDATE SET paused = excluded.paused;
