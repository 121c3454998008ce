-- What the migrations make; written by `go test ./backend/store -run Golden -update`.

TYPE catchup ENUM (none, last, all)

TYPE controller_state ENUM (live, draining, superseded, gone)

TYPE job_state ENUM (idle, executing)

TYPE overlap ENUM (skip)

TYPE run_kind ENUM (slot, manual)

TYPE verdict ENUM (succeeded, failed, timed_out, lost, fired, skipped_overlap, skipped_missed, skipped_paused, cancelled)

TABLE controllers WITH (fillfactor=50)
    key text NOT NULL
    endpoint text NOT NULL
    state controller_state NOT NULL DEFAULT 'live'::controller_state
    started_at timestamp with time zone NOT NULL DEFAULT now()
    heartbeat_at timestamp with time zone NOT NULL DEFAULT now()
    alive_since timestamp with time zone NOT NULL DEFAULT now()
    version text NOT NULL DEFAULT ''::text
    host text NOT NULL DEFAULT ''::text
    pid integer NOT NULL DEFAULT 0

TABLE cron_job_notes
    cron_job_id bigint NOT NULL
    paused text NOT NULL DEFAULT ''::text
    set_aside text NOT NULL DEFAULT ''::text

TABLE cron_jobs WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_cost_delay=0)
    id bigint NOT NULL IDENTITY
    version bigint NOT NULL DEFAULT 1
    next_execution timestamp with time zone
    run_slot timestamp with time zone
    started_at timestamp with time zone
    deadline_at timestamp with time zone
    module_id bigint NOT NULL
    deployment_id bigint NOT NULL
    run_deployment bigint
    paused_at timestamp with time zone
    removed_at timestamp with time zone
    set_aside_at timestamp with time zone
    shard integer NOT NULL
    timeout_ms integer NOT NULL
    attempt integer NOT NULL DEFAULT 0
    state job_state NOT NULL DEFAULT 'idle'::job_state
    run_kind run_kind NOT NULL DEFAULT 'slot'::run_kind
    catchup catchup NOT NULL DEFAULT 'last'::catchup
    overlap overlap NOT NULL DEFAULT 'skip'::overlap
    enabled boolean NOT NULL
    run_id uuid
    ref text NOT NULL
    schedule text NOT NULL
    time_zone text NOT NULL DEFAULT ''::text
    controller text

TABLE deployments
    id bigint NOT NULL IDENTITY
    key text NOT NULL
    module_id bigint NOT NULL
    digest text NOT NULL
    language text NOT NULL
    schema text NOT NULL
    min_replicas integer NOT NULL DEFAULT 1
    created_at timestamp with time zone NOT NULL DEFAULT now()
    activated_at timestamp with time zone
    superseded_at timestamp with time zone

TABLE modules
    id bigint NOT NULL IDENTITY
    name text NOT NULL
    deployment_id bigint
    created_at timestamp with time zone NOT NULL DEFAULT now()

TABLE runners WITH (fillfactor=50)
    key text NOT NULL
    deployment_id bigint NOT NULL
    endpoint text NOT NULL
    capacity integer NOT NULL
    stream boolean NOT NULL
    registered_at timestamp with time zone NOT NULL DEFAULT now()
    heartbeat_at timestamp with time zone NOT NULL DEFAULT now()

TABLE runs PARTITION BY RANGE (slot)
    cron_job_id bigint NOT NULL
    slot timestamp with time zone NOT NULL
    slot_to timestamp with time zone NOT NULL
    started_at timestamp with time zone
    ended_at timestamp with time zone NOT NULL
    deployment_id bigint
    count integer NOT NULL DEFAULT 1
    attempt integer NOT NULL DEFAULT 0
    run_id uuid
    verdict verdict NOT NULL
    kind run_kind NOT NULL DEFAULT 'slot'::run_kind
    controller text
    error text

TABLE runs_default
    cron_job_id bigint NOT NULL
    slot timestamp with time zone NOT NULL
    slot_to timestamp with time zone NOT NULL
    started_at timestamp with time zone
    ended_at timestamp with time zone NOT NULL
    deployment_id bigint
    count integer NOT NULL DEFAULT 1
    attempt integer NOT NULL DEFAULT 0
    run_id uuid
    verdict verdict NOT NULL
    kind run_kind NOT NULL DEFAULT 'slot'::run_kind
    controller text
    error text

TABLE settings
    id boolean NOT NULL DEFAULT true
    shard_count integer NOT NULL

INDEX CREATE INDEX cron_jobs_module ON carillon.cron_jobs USING btree (module_id)

INDEX CREATE INDEX cron_jobs_shard ON carillon.cron_jobs USING btree (shard, id)

INDEX CREATE INDEX runners_deployment ON carillon.runners USING btree (deployment_id)

INDEX CREATE INDEX runs_default_ended_at_cron_job_id_slot_idx ON carillon.runs_default USING btree (ended_at, cron_job_id, slot)

INDEX CREATE INDEX runs_default_slot_to_idx ON carillon.runs_default USING btree (slot_to) WHERE (run_id IS NULL)

INDEX CREATE INDEX runs_ended ON ONLY carillon.runs USING btree (ended_at, cron_job_id, slot)

INDEX CREATE INDEX runs_ranges ON ONLY carillon.runs USING btree (slot_to) WHERE (run_id IS NULL)

INDEX CREATE UNIQUE INDEX controllers_pkey ON carillon.controllers USING btree (key)

INDEX CREATE UNIQUE INDEX cron_job_notes_pkey ON carillon.cron_job_notes USING btree (cron_job_id)

INDEX CREATE UNIQUE INDEX cron_jobs_pkey ON carillon.cron_jobs USING btree (id)

INDEX CREATE UNIQUE INDEX cron_jobs_ref_key ON carillon.cron_jobs USING btree (ref)

INDEX CREATE UNIQUE INDEX deployments_key_key ON carillon.deployments USING btree (key)

INDEX CREATE UNIQUE INDEX deployments_module_id_digest_key ON carillon.deployments USING btree (module_id, digest)

INDEX CREATE UNIQUE INDEX deployments_pkey ON carillon.deployments USING btree (id)

INDEX CREATE UNIQUE INDEX modules_name_key ON carillon.modules USING btree (name)

INDEX CREATE UNIQUE INDEX modules_pkey ON carillon.modules USING btree (id)

INDEX CREATE UNIQUE INDEX runners_pkey ON carillon.runners USING btree (key)

INDEX CREATE UNIQUE INDEX runs_default_pkey ON carillon.runs_default USING btree (cron_job_id, slot)

INDEX CREATE UNIQUE INDEX runs_pkey ON ONLY carillon.runs USING btree (cron_job_id, slot)

INDEX CREATE UNIQUE INDEX settings_pkey ON carillon.settings USING btree (id)

CONSTRAINT cron_job_notes.cron_job_notes_cron_job_id_fkey FOREIGN KEY (cron_job_id) REFERENCES cron_jobs(id) ON DELETE CASCADE

CONSTRAINT cron_jobs.cron_jobs_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id)

CONSTRAINT cron_jobs.cron_jobs_module_id_fkey FOREIGN KEY (module_id) REFERENCES modules(id) ON DELETE CASCADE

CONSTRAINT cron_jobs.cron_jobs_shard_check CHECK ((shard >= 0))

CONSTRAINT cron_jobs.cron_jobs_timeout_ms_check CHECK ((timeout_ms > 0))

CONSTRAINT cron_jobs.disabled_has_a_reason_off CHECK (((NOT enabled) OR ((paused_at IS NULL) AND (removed_at IS NULL) AND (set_aside_at IS NULL))))

CONSTRAINT cron_jobs.executing_names_its_run CHECK (((state = 'idle'::job_state) OR ((run_id IS NOT NULL) AND (run_slot IS NOT NULL) AND (started_at IS NOT NULL) AND (deadline_at IS NOT NULL) AND (controller IS NOT NULL) AND (run_deployment IS NOT NULL))))

CONSTRAINT cron_jobs.next_execution_is_a_time CHECK (isfinite(next_execution))

CONSTRAINT deployments.deployments_min_replicas_check CHECK ((min_replicas >= 0))

CONSTRAINT deployments.deployments_module_id_fkey FOREIGN KEY (module_id) REFERENCES modules(id) ON DELETE CASCADE

CONSTRAINT modules.modules_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id)

CONSTRAINT runners.runners_capacity_check CHECK ((capacity > 0))

CONSTRAINT runners.runners_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id) ON DELETE CASCADE

CONSTRAINT runs.runs_check CHECK ((slot <= slot_to))

CONSTRAINT runs.runs_check1 CHECK (((run_id IS NULL) = (verdict = ANY (ARRAY['skipped_overlap'::verdict, 'skipped_missed'::verdict, 'skipped_paused'::verdict]))))

CONSTRAINT runs.runs_count_check CHECK ((count > 0))

CONSTRAINT runs_default.runs_check CHECK ((slot <= slot_to))

CONSTRAINT runs_default.runs_check1 CHECK (((run_id IS NULL) = (verdict = ANY (ARRAY['skipped_overlap'::verdict, 'skipped_missed'::verdict, 'skipped_paused'::verdict]))))

CONSTRAINT runs_default.runs_count_check CHECK ((count > 0))

CONSTRAINT settings.settings_id_check CHECK (id)

CONSTRAINT settings.settings_shard_count_check CHECK ((shard_count > 0))

FUNCTION create_run_partitions(ahead integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION drop_run_partitions(keep integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp
