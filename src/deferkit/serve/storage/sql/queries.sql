-- Named queries. A parameter is :name, a list of values IN (:names); a variant for one database, which replaces the one
-- before it, is marked behind the name.

-- name: policies
-- All policies, oldest first, without those that are retired: they belong to no tenant, and their rows are being deleted.
SELECT id, tenant, name, spec, seq, head, created, owner, address, epoch, expires, parked FROM policies
WHERE tenant <> '' ORDER BY id;

-- name: policy
SELECT id, tenant, name, spec, seq, head, created, owner, address, epoch, expires, parked
FROM policies WHERE tenant = :tenant AND name = :name;

-- name: policies_of
SELECT id, tenant, name, spec, seq, head, created, owner, address, epoch, expires, parked
FROM policies WHERE tenant = :tenant AND name > :after ORDER BY name LIMIT :limit;

-- name: count_policies
SELECT COUNT(*) FROM policies WHERE tenant = :tenant;

-- name: ages
-- The policies of a tenant, and when each was made.
SELECT id, created FROM policies WHERE tenant = :tenant;

-- name: specs
SELECT id, spec FROM policies WHERE id IN (:keys);

-- name: add_policy
INSERT INTO policies (id, tenant, name, spec, seq, head, created, owner, address, epoch, expires)
SELECT COALESCE(MAX(id), 0) + 1, :tenant, :name, :spec, 0, :head, :at, :owner, :address, 1, :expires FROM policies
RETURNING id;

-- name: add_budget
INSERT INTO budgets (policy, resource, total, reserved, posted, suspense)
VALUES (:policy, :resource, :total, :reserved, :posted, :suspense);

-- name: advance
-- The end of a log moves, if this process still owns the policy.
UPDATE policies SET seq = :seq, head = :head, expires = :expires, spec = :spec, parked = :parked
WHERE id = :policy AND owner = :owner AND epoch = :epoch RETURNING id;

-- name: acquire
-- Own a policy that nobody owns, or whose owner's time is over, or who is known to be dead; or this process does, but
-- was kept from bringing it into memory.
UPDATE policies SET owner = :owner, address = :address, epoch = epoch + 1, expires = :expires
WHERE id = :policy AND epoch = :epoch AND (owner IS NULL OR owner IN (:owners) OR expires < :now)
RETURNING epoch;

-- name: acquire (postgres)
-- The same; a policy that is being written at this moment is passed over: its writer may be long in letting go of it.
UPDATE policies SET owner = :owner, address = :address, epoch = epoch + 1, expires = :expires
WHERE id = (
    SELECT id FROM policies
    WHERE id = :policy AND epoch = :epoch AND (owner IS NULL OR owner IN (:owners) OR expires < :now)
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING epoch;

-- name: renew
UPDATE policies SET expires = :expires WHERE id = :policy AND owner = :owner AND epoch = :epoch RETURNING id;

-- name: release_policy
UPDATE policies SET owner = NULL, address = NULL, expires = 0 WHERE id = :policy AND owner = :owner AND epoch = :epoch;

-- name: bytes_of_log
-- Of a page of the log, with what each record is kept with.
SELECT COUNT(*), SUM(octet_length(body) + octet_length(hash) + COALESCE(octet_length(task), 0)) FROM log
WHERE policy = :policy AND seq >= :seq AND seq < :stop;

-- name: bytes_beside_log
-- What is erased or delivered in time: payloads, parked outcomes, events; and snapshots.
SELECT
    (SELECT COALESCE(SUM(COALESCE(octet_length(payload), 0) + COALESCE(octet_length(model_answer), 0)), 0) FROM seats
        WHERE policy = :policy AND (payload IS NOT NULL OR model_answer IS NOT NULL))
    + (SELECT COALESCE(SUM(octet_length(body)), 0) FROM parked WHERE policy = :policy)
    + (SELECT COALESCE(SUM(octet_length(body)), 0) FROM events WHERE policy = :policy)
    + (SELECT COALESCE(SUM(octet_length(data)), 0) FROM snapshots WHERE policy = :policy);

-- name: budgets
SELECT resource, total, reserved, posted, suspense FROM budgets WHERE policy = :policy;

-- name: set_budget
UPDATE budgets SET total = :total, reserved = :reserved, posted = :posted, suspense = :suspense
WHERE policy = :policy AND resource = :resource;

-- name: add_log
INSERT INTO log (policy, seq, at, kind, task, body, hash) VALUES (:policy, :seq, :at, :kind, :task, :body, :hash);

-- name: add_log (postgres)
-- The same for many rows, column by column: half the work for both sides.
INSERT INTO log (policy, seq, at, kind, task, body, hash)
SELECT * FROM unnest(:policy::bigint[], :seq::bigint[], :at::bigint[], :kind::text[], :task::text[],
    :body::bytea[], :hash::bytea[]);

-- name: log_after
SELECT policy, seq, at, kind, task, body, hash FROM log
WHERE policy = :policy AND seq >= :seq ORDER BY seq LIMIT :limit;

-- name: log_bodies
SELECT at, body FROM log WHERE policy = :policy AND seq >= :seq ORDER BY seq LIMIT :limit;

-- name: relearning_rows
SELECT policy, seq, at, kind, task, body, hash FROM log
WHERE policy = :policy AND seq >= :seq AND kind IN ('forgotten', 'upgraded') ORDER BY seq;

-- name: log_of_task
SELECT policy, seq, at, kind, task, body, hash FROM log
WHERE policy = :policy AND task = :task ORDER BY seq LIMIT :limit;

-- name: log_of_tasks
-- What happened to the tasks of a page.
SELECT policy, seq, at, kind, task, body, hash FROM log
WHERE policy = :policy AND task > :after AND task <= :last ORDER BY task, seq;

-- name: histories
-- What became known of tasks, and was corrected.
SELECT policy, task, body FROM log
WHERE policy = :policy AND task IN (:keys) AND kind IN ('observed', 'corrected') ORDER BY seq;

-- name: tasks_after
SELECT DISTINCT task FROM log WHERE policy = :policy AND task > :after ORDER BY task LIMIT :limit;

-- name: last_time
SELECT MAX(at) FROM log WHERE (policy, seq) IN (SELECT id, seq - 1 FROM policies);

-- name: clock
SELECT wall, uptime FROM clocks WHERE boot = :boot;

-- name: put_clock
INSERT INTO clocks (boot, wall, uptime) VALUES (:boot, :wall, :uptime)
ON CONFLICT (boot) DO UPDATE SET wall = EXCLUDED.wall, uptime = EXCLUDED.uptime;

-- name: decisions
SELECT policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told
FROM decisions WHERE policy = :policy AND task IN (:keys);

-- name: decisions_after
-- A page of decisions, in the order of their tasks.
SELECT policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told
FROM decisions WHERE policy = :policy AND task > :after ORDER BY task LIMIT :limit;

-- name: put_decision
INSERT INTO decisions (policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told)
VALUES (:policy, :task, :id, :digest, :reply, :at, :route, :state, :held, :rewards, :cost, :final, :answer, :told)
ON CONFLICT (policy, task) DO UPDATE SET
    state = excluded.state, held = excluded.held, rewards = excluded.rewards, cost = excluded.cost,
    final = excluded.final, answer = excluded.answer, told = excluded.told;

-- name: put_decision (postgres)
INSERT INTO decisions (policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told)
SELECT * FROM unnest(:policy::bigint[], :task::text[], :id::bigint[], :digest::bytea[], :reply::bytea[], :at::bigint[],
    :route::text[], :state::text[], :held::text[], :rewards::text[], :cost::text[], :final::text[], :answer::text[],
    :told::text[])
ON CONFLICT (policy, task) DO UPDATE SET
    state = excluded.state, held = excluded.held, rewards = excluded.rewards, cost = excluded.cost,
    final = excluded.final, answer = excluded.answer, told = excluded.told;

-- name: parked
SELECT policy, task, body, at, key FROM parked WHERE policy = :policy AND task IN (:keys);

-- name: oldest_parked
-- What keys have parked, the oldest first: as many as the commands of a group may need the room of.
SELECT policy, key, task, body, at FROM parked
WHERE policy = :policy AND key IN (:keys) ORDER BY at, task LIMIT 256;

-- name: parked_by_key
SELECT key, COUNT(*) FROM parked WHERE policy = :policy GROUP BY key;

-- name: old_parked
-- Outcomes that have waited longest for their decisions.
SELECT task FROM parked WHERE policy = :policy AND at < :before ORDER BY at, task LIMIT :limit;

-- name: put_parked
INSERT INTO parked (policy, task, body, at, key) VALUES (:policy, :task, :body, :at, :key)
ON CONFLICT (policy, task) DO UPDATE SET body = excluded.body, at = excluded.at, key = excluded.key;

-- name: drop_parked
DELETE FROM parked WHERE policy = :policy AND task = :task;

-- name: requests
SELECT policy, request, digest, reply FROM requests WHERE policy = :policy AND request IN (:keys);

-- name: add_request
INSERT INTO requests (policy, request, digest, reply) VALUES (:policy, :request, :digest, :reply);

-- name: seats
SELECT policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost
FROM seats WHERE policy = :policy AND task IN (:keys) ORDER BY task, seat;

-- name: seats (postgres)
-- Locked, so that no process claims a seat that the owner is about to close; in order, so that none waits for another.
SELECT policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost
FROM seats WHERE policy = :policy AND task IN (:keys) ORDER BY task, seat FOR UPDATE;

-- name: read_seats
SELECT policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost
FROM seats WHERE policy = :policy AND task IN (:keys) ORDER BY task, seat;

-- name: put_seat
INSERT INTO seats (policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost)
VALUES (:policy, :task, :seat, :expert, :state, :epoch, :reviewer, :lease_until, :priority, :created, :deadline,
    :payload, :model_answer, :answer, :rewards, :cost)
ON CONFLICT (policy, task, seat) DO UPDATE SET
    state = excluded.state, reviewer = excluded.reviewer, lease_until = excluded.lease_until,
    answer = excluded.answer, rewards = excluded.rewards, cost = excluded.cost;

-- name: put_seat (postgres)
INSERT INTO seats (policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost)
SELECT * FROM unnest(:policy::bigint[], :task::text[], :seat::bigint[], :expert::text[], :state::text[],
    :epoch::bigint[], :reviewer::text[], :lease_until::bigint[], :priority::double precision[], :created::bigint[],
    :deadline::bigint[], :payload::text[], :model_answer::text[], :answer::text[], :rewards::text[], :cost::text[])
ON CONFLICT (policy, task, seat) DO UPDATE SET
    state = excluded.state, reviewer = excluded.reviewer, lease_until = excluded.lease_until,
    answer = excluded.answer, rewards = excluded.rewards, cost = excluded.cost;

-- name: overdue
-- A page of the tasks that hold budget beyond their deadline, the oldest first. All seats of a task have one deadline.
SELECT seats.deadline, decisions.task FROM decisions
JOIN seats ON seats.policy = decisions.policy AND seats.task = decisions.task AND seats.seat = 0
WHERE decisions.policy = :policy AND decisions.state = 'open' AND seats.deadline < :now
    AND (seats.deadline, decisions.task) > (:deadline, :task)
ORDER BY seats.deadline, decisions.task LIMIT :limit;

-- name: find_seat
-- The seat that is worth most, among those that wait or whose lease is over; nobody sits twice at one task, or gets one
-- that it has declined.
SELECT task, seat FROM seats
WHERE policy = :policy AND state IN ('waiting', 'claimed') AND (state = 'waiting' OR lease_until < :now)
    AND (:any_expert = 1 OR expert IN (:experts)) AND (deadline IS NULL OR deadline >= :now OR :late = 1)
    AND NOT EXISTS (
        SELECT 1 FROM seats AS other
        WHERE other.policy = seats.policy AND other.task = seats.task AND other.seat <> seats.seat
            AND other.reviewer = :reviewer AND (other.state = 'done' OR other.state = 'claimed')
    )
    AND NOT EXISTS (
        SELECT 1 FROM declines
        WHERE declines.policy = seats.policy AND declines.task = seats.task AND declines.reviewer = :reviewer
    )
ORDER BY priority DESC, created LIMIT 1;

-- name: find_seat (postgres)
-- The same; a seat that another worker is about to claim is passed over.
SELECT task, seat FROM seats
WHERE policy = :policy AND state IN ('waiting', 'claimed') AND (state = 'waiting' OR lease_until < :now)
    AND (:any_expert = 1 OR expert IN (:experts)) AND (deadline IS NULL OR deadline >= :now OR :late = 1)
    AND NOT EXISTS (
        SELECT 1 FROM seats AS other
        WHERE other.policy = seats.policy AND other.task = seats.task AND other.seat <> seats.seat
            AND other.reviewer = :reviewer AND (other.state = 'done' OR other.state = 'claimed')
    )
    AND NOT EXISTS (
        SELECT 1 FROM declines
        WHERE declines.policy = seats.policy AND declines.task = seats.task AND declines.reviewer = :reviewer
    )
ORDER BY priority DESC, created LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: claim_seat
UPDATE seats SET state = 'claimed', epoch = epoch + 1, reviewer = :reviewer, lease_until = :lease_until, cost = NULL
WHERE policy = :policy AND task = :task AND seat = :seat AND state IN ('waiting', 'claimed')
RETURNING policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost;

-- name: add_claim
INSERT INTO claims (policy, task, seat, epoch, reviewer, at, effort, token, visible, origin)
VALUES (:policy, :task, :seat, :epoch, :reviewer, :at, NULL, :token, :visible, :origin);

-- name: held_claim
-- The claim that a reviewer holds, and where it was made.
SELECT seats.epoch, claims.origin FROM seats
JOIN claims ON claims.policy = seats.policy AND claims.task = seats.task AND claims.seat = seats.seat
    AND claims.epoch = seats.epoch
WHERE seats.policy = :policy AND seats.task = :task AND seats.seat = :seat AND seats.state = 'claimed'
    AND seats.reviewer = :reviewer;

-- name: resume_seat
UPDATE seats SET lease_until = :lease_until
WHERE policy = :policy AND task = :task AND seat = :seat AND state = 'claimed' AND epoch = :epoch
RETURNING policy, task, seat, expert, state, epoch, reviewer, lease_until, priority, created, deadline,
    payload, model_answer, answer, rewards, cost;

-- name: renew_claim
-- What a reviewer has seen once stays seen.
UPDATE claims SET token = :token, visible = CASE WHEN visible = 1 THEN 1 ELSE :visible END
WHERE policy = :policy AND task = :task AND seat = :seat AND epoch = :epoch;

-- name: claim_holder
-- What proves a claim, and whose it is.
SELECT token, reviewer FROM claims WHERE policy = :policy AND task = :task AND seat = :seat AND epoch = :epoch;

-- name: extend_seat
UPDATE seats SET lease_until = :lease_until
WHERE policy = :policy AND task = :task AND seat = :seat AND state = 'claimed' AND epoch = :epoch RETURNING lease_until;

-- name: release_seat
UPDATE seats SET state = 'waiting', reviewer = NULL, lease_until = 0
WHERE policy = :policy AND task = :task AND seat = :seat AND state = 'claimed' AND epoch = :epoch RETURNING epoch;

-- name: free_seat
-- Whoever holds it.
UPDATE seats SET state = 'waiting', reviewer = NULL, lease_until = 0
WHERE policy = :policy AND task = :task AND seat = :seat AND state = 'claimed' RETURNING epoch;

-- name: decline_of_claim
SELECT 1 FROM declines WHERE policy = :policy AND task = :task AND seat = :seat AND epoch = :epoch;

-- name: add_decline
INSERT INTO declines (policy, task, reviewer, seat, epoch, at, reason)
SELECT policy, task, reviewer, seat, epoch, :at, :reason FROM claims
WHERE policy = :policy AND task = :task AND seat = :seat AND epoch = :epoch;

-- name: renew_leases
-- While nobody served the policy nobody could extend a lease.
UPDATE seats SET lease_until = :lease_until WHERE policy = :policy AND state = 'claimed' AND lease_until < :lease_until;

-- name: renew_leases (postgres)
-- The same, without those that the owner before still holds locked: it would wait for this transaction in turn.
UPDATE seats SET lease_until = :lease_until
WHERE policy = :policy AND (task, seat) IN (
    SELECT task, seat FROM seats WHERE policy = :policy AND state = 'claimed' AND lease_until < :lease_until
    FOR UPDATE SKIP LOCKED
);

-- name: claims
SELECT policy, task, seat, epoch, reviewer, at, effort, token, visible FROM claims
WHERE policy = :policy AND task IN (:keys) ORDER BY at, seat, epoch;

-- name: set_effort
UPDATE claims SET effort = :effort
WHERE policy = :policy AND task = :task AND seat = :seat AND epoch = :epoch AND effort IS NULL RETURNING epoch;

-- name: queue
-- How many wait, how many are held, and since when the oldest waits.
SELECT COUNT(*) FILTER (WHERE state = 'waiting'), COUNT(*) FILTER (WHERE state = 'claimed'), MIN(created)
FROM seats WHERE policy = :policy AND state IN ('waiting', 'claimed');

-- name: page_of_queue
-- Seats that wait or are claimed, in the order in which they are offered.
SELECT task, seat, state, expert, priority, created, lease_until, reviewer, deadline,
    (SELECT COUNT(*) FROM declines WHERE declines.policy = seats.policy AND declines.task = seats.task)
FROM seats
WHERE policy = :policy AND state IN ('waiting', 'claimed') AND state IN (:states)
    AND (:first = 1 OR priority < :priority
        OR (priority = :priority AND (created, task, seat) > (:created, :task, :seat)))
ORDER BY priority DESC, created, task, seat LIMIT :limit;

-- name: held_seats
-- A page of what a reviewer holds: as many as have so many bytes to show together, but one at least. The last column is
-- how many there are, with those of later pages.
WITH places AS (
    SELECT task, seat, lease_until,
        SUM(COALESCE(octet_length(payload), 0) + COALESCE(octet_length(model_answer), 0))
            OVER (ORDER BY lease_until, task, seat) AS bytes,
        ROW_NUMBER() OVER (ORDER BY lease_until, task, seat) AS place,
        COUNT(*) OVER () AS held
    FROM seats
    WHERE policy = :policy AND reviewer = :reviewer AND state IN ('claimed', 'done') AND state = 'claimed'
        AND (:first = 1 OR (lease_until, task, seat) > (:lease_until, :task, :seat))
)
SELECT seats.policy, seats.task, seats.seat, expert, state, epoch, reviewer, seats.lease_until, priority, created,
    deadline, payload, model_answer, answer, rewards, cost, held
FROM places JOIN seats ON seats.policy = :policy AND seats.task = places.task AND seats.seat = places.seat
WHERE place = 1 OR (place <= :limit AND bytes <= :bytes)
ORDER BY place;

-- name: count_held
-- Of one reviewer, with a lease that is not over; no more than would be too many.
SELECT COUNT(*) FROM (
    SELECT 1 FROM seats
    WHERE policy = :policy AND reviewer = :reviewer AND state IN ('claimed', 'done') AND state = 'claimed'
        AND lease_until >= :now LIMIT :limit
) AS held;

-- name: reviewer_counts
-- For each reviewer: claims, the last of them, seats answered, seats held now, tasks declined.
SELECT claims.reviewer, COUNT(*), MAX(claims.at),
    (SELECT COUNT(*) FROM seats WHERE seats.policy = :policy AND seats.reviewer = claims.reviewer
        AND seats.state IN ('claimed', 'done') AND seats.state = 'done'),
    (SELECT COUNT(*) FROM seats WHERE seats.policy = :policy AND seats.reviewer = claims.reviewer
        AND seats.state IN ('claimed', 'done') AND seats.state = 'claimed' AND seats.lease_until >= :now),
    (SELECT COUNT(*) FROM declines WHERE declines.policy = :policy AND declines.reviewer = claims.reviewer)
FROM claims WHERE claims.policy = :policy GROUP BY claims.reviewer ORDER BY claims.reviewer LIMIT :limit;

-- name: reviewer_answers
-- The latest seats that were answered.
SELECT reviewer, task, answer, model_answer, cost FROM seats
WHERE policy = :policy AND state = 'done' AND reviewer IS NOT NULL ORDER BY created DESC, task, seat LIMIT :limit;

-- name: reviewer_efforts
-- Work that came to nothing and was paid, the latest first.
SELECT reviewer, effort FROM claims
WHERE policy = :policy AND effort IS NOT NULL ORDER BY at DESC, task, seat, epoch LIMIT :limit;

-- name: queue_of_reviewer
-- What one reviewer could claim, what others hold, when the first of those leases ends, what it has declined or answered.
WITH places AS (
    SELECT state, lease_until, reviewer,
        EXISTS (
            SELECT 1 FROM declines WHERE declines.policy = seats.policy AND declines.task = seats.task
                AND declines.reviewer = :reviewer
        ) AS declined,
        EXISTS (
            SELECT 1 FROM seats AS other
            WHERE other.policy = seats.policy AND other.task = seats.task AND other.seat <> seats.seat
                AND other.reviewer = :reviewer AND other.state IN ('claimed', 'done')
        ) AS answered
    FROM seats
    WHERE policy = :policy AND state IN ('waiting', 'claimed') AND (deadline IS NULL OR deadline >= :now OR :late = 1)
)
SELECT
    COUNT(*) FILTER (WHERE NOT declined AND NOT answered AND (state = 'waiting' OR lease_until < :now)),
    COUNT(*) FILTER (WHERE NOT declined AND NOT answered
        AND state = 'claimed' AND lease_until >= :now AND reviewer <> :reviewer),
    MIN(lease_until) FILTER (WHERE NOT declined AND NOT answered
        AND state = 'claimed' AND lease_until >= :now AND reviewer <> :reviewer),
    COUNT(*) FILTER (WHERE declined),
    COUNT(*) FILTER (WHERE answered AND NOT declined)
FROM places;

-- name: count_answers
SELECT COUNT(*) FROM seats
WHERE policy = :policy AND reviewer = :reviewer AND state IN ('claimed', 'done') AND state = 'done';

-- name: costs_since
SELECT seats.cost FROM claims
JOIN seats ON seats.policy = claims.policy AND seats.task = claims.task AND seats.seat = claims.seat
    AND seats.epoch = claims.epoch AND seats.state = 'done'
WHERE claims.policy = :policy AND claims.reviewer = :reviewer AND claims.at >= :since;

-- name: page_of_tasks
-- Decisions that match a filter, the latest first.
SELECT policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told
FROM decisions
WHERE policy = :policy AND id < :before AND at >= :since AND at < :until
    AND (:state = '' OR state = :state) AND (:route = '' OR route = :route)
    AND (:any_reason = 1 OR instr(reply, :reason) > 0)
    AND (:search = '' OR instr(lower(task), lower(:search)) > 0)
ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks (postgres)
SELECT policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told
FROM decisions
WHERE policy = :policy AND id < :before AND at >= :since AND at < :until
    AND (:state = '' OR state = :state) AND (:route = '' OR route = :route)
    AND (:any_reason = 1 OR position(:reason IN reply) > 0)
    AND (:search = '' OR strpos(lower(task), lower(:search)) > 0)
ORDER BY id DESC LIMIT :limit;

-- name: tasks_from
SELECT policy, task, id, digest, reply, at, route, state, held, rewards, cost, final, answer, told
FROM decisions WHERE policy = :policy AND id >= :start ORDER BY id LIMIT :limit;

-- name: reviewers_of_tasks
SELECT task, reviewer FROM seats WHERE policy = :policy AND task IN (:keys) AND state = :state ORDER BY task, seat;

-- name: erase_payload
UPDATE seats SET payload = NULL, model_answer = NULL
WHERE policy = :policy AND task = :task AND (payload IS NOT NULL OR model_answer IS NOT NULL) RETURNING seat;

-- name: erase_old_payloads
-- Of tasks that nobody works on any more, so many at a time.
UPDATE seats SET payload = NULL, model_answer = NULL
WHERE policy = :policy AND (task, seat) IN (
    SELECT task, seat FROM seats
    WHERE policy = :policy AND created < :before AND (payload IS NOT NULL OR model_answer IS NOT NULL)
        AND NOT EXISTS (
            SELECT 1 FROM seats AS other
            WHERE other.policy = seats.policy AND other.task = seats.task AND other.state IN ('waiting', 'claimed')
        )
    ORDER BY created LIMIT :limit
)
RETURNING seat;

-- name: has_old_payloads
SELECT 1 FROM seats
WHERE policy = :policy AND created < :before AND (payload IS NOT NULL OR model_answer IS NOT NULL)
    AND NOT EXISTS (
        SELECT 1 FROM seats AS other
        WHERE other.policy = seats.policy AND other.task = seats.task AND other.state IN ('waiting', 'claimed')
    )
LIMIT 1;

-- name: retire_policy
-- A policy that is to be deleted is nobody's from now on, and its name is free.
UPDATE policies SET tenant = '', name = CAST(id AS TEXT), owner = NULL, address = NULL, expires = 0, epoch = epoch + 1
WHERE id = :policy AND owner = :owner AND epoch = :epoch RETURNING id;

-- name: retire_webhooks
-- Those that are told of this policy alone, before it is retired.
UPDATE webhooks SET tenant = '', policies = (SELECT CAST(id AS TEXT) FROM policies WHERE id = :policy)
WHERE (tenant, policies) IN (SELECT tenant, name FROM policies WHERE id = :policy);

-- name: retired_policies
SELECT id FROM policies WHERE tenant = '' ORDER BY id;

-- name: delete_declines
DELETE FROM declines WHERE (policy, task, reviewer) IN (
    SELECT policy, task, reviewer FROM declines WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_claims
DELETE FROM claims WHERE (policy, task, seat, epoch) IN (
    SELECT policy, task, seat, epoch FROM claims WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_seats
DELETE FROM seats WHERE (policy, task, seat) IN (
    SELECT policy, task, seat FROM seats WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_snapshots
-- They may be large: one at a time.
DELETE FROM snapshots WHERE (policy, seq) IN (SELECT policy, seq FROM snapshots WHERE policy = :policy LIMIT 1)
RETURNING policy;

-- name: delete_requests
DELETE FROM requests WHERE (policy, request) IN (
    SELECT policy, request FROM requests WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_parked
DELETE FROM parked WHERE (policy, task) IN (
    SELECT policy, task FROM parked WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_decisions
DELETE FROM decisions WHERE (policy, task) IN (
    SELECT policy, task FROM decisions WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_log
DELETE FROM log WHERE (policy, seq) IN (
    SELECT policy, seq FROM log WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_budgets
DELETE FROM budgets WHERE (policy, resource) IN (
    SELECT policy, resource FROM budgets WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_deliveries
DELETE FROM deliveries WHERE (webhook, id) IN (
    SELECT webhook, id FROM deliveries WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_event_deliveries
DELETE FROM event_deliveries WHERE (webhook, created, id) IN (
    SELECT webhook, created, id FROM event_deliveries WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_events
DELETE FROM events WHERE id IN (SELECT id FROM events WHERE policy = :policy LIMIT :most)
RETURNING policy;

-- name: delete_webhooks
-- Those that were retired with it.
DELETE FROM webhooks WHERE (tenant, policies) IN (SELECT tenant, name FROM policies WHERE id = :policy)
RETURNING id;

-- name: delete_policy
DELETE FROM policies WHERE id = :policy;

-- name: add_snapshot
INSERT INTO snapshots (policy, seq, sha256, data) VALUES (:policy, :seq, :sha256, :data)
ON CONFLICT (policy, seq) DO UPDATE SET sha256 = excluded.sha256, data = excluded.data;

-- name: drop_snapshots
DELETE FROM snapshots WHERE policy = :policy AND seq NOT IN (
    SELECT seq FROM snapshots WHERE policy = :policy ORDER BY seq DESC LIMIT :keep);

-- name: snapshots
SELECT seq, sha256, data FROM snapshots WHERE policy = :policy ORDER BY seq DESC;

-- name: snapshot_seqs
SELECT seq FROM snapshots WHERE policy = :policy ORDER BY seq;

-- name: snapshot
SELECT sha256, data FROM snapshots WHERE policy = :policy AND seq = :seq;

-- name: add_key
INSERT INTO keys (id, tenant, hash, scopes, name, created, revoked, expires, last_used, reviewer)
VALUES (:id, :tenant, :hash, :scopes, :name, :created, NULL, :expires, NULL, :reviewer);

-- name: keys
SELECT id, tenant, hash, scopes, name, created, revoked, expires, last_used, reviewer FROM keys ORDER BY created, id;

-- name: revoke_keys_of
UPDATE keys SET revoked = :at WHERE tenant = :tenant AND revoked IS NULL RETURNING id;

-- name: revoke_key
UPDATE keys SET revoked = :at WHERE id = :id AND revoked IS NULL RETURNING id;

-- name: revoke_key_of
UPDATE keys SET revoked = :at WHERE id = :id AND tenant = :tenant AND revoked IS NULL RETURNING id;

-- name: use_key
UPDATE keys SET last_used = :at WHERE id = :id AND (last_used IS NULL OR last_used < :at);

-- name: add_session
INSERT INTO sessions (id, key, tenant, reviewer, created, expires, revoked)
VALUES (:id, :key, :tenant, :reviewer, :created, :expires, NULL);

-- name: sessions
SELECT id, key, tenant, reviewer, created, expires, revoked FROM sessions
WHERE revoked IS NULL AND expires > :now ORDER BY created, id;

-- name: revoke_session
UPDATE sessions SET revoked = :at WHERE id = :id AND revoked IS NULL;

-- name: revoke_oldest_sessions
-- All but the latest of a key.
UPDATE sessions SET revoked = :at WHERE key = :key AND revoked IS NULL AND id NOT IN (
    SELECT id FROM sessions WHERE key = :key AND revoked IS NULL ORDER BY created DESC, id LIMIT :keep);

-- name: drop_sessions
DELETE FROM sessions WHERE expires < :now;

-- name: add_webhook
INSERT INTO webhooks (id, tenant, url, secret, events, policies, models, created)
VALUES (:id, :tenant, :url, :secret, :events, :policies, :models, :created);

-- name: webhooks
SELECT id, tenant, url, secret, events, policies, models, created, dropped FROM webhooks ORDER BY created, id;

-- name: delete_webhook
-- Its deliveries go with it.
DELETE FROM webhooks WHERE id = :id AND tenant = :tenant RETURNING id;

-- name: delete_webhooks_of
DELETE FROM webhooks WHERE tenant = :tenant;

-- name: add_event
-- One of the version before may come in parts.
INSERT INTO events (id, policy, event, body, created, kept) VALUES (:id, :policy, :event, :body, :created, :kept)
ON CONFLICT (id) DO UPDATE SET kept = events.kept + excluded.kept;

-- name: add_event (postgres)
INSERT INTO events (id, policy, event, body, created, kept)
SELECT * FROM unnest(:id::text[], :policy::bigint[], :event::text[], :body::bytea[], :created::bigint[],
    :kept::bigint[])
ON CONFLICT (id) DO UPDATE SET kept = events.kept + excluded.kept;

-- name: add_delivery
-- Unless the webhook was deleted meanwhile.
INSERT INTO event_deliveries (webhook, created, id, policy, due, state, attempts, status, error, ended)
SELECT given.* FROM (
    SELECT :webhook AS webhook, :created AS created, :id AS id, :policy AS policy, :due AS due, :state AS state,
        :attempts AS attempts, :status AS status, :error AS error, :ended AS ended
) AS given JOIN webhooks ON webhooks.id = given.webhook;

-- name: add_delivery (postgres)
-- The same; whoever deletes the webhook waits, and then deletes these too.
INSERT INTO event_deliveries (webhook, created, id, policy, due, state, attempts, status, error, ended)
SELECT given.* FROM unnest(:webhook::text[], :created::bigint[], :id::text[], :policy::bigint[], :due::bigint[],
    :state::text[], :attempts::bigint[], :status::bigint[], :error::text[], :ended::bigint[])
    AS given (webhook, created, id, policy, due, state, attempts, status, error, ended)
JOIN webhooks ON webhooks.id = given.webhook FOR KEY SHARE OF webhooks;

-- name: due_deliveries
-- Of policies that this process owns, the oldest attempts first.
SELECT due.webhook, due.id, due.policy, events.event, events.body, due.created, due.due, state, attempts, status, error,
    ended
FROM event_deliveries AS due JOIN events ON events.id = due.id
WHERE due.webhook = :webhook AND state = 'waiting' AND due.due <= :now AND due.policy IN (:policies)
ORDER BY due.due, due.id LIMIT :limit;

-- name: end_attempt
UPDATE event_deliveries SET state = :state, attempts = attempts + 1, due = :due, status = :status, error = :error,
    ended = :ended
WHERE webhook = :webhook AND id = :id AND created = :created AND state = 'waiting';

-- name: list_deliveries
-- The latest to a webhook.
SELECT each.webhook, each.id, each.policy, events.event, events.body, each.created, due, state, attempts, status, error,
    ended
FROM event_deliveries AS each JOIN events ON events.id = each.id
WHERE each.webhook = :webhook ORDER BY each.created DESC, each.id LIMIT :limit;

-- name: oldest_delivery
SELECT MIN(created) FROM event_deliveries WHERE policy = :policy AND state = 'waiting';

-- name: count_waiting
SELECT webhook, COUNT(*) FROM event_deliveries WHERE webhook IN (:keys) AND state = 'waiting' GROUP BY webhook;

-- name: drop_oldest
-- Those of a webhook that have waited longest, whichever process delivers them; + 0, so that only those that wait are read.
DELETE FROM event_deliveries WHERE (webhook, created, id) IN (
    SELECT webhook, created, id FROM event_deliveries
    WHERE webhook = :webhook AND state = 'waiting' ORDER BY created + 0, id LIMIT :limit)
RETURNING id, policy;

-- name: count_dropped
UPDATE webhooks SET dropped = dropped + :dropped WHERE id = :id;

-- name: prune_deliveries
DELETE FROM event_deliveries WHERE (webhook, created, id) IN (
    SELECT webhook, created, id FROM event_deliveries WHERE state = :state AND ended < :before LIMIT :limit
) RETURNING id, policy;

-- name: release_event
UPDATE events SET kept = kept - :rows WHERE id = :id;

-- name: release_events_of_webhook
UPDATE events SET kept = kept - 1 WHERE id IN (
    SELECT event_deliveries.id FROM event_deliveries JOIN webhooks ON webhooks.id = webhook
    WHERE webhook = :id AND tenant = :tenant);

-- name: release_events_of_tenant
UPDATE events SET kept = 0 WHERE id IN (
    SELECT event_deliveries.id FROM event_deliveries JOIN webhooks ON webhooks.id = webhook WHERE tenant = :tenant);

-- name: drop_unused_events
DELETE FROM events WHERE kept <= 0;

-- name: prune_events
-- Those that nobody waits for any more: their webhooks were deleted while they were written.
DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE policy = :policy AND created < :before AND NOT EXISTS (
        SELECT 1 FROM event_deliveries AS each WHERE each.policy = events.policy
            AND each.state IN ('waiting', 'delivered', 'dead') AND each.created = events.created AND each.id = events.id)
    LIMIT :limit)
RETURNING id;

-- name: old_deliveries
-- What a process of the version before has written.
SELECT webhook, id, policy, event, body, created, due, state, attempts, status, error, ended FROM deliveries
WHERE policy IN (:policies) AND state = :state LIMIT :limit;

-- name: drop_old_delivery
DELETE FROM deliveries WHERE webhook = :webhook AND id = :id;

-- name: now (postgres)
-- The server's time: the clocks of several machines differ.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: lock (postgres)
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || :what, 0));
