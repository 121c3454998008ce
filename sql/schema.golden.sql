-- What the migrations make; written by `go test ./backend/store -run Golden -update`.

TYPE catchup ENUM (none, last, all)

TYPE controller_state ENUM (live, draining, superseded, gone)

TYPE job_state ENUM (idle, executing)

TYPE job_status ENUM (ready, running, blocked, succeeded, failed, cancelled)

TYPE overlap ENUM (skip, queue, allow, cancel)

TYPE run_kind ENUM (slot, manual)

TYPE trigger_kind ENUM (@at, @in, @every, @cron, @hourly, @daily, @weekly, @monthly, @event, @webhook, @client)

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
    module_id bigint
    deployment_id bigint
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
    fires boolean NOT NULL DEFAULT false
    queue_id integer
    max_attempts integer NOT NULL DEFAULT 1
    backoff_ms integer NOT NULL DEFAULT 1000
    backoff_max_ms integer NOT NULL DEFAULT 600000
    trigger_id bigint
    limited boolean NOT NULL DEFAULT false

TABLE debounces WITH (fillfactor=50)
    trigger_id bigint NOT NULL
    fire_at timestamp with time zone NOT NULL
    count bigint NOT NULL DEFAULT 1
    payloads bytea[] NOT NULL DEFAULT '{}'::bytea[]
    manual boolean NOT NULL DEFAULT false

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

TABLE events WITH (fillfactor=90, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id bigint NOT NULL DEFAULT nextval('event_ids'::regclass)
    shard integer NOT NULL
    tenant text NOT NULL
    type text NOT NULL
    verb text NOT NULL
    doc_id text NOT NULL DEFAULT ''::text
    doc jsonb
    old jsonb
    path text NOT NULL DEFAULT ''::text
    old_path text NOT NULL DEFAULT ''::text
    created_at timestamp with time zone NOT NULL DEFAULT now()
    dirs jsonb
    bytes integer NOT NULL DEFAULT 0
    upto bigint NOT NULL DEFAULT 0

TABLE job_history PARTITION BY RANGE (ended_at)
    id bigint NOT NULL
    ended_at timestamp with time zone NOT NULL
    created_at timestamp with time zone NOT NULL
    due_at timestamp with time zone NOT NULL
    started_at timestamp with time zone
    expires_at timestamp with time zone
    slot timestamp with time zone
    parent_id bigint
    parent_salt integer
    cron_job_id bigint
    run_deployment bigint
    queue_id integer NOT NULL
    salt integer NOT NULL
    attempt integer NOT NULL
    max_attempts integer NOT NULL
    backoff_ms integer NOT NULL
    backoff_max_ms integer NOT NULL
    timeout_ms integer NOT NULL
    priority smallint NOT NULL
    state job_status NOT NULL
    run_id uuid
    controller text
    unique_key text
    progress text
    tags text[]
    payload bytea NOT NULL
    output bytea
    errors jsonb
    redriven boolean NOT NULL DEFAULT false
    trigger_id bigint
    envelope jsonb

TABLE job_history_default
    id bigint NOT NULL
    ended_at timestamp with time zone NOT NULL
    created_at timestamp with time zone NOT NULL
    due_at timestamp with time zone NOT NULL
    started_at timestamp with time zone
    expires_at timestamp with time zone
    slot timestamp with time zone
    parent_id bigint
    parent_salt integer
    cron_job_id bigint
    run_deployment bigint
    queue_id integer NOT NULL
    salt integer NOT NULL
    attempt integer NOT NULL
    max_attempts integer NOT NULL
    backoff_ms integer NOT NULL
    backoff_max_ms integer NOT NULL
    timeout_ms integer NOT NULL
    priority smallint NOT NULL
    state job_status NOT NULL
    run_id uuid
    controller text
    unique_key text
    progress text
    tags text[]
    payload bytea NOT NULL
    output bytea
    errors jsonb
    redriven boolean NOT NULL DEFAULT false
    trigger_id bigint
    envelope jsonb

TABLE job_keys WITH (fillfactor=80)
    kind text NOT NULL
    tenant text NOT NULL
    key text NOT NULL
    job_id bigint NOT NULL
    salt integer NOT NULL
    hash bytea NOT NULL
    expires_at timestamp with time zone

TABLE jobs WITH (fillfactor=40, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id bigint NOT NULL DEFAULT nextval('job_ids'::regclass)
    due_at timestamp with time zone NOT NULL
    created_at timestamp with time zone NOT NULL DEFAULT now()
    started_at timestamp with time zone
    deadline_at timestamp with time zone
    expires_at timestamp with time zone
    slot timestamp with time zone
    parent_id bigint
    parent_salt integer
    cron_job_id bigint
    run_deployment bigint
    queue_id integer NOT NULL
    shard integer NOT NULL
    salt integer NOT NULL
    attempt integer NOT NULL DEFAULT 0
    max_attempts integer NOT NULL
    backoff_ms integer NOT NULL
    backoff_max_ms integer NOT NULL
    timeout_ms integer NOT NULL
    children integer NOT NULL DEFAULT 0
    priority smallint NOT NULL
    state job_status NOT NULL DEFAULT 'ready'::job_status
    limited boolean NOT NULL DEFAULT false
    cancelled boolean NOT NULL DEFAULT false
    run_id uuid
    controller text
    unique_key text
    progress text
    tags text[]
    payload bytea NOT NULL
    errors jsonb
    trigger_id bigint
    envelope jsonb

TABLE limits WITH (fillfactor=50)
    ref text NOT NULL
    max_running integer NOT NULL
    running integer NOT NULL DEFAULT 0

TABLE modules
    id bigint NOT NULL IDENTITY
    name text NOT NULL
    deployment_id bigint
    created_at timestamp with time zone NOT NULL DEFAULT now()

TABLE pauses
    tenant text NOT NULL
    ref text NOT NULL
    paused_at timestamp with time zone NOT NULL DEFAULT now()
    reason text NOT NULL DEFAULT ''::text

TABLE queues WITH (fillfactor=50)
    id integer NOT NULL IDENTITY
    lane smallint NOT NULL
    tenant text NOT NULL
    ref text NOT NULL
    limited boolean NOT NULL DEFAULT false
    paused_at timestamp with time zone

TABLE rate_limits WITH (fillfactor=50)
    tenant text NOT NULL
    domain text NOT NULL
    kind text NOT NULL
    opened_at timestamp with time zone NOT NULL DEFAULT now()
    count integer NOT NULL

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
    job_id bigint
    job_salt integer

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
    job_id bigint
    job_salt integer

TABLE settings
    id boolean NOT NULL DEFAULT true
    shard_count integer NOT NULL

TABLE tokens
    id bigint NOT NULL IDENTITY
    name text NOT NULL
    hash bytea NOT NULL
    tenant text NOT NULL
    domain text NOT NULL DEFAULT ''::text
    kind text NOT NULL
    scope text NOT NULL DEFAULT ''::text
    created_at timestamp with time zone NOT NULL DEFAULT now()
    expires_at timestamp with time zone
    revoked_at timestamp with time zone
    used_at timestamp with time zone
    slug text NOT NULL DEFAULT ''::text
    trigger_key text NOT NULL DEFAULT ''::text

TABLE trigger_epoch WITH (fillfactor=20)
    one boolean NOT NULL DEFAULT true
    n bigint NOT NULL DEFAULT 0

TABLE triggers
    id bigint NOT NULL IDENTITY
    key text NOT NULL
    tenant text NOT NULL
    domain text NOT NULL DEFAULT ''::text
    kind trigger_kind NOT NULL
    arguments text NOT NULL DEFAULT ''::text
    time_zone text NOT NULL DEFAULT ''::text
    worker text NOT NULL
    ref text NOT NULL
    queue_id integer NOT NULL
    priority smallint NOT NULL
    max_attempts integer NOT NULL
    backoff_ms integer NOT NULL
    backoff_max_ms integer NOT NULL
    timeout_ms integer NOT NULL
    message bytea NOT NULL DEFAULT '\x'::bytea
    options jsonb
    debounce text NOT NULL DEFAULT ''::text
    debounce_ms bigint NOT NULL DEFAULT 0
    secret bytea
    created_by text NOT NULL DEFAULT ''::text
    rev integer NOT NULL DEFAULT 1
    epoch bigint NOT NULL DEFAULT 0
    created_at timestamp with time zone NOT NULL DEFAULT now()
    updated_at timestamp with time zone NOT NULL DEFAULT now()
    deleted_at timestamp with time zone
    last_error text

INDEX CREATE INDEX cron_jobs_module ON carillon.cron_jobs USING btree (module_id)

INDEX CREATE INDEX cron_jobs_shard ON carillon.cron_jobs USING btree (shard, id)

INDEX CREATE INDEX debounces_due ON carillon.debounces USING btree (fire_at)

INDEX CREATE INDEX events_shard ON carillon.events USING btree (shard, id)

INDEX CREATE INDEX job_history_dead ON ONLY carillon.job_history USING btree (ended_at, id) WHERE ((state = 'failed'::job_status) AND (NOT redriven))

INDEX CREATE INDEX job_history_default_ended_at_id_idx ON carillon.job_history_default USING btree (ended_at, id)

INDEX CREATE INDEX job_history_default_ended_at_id_idx1 ON carillon.job_history_default USING btree (ended_at, id) WHERE ((state = 'failed'::job_status) AND (NOT redriven))

INDEX CREATE INDEX job_history_default_id_idx ON carillon.job_history_default USING btree (id)

INDEX CREATE INDEX job_history_default_parent_id_ended_at_id_idx ON carillon.job_history_default USING btree (parent_id, ended_at, id) WHERE (parent_id IS NOT NULL)

INDEX CREATE INDEX job_history_default_queue_id_state_created_at_id_idx ON carillon.job_history_default USING btree (queue_id, state, created_at, id) WHERE (envelope IS NOT NULL)

INDEX CREATE INDEX job_history_default_trigger_id_created_at_id_idx ON carillon.job_history_default USING btree (trigger_id, created_at, id) WHERE ((trigger_id IS NOT NULL) AND ((envelope ->> 'manual'::text) = 'true'::text))

INDEX CREATE INDEX job_history_default_trigger_id_state_created_at_id_idx ON carillon.job_history_default USING btree (trigger_id, state, created_at, id) WHERE (trigger_id IS NOT NULL)

INDEX CREATE INDEX job_history_ended ON ONLY carillon.job_history USING btree (ended_at, id)

INDEX CREATE INDEX job_history_id ON ONLY carillon.job_history USING btree (id)

INDEX CREATE INDEX job_history_manual ON ONLY carillon.job_history USING btree (trigger_id, created_at, id) WHERE ((trigger_id IS NOT NULL) AND ((envelope ->> 'manual'::text) = 'true'::text))

INDEX CREATE INDEX job_history_parent ON ONLY carillon.job_history USING btree (parent_id, ended_at, id) WHERE (parent_id IS NOT NULL)

INDEX CREATE INDEX job_history_purge ON ONLY carillon.job_history USING btree (queue_id, state, created_at, id) WHERE (envelope IS NOT NULL)

INDEX CREATE INDEX job_history_trigger ON ONLY carillon.job_history USING btree (trigger_id, state, created_at, id) WHERE (trigger_id IS NOT NULL)

INDEX CREATE INDEX job_keys_expiry ON carillon.job_keys USING btree (expires_at) WHERE (expires_at IS NOT NULL)

INDEX CREATE INDEX jobs_cron_job ON carillon.jobs USING btree (cron_job_id) WHERE (cron_job_id IS NOT NULL)

INDEX CREATE INDEX jobs_expiry ON carillon.jobs USING btree (expires_at) WHERE (expires_at IS NOT NULL)

INDEX CREATE INDEX jobs_parent ON carillon.jobs USING btree (parent_id, id) WHERE (parent_id IS NOT NULL)

INDEX CREATE INDEX jobs_trigger ON carillon.jobs USING btree (trigger_id, created_at, id) WHERE (trigger_id IS NOT NULL)

INDEX CREATE INDEX jobs_window ON carillon.jobs USING btree (queue_id, due_at, ((id + 0)))

INDEX CREATE INDEX runners_deployment ON carillon.runners USING btree (deployment_id)

INDEX CREATE INDEX runs_default_ended_at_cron_job_id_slot_idx ON carillon.runs_default USING btree (ended_at, cron_job_id, slot)

INDEX CREATE INDEX runs_default_slot_to_idx ON carillon.runs_default USING btree (slot_to) WHERE (run_id IS NULL)

INDEX CREATE INDEX runs_ended ON ONLY carillon.runs USING btree (ended_at, cron_job_id, slot)

INDEX CREATE INDEX runs_ranges ON ONLY carillon.runs USING btree (slot_to) WHERE (run_id IS NULL)

INDEX CREATE INDEX triggers_deleted ON carillon.triggers USING btree (deleted_at) WHERE (deleted_at IS NOT NULL)

INDEX CREATE INDEX triggers_events ON carillon.triggers USING btree (epoch) WHERE (kind = '@event'::trigger_kind)

INDEX CREATE INDEX triggers_tenant ON carillon.triggers USING btree (tenant, id) WHERE (deleted_at IS NULL)

INDEX CREATE UNIQUE INDEX controllers_pkey ON carillon.controllers USING btree (key)

INDEX CREATE UNIQUE INDEX cron_job_notes_pkey ON carillon.cron_job_notes USING btree (cron_job_id)

INDEX CREATE UNIQUE INDEX cron_jobs_pkey ON carillon.cron_jobs USING btree (id)

INDEX CREATE UNIQUE INDEX cron_jobs_ref_key ON carillon.cron_jobs USING btree (ref)

INDEX CREATE UNIQUE INDEX cron_jobs_trigger ON carillon.cron_jobs USING btree (trigger_id) WHERE (trigger_id IS NOT NULL)

INDEX CREATE UNIQUE INDEX debounces_pkey ON carillon.debounces USING btree (trigger_id)

INDEX CREATE UNIQUE INDEX deployments_key_key ON carillon.deployments USING btree (key)

INDEX CREATE UNIQUE INDEX deployments_module_id_digest_key ON carillon.deployments USING btree (module_id, digest)

INDEX CREATE UNIQUE INDEX deployments_pkey ON carillon.deployments USING btree (id)

INDEX CREATE UNIQUE INDEX events_pkey ON carillon.events USING btree (id)

INDEX CREATE UNIQUE INDEX job_keys_pkey ON carillon.job_keys USING btree (tenant, kind, key)

INDEX CREATE UNIQUE INDEX jobs_pkey ON carillon.jobs USING btree (id)

INDEX CREATE UNIQUE INDEX limits_pkey ON carillon.limits USING btree (ref)

INDEX CREATE UNIQUE INDEX modules_name_key ON carillon.modules USING btree (name)

INDEX CREATE UNIQUE INDEX modules_pkey ON carillon.modules USING btree (id)

INDEX CREATE UNIQUE INDEX pauses_pkey ON carillon.pauses USING btree (tenant, ref)

INDEX CREATE UNIQUE INDEX queues_pkey ON carillon.queues USING btree (id)

INDEX CREATE UNIQUE INDEX queues_tenant_ref_lane_key ON carillon.queues USING btree (tenant, ref, lane)

INDEX CREATE UNIQUE INDEX rate_limits_pkey ON carillon.rate_limits USING btree (tenant, domain, kind)

INDEX CREATE UNIQUE INDEX runners_pkey ON carillon.runners USING btree (key)

INDEX CREATE UNIQUE INDEX runs_default_pkey ON carillon.runs_default USING btree (cron_job_id, slot)

INDEX CREATE UNIQUE INDEX runs_pkey ON ONLY carillon.runs USING btree (cron_job_id, slot)

INDEX CREATE UNIQUE INDEX settings_pkey ON carillon.settings USING btree (id)

INDEX CREATE UNIQUE INDEX tokens_hash_key ON carillon.tokens USING btree (hash)

INDEX CREATE UNIQUE INDEX tokens_pkey ON carillon.tokens USING btree (id)

INDEX CREATE UNIQUE INDEX trigger_epoch_pkey ON carillon.trigger_epoch USING btree (one)

INDEX CREATE UNIQUE INDEX triggers_key_key ON carillon.triggers USING btree (key)

INDEX CREATE UNIQUE INDEX triggers_pkey ON carillon.triggers USING btree (id)

CONSTRAINT cron_job_notes.cron_job_notes_cron_job_id_fkey FOREIGN KEY (cron_job_id) REFERENCES cron_jobs(id) ON DELETE CASCADE

CONSTRAINT cron_jobs.belongs_to_a_module_or_a_trigger CHECK (
CASE
    WHEN (trigger_id IS NULL) THEN ((module_id IS NOT NULL) AND (deployment_id IS NOT NULL) AND (NOT limited))
    ELSE ((module_id IS NULL) AND (deployment_id IS NULL) AND fires)
END)

CONSTRAINT cron_jobs.cron_jobs_backoff_max_ms_check CHECK ((backoff_max_ms > 0))

CONSTRAINT cron_jobs.cron_jobs_backoff_ms_check CHECK ((backoff_ms > 0))

CONSTRAINT cron_jobs.cron_jobs_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id)

CONSTRAINT cron_jobs.cron_jobs_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))

CONSTRAINT cron_jobs.cron_jobs_module_id_fkey FOREIGN KEY (module_id) REFERENCES modules(id) ON DELETE CASCADE

CONSTRAINT cron_jobs.cron_jobs_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queues(id)

CONSTRAINT cron_jobs.cron_jobs_shard_check CHECK ((shard >= 0))

CONSTRAINT cron_jobs.cron_jobs_timeout_ms_check CHECK ((timeout_ms > 0))

CONSTRAINT cron_jobs.cron_jobs_trigger_id_fkey FOREIGN KEY (trigger_id) REFERENCES triggers(id) ON DELETE CASCADE

CONSTRAINT cron_jobs.disabled_has_a_reason_off CHECK (((NOT enabled) OR ((paused_at IS NULL) AND (removed_at IS NULL) AND (set_aside_at IS NULL))))

CONSTRAINT cron_jobs.executing_names_its_run CHECK (((state = 'idle'::job_state) OR ((run_id IS NOT NULL) AND (run_slot IS NOT NULL) AND (started_at IS NOT NULL) AND (deadline_at IS NOT NULL) AND (controller IS NOT NULL) AND (run_deployment IS NOT NULL))))

CONSTRAINT cron_jobs.firing_names_its_queue CHECK (((NOT fires) OR (queue_id IS NOT NULL)))

CONSTRAINT cron_jobs.next_execution_is_a_time CHECK (isfinite(next_execution))

CONSTRAINT debounces.debounces_trigger_id_fkey FOREIGN KEY (trigger_id) REFERENCES triggers(id) ON DELETE CASCADE

CONSTRAINT deployments.deployments_min_replicas_check CHECK ((min_replicas >= 0))

CONSTRAINT deployments.deployments_module_id_fkey FOREIGN KEY (module_id) REFERENCES modules(id) ON DELETE CASCADE

CONSTRAINT events.events_verb_check CHECK ((verb = ANY (ARRAY['CREATED'::text, 'UPDATED'::text, 'DELETED'::text])))

CONSTRAINT job_history.job_history_state_check CHECK ((state = ANY (ARRAY['succeeded'::job_status, 'failed'::job_status, 'cancelled'::job_status])))

CONSTRAINT job_history_default.job_history_state_check CHECK ((state = ANY (ARRAY['succeeded'::job_status, 'failed'::job_status, 'cancelled'::job_status])))

CONSTRAINT job_keys.job_keys_kind_check CHECK ((kind = ANY (ARRAY['unique'::text, 'idempotency'::text, 'trigger'::text, 'event'::text])))

CONSTRAINT jobs.jobs_backoff_max_ms_check CHECK ((backoff_max_ms > 0))

CONSTRAINT jobs.jobs_backoff_ms_check CHECK ((backoff_ms > 0))

CONSTRAINT jobs.jobs_children_check CHECK ((children >= 0))

CONSTRAINT jobs.jobs_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))

CONSTRAINT jobs.jobs_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queues(id)

CONSTRAINT jobs.jobs_state_check CHECK ((state = ANY (ARRAY['ready'::job_status, 'running'::job_status, 'blocked'::job_status])))

CONSTRAINT jobs.jobs_timeout_ms_check CHECK ((timeout_ms > 0))

CONSTRAINT jobs.running_names_its_run CHECK (((state <> 'running'::job_status) OR ((run_id IS NOT NULL) AND (started_at IS NOT NULL) AND (deadline_at IS NOT NULL) AND (controller IS NOT NULL))))

CONSTRAINT limits.limits_max_running_check CHECK ((max_running > 0))

CONSTRAINT limits.limits_running_check CHECK ((running >= 0))

CONSTRAINT modules.modules_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id)

CONSTRAINT queues.queues_lane_check CHECK (((lane >= 0) AND (lane <= 4)))

CONSTRAINT runners.runners_capacity_check CHECK ((capacity > 0))

CONSTRAINT runners.runners_deployment_id_fkey FOREIGN KEY (deployment_id) REFERENCES deployments(id) ON DELETE CASCADE

CONSTRAINT runs.fired_names_its_job CHECK (((verdict = 'fired'::verdict) = ((job_id IS NOT NULL) AND (job_salt IS NOT NULL))))

CONSTRAINT runs.runs_check CHECK ((slot <= slot_to))

CONSTRAINT runs.runs_check1 CHECK (((run_id IS NULL) = (verdict = ANY (ARRAY['skipped_overlap'::verdict, 'skipped_missed'::verdict, 'skipped_paused'::verdict]))))

CONSTRAINT runs.runs_count_check CHECK ((count > 0))

CONSTRAINT runs_default.fired_names_its_job CHECK (((verdict = 'fired'::verdict) = ((job_id IS NOT NULL) AND (job_salt IS NOT NULL))))

CONSTRAINT runs_default.runs_check CHECK ((slot <= slot_to))

CONSTRAINT runs_default.runs_check1 CHECK (((run_id IS NULL) = (verdict = ANY (ARRAY['skipped_overlap'::verdict, 'skipped_missed'::verdict, 'skipped_paused'::verdict]))))

CONSTRAINT runs_default.runs_count_check CHECK ((count > 0))

CONSTRAINT settings.settings_id_check CHECK (id)

CONSTRAINT settings.settings_shard_count_check CHECK ((shard_count > 0))

CONSTRAINT tokens.tokens_kind_check CHECK ((kind = ANY (ARRAY['app'::text, 'konnector'::text, 'cli'::text])))

CONSTRAINT trigger_epoch.trigger_epoch_one_check CHECK (one)

CONSTRAINT triggers.triggers_backoff_max_ms_check CHECK ((backoff_max_ms > 0))

CONSTRAINT triggers.triggers_backoff_ms_check CHECK ((backoff_ms > 0))

CONSTRAINT triggers.triggers_debounce_ms_check CHECK ((debounce_ms >= 0))

CONSTRAINT triggers.triggers_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))

CONSTRAINT triggers.triggers_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queues(id)

CONSTRAINT triggers.triggers_timeout_ms_check CHECK ((timeout_ms > 0))

FUNCTION add_error(list jsonb, error jsonb) RETURNS jsonb

FUNCTION create_job_partitions(ahead integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION create_run_partitions(ahead integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION drop_job_partitions(keep integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION drop_run_partitions(keep integer) RETURNS integer SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION enqueue(ref text, payload jsonb, delay interval, priority integer, tenant text, unique_key text, idempotency_key text, tags text[], timeout interval, max_attempts integer, backoff interval, backoff_ceiling interval, unique_window interval, expires_at timestamp with time zone, notify boolean) RETURNS text SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION job_id(n bigint, salt integer) RETURNS text SET search_path=pg_catalog, pg_temp

FUNCTION publish(type text, verb text, doc jsonb, doc_id text, old jsonb, tenant text, path text, old_path text, notify boolean, dirs jsonb, idempotency_key text) RETURNS bigint SECURITY DEFINER SET search_path=pg_catalog, carillon, pg_temp

FUNCTION text_problem(value text, at_least integer, at_most integer) RETURNS text SET search_path=pg_catalog, pg_temp
