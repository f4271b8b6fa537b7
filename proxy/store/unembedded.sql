-- name: waiting
-- Three ranges of the index on fingerprints, where "is another one" would walk all of it.
SELECT row, content FROM memories
WHERE fingerprint IS NULL OR fingerprint < :fingerprint OR fingerprint > :fingerprint LIMIT :limit;

-- name: count_waiting
SELECT count(*) FROM memories
WHERE fingerprint IS NULL OR fingerprint < :fingerprint OR fingerprint > :fingerprint;

-- name: count_readable
SELECT count(*) FROM memories
WHERE partition IN (:agent, :user, :shared) AND state = 'active' AND fingerprint IS NOT :fingerprint;

-- name: embed
-- Only what still says what was embedded.
UPDATE memories SET fingerprint = :fingerprint, vector = :vector
WHERE row = :row AND content = :content AND fingerprint IS NOT :fingerprint
RETURNING partition, state, term_count, expires_at, session_id, created_at;
