-- Cron jobs that fire: their slots become jobs instead of runs of the row.
-- +goose Up

ALTER TYPE carillon.overlap ADD VALUE 'queue';
ALTER TYPE carillon.overlap ADD VALUE 'allow';
ALTER TYPE carillon.overlap ADD VALUE 'cancel';

-- Nothing here is changed by a claim, an end or a firing, and none of it is indexed: these updates stay HOT.
ALTER TABLE carillon.cron_jobs
    ADD COLUMN fires          boolean NOT NULL DEFAULT false, -- never executes: its slots become jobs
    ADD COLUMN queue_id       integer REFERENCES carillon.queues (id), -- where they go
    ADD COLUMN max_attempts   integer NOT NULL DEFAULT 1 CHECK (max_attempts BETWEEN 1 AND 1000),
    ADD COLUMN backoff_ms     integer NOT NULL DEFAULT 1000 CHECK (backoff_ms > 0),
    ADD COLUMN backoff_max_ms integer NOT NULL DEFAULT 600000 CHECK (backoff_max_ms > 0),
    ADD CONSTRAINT firing_names_its_queue CHECK (NOT fires OR queue_id IS NOT NULL);

-- The job that a fired slot became, with the chance in its public id.
ALTER TABLE carillon.runs
    ADD COLUMN job_id   bigint,
    ADD COLUMN job_salt integer,
    ADD CONSTRAINT fired_names_its_job CHECK ((verdict = 'fired') = (job_id IS NOT NULL AND job_salt IS NOT NULL));

-- A firing asks for the live jobs of its cron job. No claim, retry or end changes the column.
CREATE INDEX jobs_cron_job ON carillon.jobs (cron_job_id) WHERE cron_job_id IS NOT NULL;

-- +goose Down
DROP INDEX carillon.jobs_cron_job;
DELETE FROM carillon.runs WHERE verdict = 'fired';
ALTER TABLE carillon.runs DROP COLUMN job_id, DROP COLUMN job_salt;
ALTER TABLE carillon.cron_jobs DROP COLUMN fires, DROP COLUMN queue_id, DROP COLUMN max_attempts, DROP COLUMN backoff_ms, DROP COLUMN backoff_max_ms;
ALTER TYPE carillon.overlap RENAME TO wide_overlap;
CREATE TYPE carillon.overlap AS ENUM ('skip');
ALTER TABLE carillon.cron_jobs ALTER COLUMN overlap DROP DEFAULT;
ALTER TABLE carillon.cron_jobs ALTER COLUMN overlap TYPE carillon.overlap USING 'skip';
ALTER TABLE carillon.cron_jobs ALTER COLUMN overlap SET DEFAULT 'skip';
DROP TYPE carillon.wide_overlap;
