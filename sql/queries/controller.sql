-- name: RegisterController :one
-- A controller of the same endpoint that came before is superseded: it leaves the members at once, while its runs are
-- still judged by its last heartbeat.
WITH superseded AS (
    UPDATE carillon.controllers SET state = 'superseded' WHERE endpoint = sqlc.arg(endpoint)::text AND key <> sqlc.arg(key)::text AND state IN ('live', 'draining')
)
INSERT INTO carillon.controllers (key, endpoint, version, host, pid)
VALUES (sqlc.arg(key)::text, sqlc.arg(endpoint)::text, sqlc.arg(version)::text, sqlc.arg(host)::text, sqlc.arg(pid)::int)
RETURNING clock_timestamp()::timestamptz AS now;

-- name: BeatController :many
-- One beat, and the members in the same statement. alive_since restarts when the beat before is too old, or in the
-- future: whoever was away, or whose database was, may not judge others until it has been there for a whole lease.
-- No row with `self` means that the controller is not registered (any more).
WITH beat AS (
    UPDATE carillon.controllers c
    SET heartbeat_at = now(),
        alive_since = CASE
            WHEN c.heartbeat_at < now() - make_interval(secs => sqlc.arg(silence_secs)::float8) OR c.heartbeat_at > now() OR c.state = 'gone' THEN now()
            ELSE c.alive_since END,
        state = CASE WHEN c.state = 'gone' THEN 'live' ELSE c.state END
    WHERE c.key = sqlc.arg(key)::text
    RETURNING c.key, c.state, c.alive_since
)
SELECT c.key, c.endpoint, COALESCE(b.state, c.state)::carillon.controller_state AS state,
       COALESCE(b.alive_since, c.alive_since)::timestamptz AS alive_since, (b.key IS NOT NULL)::bool AS self,
       (b.key IS NOT NULL OR c.heartbeat_at > now() - make_interval(secs => sqlc.arg(silence_secs)::float8))::bool AS fresh,
       clock_timestamp()::timestamptz AS now
FROM carillon.controllers c LEFT JOIN beat b ON b.key = c.key
ORDER BY c.key;

-- name: ListControllers :many
SELECT sqlc.embed(c),
       (c.heartbeat_at > now() - make_interval(secs => sqlc.arg(silence_secs)::float8))::bool AS fresh,
       clock_timestamp()::timestamptz AS now
FROM carillon.controllers c
ORDER BY c.key;

-- name: SetControllerState :exec
UPDATE carillon.controllers SET state = sqlc.arg(state)::carillon.controller_state WHERE key = sqlc.arg(key)::text;

-- name: DeregisterController :exec
DELETE FROM carillon.controllers WHERE key = $1;

-- name: CountUnsweptControllers :one
-- Controllers whose lease has run out and of which the sweep has not yet made sure that they hold nothing.
SELECT count(*) FROM carillon.controllers
WHERE state <> 'gone' AND heartbeat_at < now() - make_interval(secs => sqlc.arg(lease_secs)::float8);

-- name: RetireControllers :execrows
-- Marks silent controllers without runs, and forgets those that were silent for a day.
WITH forgotten AS (
    DELETE FROM carillon.controllers WHERE state IN ('gone', 'superseded') AND heartbeat_at < now() - interval '1 day'
)
UPDATE carillon.controllers c SET state = 'gone'
WHERE c.state <> 'gone' AND c.heartbeat_at < now() - make_interval(secs => sqlc.arg(lease_secs)::float8)
  AND NOT EXISTS (SELECT FROM carillon.cron_jobs j WHERE j.state = 'executing' AND j.controller = c.key);

-- name: GetShardCount :one
SELECT shard_count FROM carillon.settings;

-- name: CountExecutingByController :many
SELECT j.controller, count(*) AS executing FROM carillon.cron_jobs j
WHERE j.state = 'executing' GROUP BY j.controller;
