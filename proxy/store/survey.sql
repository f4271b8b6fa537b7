-- name: owners
-- One step in the index per owner: a store of a million records is not walked for its ten thousand users.
WITH RECURSIVE walk (owner) AS (
  SELECT min(owner) FROM memories WHERE owner > :after
  UNION ALL
  SELECT (SELECT min(owner) FROM memories WHERE owner > walk.owner) FROM walk WHERE walk.owner IS NOT NULL
  LIMIT :limit)
SELECT walk.owner, one.tenant, one.user_id, one.agent_id
FROM walk JOIN memories AS one ON one.row = (SELECT row FROM memories WHERE owner = walk.owner LIMIT 1);

-- name: surveyed
SELECT records.*, packed FROM (
  SELECT row AS wanted, CASE WHEN fingerprint = :fingerprint THEN vector END AS packed FROM memories
  WHERE owner = :owner AND row > :after ORDER BY row LIMIT :limit
) CROSS JOIN records ON records.row = wanted ORDER BY wanted;

-- name: links
SELECT derived, evidence, how FROM evidence WHERE owner = :owner;

-- name: sightings
SELECT id, session, at FROM sightings WHERE owner = :owner ORDER BY at;

-- name: made_from
-- The records that one was evidence of; a duplicate that was merged away made nothing.
SELECT records.* FROM evidence CROSS JOIN records ON records.id = evidence.derived AND records.owner = evidence.owner
WHERE evidence.owner = :owner AND evidence.evidence = :id AND evidence.how <> 'merged';

-- name: folded
-- The records that one stands for.
SELECT records.*, evidence.how FROM evidence
CROSS JOIN records ON records.id = evidence.evidence AND records.owner = evidence.owner
WHERE evidence.owner = :owner AND evidence.derived = :id AND evidence.how IN ('merged', 'compressed');

-- name: said_again
SELECT message FROM sightings WHERE owner = :owner AND id = :id AND message <> '';

-- name: link
INSERT INTO evidence (owner, derived, evidence, how) VALUES (:owner, :derived, :evidence, :how)
ON CONFLICT (owner, derived, evidence) DO UPDATE SET how = excluded.how;

-- name: unlink
DELETE FROM evidence WHERE owner = :owner AND derived = :id;

-- name: drop_links
DELETE FROM evidence WHERE owner = :owner AND (derived = :id OR evidence = :id);

-- name: drop_sightings
DELETE FROM sightings WHERE owner = :owner AND id = :id;

-- name: seen_in
SELECT 1 FROM sightings WHERE owner = :owner AND id = :id AND session = :session;

-- name: sight
INSERT INTO sightings (owner, id, session, message, at) VALUES (:owner, :id, :session, :message, :at)
ON CONFLICT (owner, id, session, message) DO NOTHING;

-- name: strengthen
UPDATE memories SET strength = min(2.0, strength + 0.1) WHERE row = :row;
