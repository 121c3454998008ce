-- name: InsertEvents :many
-- Ids come back in the order of the arrays.
INSERT INTO carillon.events (id, shard, tenant, type, verb, doc_id, doc, old, path, old_path, dirs, bytes)
SELECT b.id, (b.id % 1021)::int, sqlc.arg(tenant)::text, b.type, b.verb, b.doc_id, NULLIF(b.doc, '')::jsonb, NULLIF(b.old, '')::jsonb, b.path, b.old_path,
    NULLIF(b.dirs, '')::jsonb, b.bytes
FROM (
    SELECT nextval('carillon.event_ids') AS id, a.*
    FROM (SELECT unnest(sqlc.arg(types)::text[]) AS type, unnest(sqlc.arg(verbs)::text[]) AS verb, unnest(sqlc.arg(doc_ids)::text[]) AS doc_id,
        unnest(sqlc.arg(docs)::text[]) AS doc, unnest(sqlc.arg(olds)::text[]) AS old, unnest(sqlc.arg(paths)::text[]) AS path,
        unnest(sqlc.arg(old_paths)::text[]) AS old_path, unnest(sqlc.arg(dirs)::text[]) AS dirs, unnest(sqlc.arg(bytes)::int[]) AS bytes) a
) b
RETURNING id;

-- name: FetchEvents :many
-- The next events of some shards, up to so many and about so many bytes. Read by the primary key, whatever the shards: what
-- is not there is somebody else's. Ids come from blocks that sessions keep, so that one that commits late may stand before
-- others: who has reached the end begins anew.
SELECT e.id, e.tenant, e.type, e.verb, e.doc_id, e.doc, e.old, e.path, e.old_path, e.dirs, e.created_at, e.upto, e.found
FROM (
    SELECT p.*, sum(p.bytes) OVER (ORDER BY p.id) - p.bytes AS before, count(*) OVER () AS found
    FROM (SELECT * FROM carillon.events v
          WHERE v.id > sqlc.arg(after)::bigint AND v.shard = ANY (sqlc.arg(shards)::int[])
            AND (sqlc.arg(older_secs)::float8 = 0 OR v.created_at < now() - make_interval(secs => sqlc.arg(older_secs)::float8))
          ORDER BY v.id LIMIT sqlc.arg(page)::int) p
) e
WHERE e.before < sqlc.arg(max_bytes)::bigint
ORDER BY e.id;

-- name: ReadEpoch :one
SELECT n FROM carillon.trigger_epoch;

-- name: FetchEventTriggers :many
-- The event triggers that changed after an epoch, the deleted ones among them; from the beginning on, those that are there.
SELECT id, tenant, arguments, epoch, (deleted_at IS NOT NULL)::bool AS gone
FROM carillon.triggers
WHERE kind = '@event' AND epoch > sqlc.arg(since)::bigint AND (sqlc.arg(since)::bigint >= 0 OR deleted_at IS NULL)
ORDER BY epoch, id;

-- name: LockEvents :many
-- Those of these events that nobody else is making something of.
SELECT id, upto FROM carillon.events WHERE id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: DropEvents :execrows
DELETE FROM carillon.events WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: KeepEvents :exec
-- Events that further triggers wait for: those up to an id have been dealt with.
UPDATE carillon.events e SET upto = a.upto
FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS id, unnest(sqlc.arg(uptos)::bigint[]) AS upto) a
WHERE e.id = a.id;

-- name: DropFreeEvents :execrows
-- Events that no trigger waits for.
DELETE FROM carillon.events WHERE id IN (SELECT e.id FROM carillon.events e WHERE e.id = ANY (sqlc.arg(ids)::bigint[]) ORDER BY e.id FOR UPDATE SKIP LOCKED);

-- name: GetMakers :many
-- Triggers that may make something now, unless they are gone. That is no condition here: with one, a plan for an unanalysed
-- table reads the whole index of those that are not deleted, once for each id.
SELECT id, tenant, domain, ref, debounce_ms, (deleted_at IS NOT NULL)::bool AS gone FROM carillon.triggers WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: InsertEventJobs :many
-- Jobs of events, one for each pair of an event and a trigger that it matched; the caller holds the events' locks. OFFSET 0
-- keeps the ways to both tables to their keys: joined plainly, a plan for tables that were not analysed since they filled
-- goes through all triggers with all pairs.
INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload, trigger_id, envelope)
SELECT b.id, b.queue_id, (b.id % 1021)::int, b.salt, COALESCE(b.due_at, now()), b.max_attempts, b.backoff_ms, b.backoff_max_ms, b.timeout_ms, b.priority, b.message, b.trigger_id,
    jsonb_build_object('trigger', b.key, 'kind', b.kind, 'worker', b.worker, 'event', jsonb_build_object('verb', b.verb, 'doc', b.doc)
            || CASE WHEN b.old IS NULL THEN '{}' ELSE jsonb_build_object('old', b.old) END)
        || CASE WHEN b.domain = '' THEN '{}' ELSE jsonb_build_object('domain', b.domain) END
        || CASE WHEN b.options IS NULL THEN '{}' ELSE jsonb_build_object('options', b.options) END
FROM (
    SELECT nextval('carillon.job_ids') AS id, a.salt, a.due_at, a.trigger_id, t.queue_id, t.max_attempts, t.backoff_ms, t.backoff_max_ms, t.timeout_ms, t.priority, t.message,
        t.key, t.kind, t.worker, t.domain, t.options, e.verb, e.doc, e.old
    FROM (SELECT unnest(sqlc.arg(event_ids)::bigint[]) AS event_id, unnest(sqlc.arg(trigger_ids)::bigint[]) AS trigger_id, unnest(sqlc.arg(salts)::int[]) AS salt,
                 unnest(sqlc.arg(due)::timestamptz[]) AS due_at) a
    CROSS JOIN LATERAL (SELECT * FROM carillon.events WHERE id = a.event_id OFFSET 0) e
    CROSS JOIN LATERAL (SELECT * FROM carillon.triggers WHERE id = a.trigger_id OFFSET 0) t
    WHERE t.tenant = e.tenant AND t.deleted_at IS NULL
    ORDER BY a.event_id, a.trigger_id
) b
RETURNING id, queue_id, shard, priority, due_at;

-- name: LockDebounces :many
-- The open windows of these triggers, locked in one order.
SELECT d.trigger_id, d.fire_at, d.count, d.payloads, d.manual, (d.fire_at <= clock_timestamp())::bool AS due, clock_timestamp()::timestamptz AS now
FROM carillon.debounces d WHERE d.trigger_id = ANY (sqlc.arg(trigger_ids)::bigint[]) ORDER BY d.trigger_id FOR UPDATE;

-- name: LockDueDebounces :many
-- Windows that are over, but for those that somebody else is closing.
SELECT d.trigger_id, d.fire_at, d.count, d.payloads, d.manual, t.kind::text AS kind, t.tenant, t.domain, t.ref, t.options, (t.deleted_at IS NOT NULL)::bool AS gone
FROM carillon.debounces d JOIN carillon.triggers t ON t.id = d.trigger_id
WHERE d.fire_at <= now()
ORDER BY d.fire_at, d.trigger_id LIMIT sqlc.arg(page)::int FOR UPDATE OF d SKIP LOCKED;

-- name: DropDebounces :exec
DELETE FROM carillon.debounces WHERE trigger_id = ANY (sqlc.arg(trigger_ids)::bigint[]);

-- name: OpenDebounces :many
-- Opens windows of triggers that had none, empty; the transaction fills them, or drops them. Where somebody else has opened
-- one in this moment, it is locked and returned as LockDebounces does. Ends are computed from the clock, not from the
-- transaction's begin: a lock may have been waited for.
INSERT INTO carillon.debounces AS d (trigger_id, fire_at, count)
SELECT a.trigger_id, clock_timestamp() + make_interval(secs => a.debounce_ms / 1000.0), 0
FROM (SELECT unnest(sqlc.arg(trigger_ids)::bigint[]) AS trigger_id, unnest(sqlc.arg(debounces_ms)::bigint[]) AS debounce_ms ORDER BY 1) a
ON CONFLICT (trigger_id) DO UPDATE SET count = d.count
RETURNING d.trigger_id, d.fire_at, d.count, d.payloads, d.manual, (d.count > 0 AND d.fire_at <= clock_timestamp())::bool AS due, clock_timestamp()::timestamptz AS now;

-- name: PutDebounces :many
-- Counts matches of events in windows that the caller has locked; those that were over begin anew.
UPDATE carillon.debounces d SET
    fire_at = CASE WHEN a.anew THEN clock_timestamp() + make_interval(secs => a.debounce_ms / 1000.0) ELSE d.fire_at END,
    count = CASE WHEN a.anew THEN 0 ELSE d.count END + a.count
FROM (SELECT unnest(sqlc.arg(trigger_ids)::bigint[]) AS trigger_id, unnest(sqlc.arg(debounces_ms)::bigint[]) AS debounce_ms,
             unnest(sqlc.arg(counts)::bigint[]) AS count, unnest(sqlc.arg(anew)::bool[]) AS anew) a
WHERE d.trigger_id = a.trigger_id
RETURNING d.trigger_id, extract(epoch FROM d.fire_at - clock_timestamp())::float8 AS in_secs;

-- name: PutDelivery :one
-- One delivery of a webhook into its window, which the caller has locked: it is appended. Where the caller found the window
-- full or over, it is replaced, and the new one ends when it says (null: after its time).
UPDATE carillon.debounces d SET
    fire_at = CASE WHEN sqlc.arg(replace)::bool
        THEN COALESCE(sqlc.narg(fire_at)::timestamptz, clock_timestamp() + make_interval(secs => sqlc.arg(debounce_ms)::bigint / 1000.0)) ELSE d.fire_at END,
    count = CASE WHEN sqlc.arg(replace)::bool THEN 1 ELSE d.count + 1 END,
    payloads = CASE WHEN sqlc.arg(replace)::bool THEN '{}' ELSE d.payloads END || sqlc.arg(payload)::bytea,
    manual = sqlc.arg(manual)::bool OR d.manual AND NOT sqlc.arg(replace)::bool
WHERE d.trigger_id = sqlc.arg(trigger_id)::bigint
RETURNING d.fire_at, extract(epoch FROM d.fire_at - clock_timestamp())::float8 AS in_secs;

-- name: NextDebounce :one
SELECT COALESCE(extract(epoch FROM min(fire_at) - clock_timestamp()), 'infinity')::float8 AS in_secs FROM carillon.debounces;

-- name: InsertTriggerJobs :many
-- Jobs of triggers: of closed windows, and of deliveries that wait for none. extra is what their envelope says beside the
-- trigger's own. Where a queue is given (0: none), the job goes there, with the priority of what somebody waits for. OFFSET 0
-- keeps the way to the triggers to their key, as in InsertEventJobs.
INSERT INTO carillon.jobs (id, queue_id, shard, salt, due_at, max_attempts, backoff_ms, backoff_max_ms, timeout_ms, priority, payload, trigger_id, envelope)
SELECT b.id, b.queue_id, (b.id % 1021)::int, b.salt, COALESCE(b.due_at, now()), b.max_attempts, b.backoff_ms, b.backoff_max_ms, b.timeout_ms, b.priority, b.message, b.trigger_id,
    jsonb_build_object('trigger', b.key, 'kind', b.kind, 'worker', b.worker)
        || CASE WHEN b.domain = '' THEN '{}' ELSE jsonb_build_object('domain', b.domain) END
        || CASE WHEN b.options IS NULL THEN '{}' ELSE jsonb_build_object('options', b.options) END
        || b.extra::jsonb
FROM (
    SELECT COALESCE(NULLIF(a.given, 0), nextval('carillon.job_ids')) AS id, a.salt, a.due_at, a.trigger_id, a.extra, COALESCE(NULLIF(a.raised_id, 0), t.queue_id) AS queue_id,
        CASE WHEN a.raised_id = 0 THEN t.priority ELSE sqlc.arg(raised_priority)::smallint END AS priority, t.max_attempts, t.backoff_ms, t.backoff_max_ms, t.timeout_ms, t.message, t.key, t.kind, t.worker, t.domain, t.options
    FROM (SELECT unnest(sqlc.arg(ids)::bigint[]) AS given, unnest(sqlc.arg(trigger_ids)::bigint[]) AS trigger_id, unnest(sqlc.arg(salts)::int[]) AS salt,
                 unnest(sqlc.arg(due)::timestamptz[]) AS due_at, unnest(sqlc.arg(extras)::text[]) AS extra,
                 unnest(sqlc.arg(raised_ids)::int[]) AS raised_id) a
    CROSS JOIN LATERAL (SELECT * FROM carillon.triggers WHERE id = a.trigger_id OFFSET 0) t
    WHERE t.deleted_at IS NULL
    ORDER BY a.trigger_id
) b
RETURNING id, salt, queue_id, shard, priority, due_at;

-- name: GetWebhook :one
SELECT id, kind::text AS kind, tenant, domain, ref, debounce_ms, options FROM carillon.triggers WHERE key = sqlc.arg(key)::text AND deleted_at IS NULL;

-- name: PutDeliveryKey :execrows
INSERT INTO carillon.job_keys (tenant, kind, key, job_id, salt, hash, expires_at)
VALUES (sqlc.arg(tenant)::text, 'idempotency', sqlc.arg(key)::text, sqlc.arg(job_id)::bigint, sqlc.arg(salt)::int, sqlc.arg(hash)::bytea, now() + make_interval(secs => sqlc.arg(keep_ms)::bigint / 1000.0))
ON CONFLICT (tenant, kind, key) DO NOTHING;

-- name: DropDeliveryKey :exec
DELETE FROM carillon.job_keys WHERE tenant = sqlc.arg(tenant)::text AND kind = 'idempotency' AND key = sqlc.arg(key)::text;

-- name: NoteTriggerError :exec
-- What went wrong with a trigger, for people to see.
UPDATE carillon.triggers SET last_error = sqlc.arg(error)::text WHERE id = sqlc.arg(id)::bigint AND deleted_at IS NULL AND last_error IS DISTINCT FROM sqlc.arg(error)::text;
