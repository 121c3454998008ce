-- Events from SQL, in the application's own transaction; what else tokens and events carry.
-- +goose Up

ALTER TABLE carillon.events
    ADD COLUMN dirs  jsonb,                      -- of files: [{"id", "path"}] above both paths
    ADD COLUMN bytes integer NOT NULL DEFAULT 0, -- of its documents, so that a page of events is bounded by them
    ADD COLUMN upto  bigint NOT NULL DEFAULT 0;  -- of one that very many triggers wait for: those up to this id have been dealt with
ALTER TABLE carillon.tokens
    ADD COLUMN slug        text NOT NULL DEFAULT '',  -- of the application or the konnector
    ADD COLUMN trigger_key text NOT NULL DEFAULT '';  -- the one trigger that a konnector runs for

-- +goose StatementBegin
-- Publishes an event in the caller's own transaction, and returns its number: what it changed and what triggers make of
-- it is committed together, or not at all. It checks what the RPC checks. NOTIFIED is accepted and matches nothing: it is
-- not stored, and the number is null. Without a doc_id the document's _id counts.
--
-- With an idempotency key the same event is published once in 24 h, and a repeat returns the first one's number; the key
-- is locked until the commit. Keys are those of the RPC, too; a document counts as jsonb prints it.
--
-- SQLSTATE 22023 names the argument that is wrong, in the message and as the error's column. 23505: the idempotency key
-- belongs to another event.
--
-- Controllers hear of it at the commit, by a NOTIFY of constant payload, of which Postgres sends one per transaction. As
-- committing with a NOTIFY takes a lock that all such commits share, it can be left out: by the argument, or by
-- SET carillon.notify = off. The event is then found within a second.
CREATE FUNCTION carillon.publish(
    type text,
    verb text,
    doc jsonb,
    doc_id text DEFAULT NULL,
    old jsonb DEFAULT NULL,
    tenant text DEFAULT 'default',
    path text DEFAULT NULL,
    old_path text DEFAULT NULL,
    notify boolean DEFAULT true,
    dirs jsonb DEFAULT NULL,
    idempotency_key text DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, carillon, pg_temp AS $$
#variable_conflict use_column
DECLARE
    most      CONSTANT integer := 524288; -- bytes of both documents
    in_tenant text := COALESCE(NULLIF(publish.tenant, ''), 'default');
    in_id     text := COALESCE(publish.doc_id, '');
    in_doc    jsonb := NULLIF(publish.doc, 'null');
    in_old    jsonb := NULLIF(publish.old, 'null');
    in_path   text := COALESCE(publish.path, '');
    in_from   text := COALESCE(publish.old_path, '');
    in_dirs   jsonb := NULLIF(publish.dirs, 'null');
    in_key    text := COALESCE(publish.idempotency_key, '');
    size      bigint := COALESCE(octet_length(in_doc::text), 0)::bigint + COALESCE(octet_length(in_old::text), 0);
    wrong     record;
    event     bigint;
    request   bytea;
    held      record;
BEGIN
    SELECT c.field, c.problem INTO wrong FROM (VALUES
        (1, 'tenant', carillon.text_problem(in_tenant, 1, 256)),
        (2, 'type', carillon.text_problem(publish.type, 1, 256)),
        (3, 'type', CASE WHEN publish.type !~ '^[a-z0-9_]+([.][a-z0-9_]+)*$' THEN format('"%s" is no type of documents: lower-case letters, digits and _ between dots', left(publish.type, 60)) END),
        (4, 'verb', CASE WHEN publish.verb IS NULL OR publish.verb NOT IN ('CREATED', 'UPDATED', 'DELETED', 'NOTIFIED')
                         THEN format('unknown verb "%s" (CREATED, UPDATED, DELETED)', left(publish.verb, 60)) END),
        (5, 'doc_id', CASE WHEN octet_length(in_id) > 256 THEN format('has %s bytes, at most 256 are accepted', octet_length(in_id)) END),
        (6, 'doc', CASE WHEN jsonb_typeof(in_doc) <> 'object' THEN 'must be a JSON object' END),
        (7, 'old', CASE WHEN jsonb_typeof(in_old) <> 'object' THEN 'must be a JSON object' END),
        (8, 'doc', CASE WHEN size > most THEN format('the documents have %s bytes, at most %s are accepted', size, most) END),
        (9, 'path', CASE WHEN in_path <> '' AND (left(in_path, 1) <> '/' OR octet_length(in_path) > 4096) THEN 'must begin with / and have at most 4096 bytes' END),
        (10, 'old_path', CASE WHEN in_from <> '' AND (left(in_from, 1) <> '/' OR octet_length(in_from) > 4096) THEN 'must begin with / and have at most 4096 bytes' END),
        (11, 'dirs', CASE WHEN jsonb_typeof(in_dirs) <> 'array' THEN 'must be a JSON array' WHEN jsonb_array_length(in_dirs) > 1000 THEN 'at most 1000 are accepted' END),
        (12, 'dirs', CASE WHEN jsonb_typeof(in_dirs) = 'array' AND EXISTS (SELECT FROM jsonb_array_elements(in_dirs) d
                WHERE jsonb_typeof(d) <> 'object' OR NOT COALESCE(jsonb_typeof(d->'id') = 'string' AND octet_length(d->>'id') BETWEEN 1 AND 256
                  AND jsonb_typeof(d->'path') = 'string' AND left(d->>'path', 1) = '/' AND octet_length(d->>'path') <= 4096, false))
            THEN 'a directory has an id, and a path that begins with /' END),
        (13, 'idempotency_key', carillon.text_problem(in_key, 0, 256))
    ) c (n, field, problem) WHERE c.problem IS NOT NULL ORDER BY c.n LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('carillon.publish: invalid: %s: %s', wrong.field, wrong.problem), COLUMN = wrong.field;
    END IF;
    IF publish.verb = 'NOTIFIED' THEN
        RETURN NULL;
    END IF;

    event := nextval('carillon.event_ids');
    IF in_key <> '' THEN -- trigger.HashChanges
        request := sha256((SELECT string_agg(int8send(length(convert_to(v, 'UTF8'))) || convert_to(v, 'UTF8'), '' ORDER BY n)
                           FROM (VALUES (1, in_tenant), (2, publish.type), (3, publish.verb), (4, in_id), (5, COALESCE(in_doc::text, '')), (6, COALESCE(in_old::text, '')),
                               (7, in_path), (8, in_from)) s (n, v))
            || int8send(COALESCE(jsonb_array_length(in_dirs), 0))
            || COALESCE((SELECT string_agg(int8send(length(convert_to(v, 'UTF8'))) || convert_to(v, 'UTF8'), '' ORDER BY n, part)
                         FROM jsonb_array_elements(in_dirs) WITH ORDINALITY d (dir, n), LATERAL (VALUES (1, dir ->> 'id'), (2, dir ->> 'path')) s (part, v)), ''));
    END IF;
    WHILE in_key <> '' LOOP
        INSERT INTO carillon.job_keys (tenant, kind, key, job_id, salt, hash, expires_at)
        VALUES (in_tenant, 'event', in_key, event, 0, request, now() + interval '24 hours')
        ON CONFLICT (tenant, kind, key) DO NOTHING;
        EXIT WHEN FOUND;
        SELECT k.job_id, k.hash, k.expires_at < now() AS expired INTO held
        FROM carillon.job_keys k WHERE k.tenant = in_tenant AND k.kind = 'event' AND k.key = in_key;
        CONTINUE WHEN NOT FOUND; -- freed in this moment
        IF held.expired THEN
            DELETE FROM carillon.job_keys k WHERE k.tenant = in_tenant AND k.kind = 'event' AND k.key = in_key AND k.expires_at < now();
            CONTINUE;
        END IF;
        IF held.hash <> request THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation', MESSAGE = format('carillon.publish: already exists: the idempotency key "%s" belongs to another event', in_key),
                COLUMN = 'idempotency_key';
        END IF;
        RETURN held.job_id;
    END LOOP;
    INSERT INTO carillon.events (id, shard, tenant, type, verb, doc_id, doc, old, path, old_path, dirs, bytes)
    VALUES (event, (event % 1021)::integer, in_tenant, publish.type, publish.verb, in_id, in_doc, in_old, in_path, in_from, NULLIF(in_dirs, '[]'), size);
    IF COALESCE(publish.notify, true) AND COALESCE(current_setting('carillon.notify', true), '') NOT IN ('off', 'false', 'no', '0') THEN
        PERFORM pg_notify('carillon_events', '');
    END IF;
    RETURN event;
END $$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION carillon.publish FROM PUBLIC;

-- +goose Down
DROP FUNCTION carillon.publish;
ALTER TABLE carillon.tokens DROP COLUMN slug, DROP COLUMN trigger_key;
ALTER TABLE carillon.events DROP COLUMN dirs, DROP COLUMN bytes, DROP COLUMN upto;
