-- name: page
-- What a user owns, whoever reads it; with :every 0 only what the partitions of one agent's readers hold.
SELECT * FROM records
WHERE owner = :owner AND row > :after AND (:every OR partition IN (:agent, :user, :shared))
ORDER BY row LIMIT :limit;

-- name: versions
SELECT id, change, state, at FROM versions WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY seq;

-- name: links
SELECT derived, evidence, how FROM evidence
WHERE owner = :owner AND derived IN (SELECT value FROM json_each(:ids)) ORDER BY derived, evidence;

-- name: sightings
SELECT id, session, message, at FROM sightings
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids)) ORDER BY at, session, message;

-- name: owner_of
SELECT owner FROM memories WHERE id = :id;

-- name: tenant_page
-- Rows are numbered as they are written, so the newest come first without a sort; the conditions of the filters in use
-- stand for the word in braces (listing.sql).
SELECT * FROM records
WHERE tenant = :tenant AND (:only_user IS NULL OR user_id = :only_user) AND (:only_agent IS NULL OR agent_id = :only_agent)
  AND row < :before {and}
ORDER BY row DESC LIMIT :limit;
