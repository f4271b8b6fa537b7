-- name: by_id
SELECT * FROM records WHERE id = :id AND partition IN (:agent, :user, :shared);

-- name: by_ids
SELECT records.* FROM json_each(:ids) AS wanted CROSS JOIN records ON records.id = wanted.value
WHERE +partition IN (:agent, :user, :shared);

-- name: by_rows
-- The cross join keeps the planner from walking the partitions instead.
SELECT records.* FROM json_each(:rows) AS wanted CROSS JOIN records ON records.row = wanted.value
WHERE +partition IN (:agent, :user, :shared);

-- name: glances
-- What stands before the text: no page of text or vector is read.
SELECT row, partition, confidence, strength, valid_from, seen, speaker, memory_type, kind
FROM json_each(:rows) AS wanted CROSS JOIN memories ON row = wanted.value
WHERE +partition IN (:agent, :user, :shared);

-- name: listed
-- The word in braces stands for the conditions of the filters in use (listing.sql).
SELECT records.* FROM (
  SELECT row AS wanted, created_at AS at, id AS named FROM memories
  WHERE partition IN (SELECT value FROM json_each(:partitions) UNION SELECT owner FROM owners WHERE user_owner = :owner) {and}
  ORDER BY created_at DESC, id DESC
  LIMIT :limit
) CROSS JOIN records ON records.row = wanted
ORDER BY at DESC, named DESC;

-- name: rows_matching
SELECT group_concat(row) FROM memories WHERE partition IN (:agent, :user, :shared) AND state = 'active' {and};

-- name: recent
SELECT * FROM records
WHERE partition = :partition AND state = 'active' AND memory_type = :memory_type AND (expires_at IS NULL OR expires_at > :now)
ORDER BY valid_from DESC, row DESC LIMIT :limit;

-- name: by_key
SELECT * FROM records
WHERE partition IN (:agent, :user, :shared) AND key = :key AND state = 'active' AND (expires_at IS NULL OR expires_at > :now)
ORDER BY valid_from DESC, row DESC;

-- name: from_message
SELECT * FROM records
WHERE message_hash = :message_hash AND partition IN (:agent, :user, :shared) AND state IN ('active', 'pending')
ORDER BY row;

-- name: counts
SELECT memory_type, kind, state, count(*) FROM memories
WHERE partition IN (:agent, :user, :shared)
GROUP BY memory_type, kind, state;

-- name: partition_contents
SELECT row, term_count, expires_at, CASE WHEN fingerprint = :fingerprint THEN vector END, session_id, created_at
FROM memories WHERE partition = :partition AND state = 'active' LIMIT :cap;

-- name: partition_rows
SELECT row FROM memories WHERE partition = :partition AND state = 'active' ORDER BY row;

-- name: contents_by_rows
SELECT row, term_count, expires_at, CASE WHEN fingerprint = :fingerprint THEN vector END, session_id, created_at
FROM json_each(:rows) AS wanted CROSS JOIN memories ON row = wanted.value
WHERE +partition = :partition AND state = 'active';

-- name: vectors_by_rows
SELECT row, partition, vector FROM json_each(:rows) AS wanted CROSS JOIN memories ON row = wanted.value
WHERE +partition IN (:agent, :user, :shared) AND fingerprint = :fingerprint AND vector IS NOT NULL;

-- name: large_partitions
-- The plus keeps the planner in the partitions' order.
SELECT partition FROM memories WHERE state = 'active' AND +fingerprint = :fingerprint AND vector IS NOT NULL
GROUP BY partition HAVING count(*) > :above;

-- name: postings
-- Rows that hold a term, given with the partitions in front; at most :cap of them.
SELECT count(*), group_concat(rowid) FROM (SELECT rowid FROM fts WHERE fts MATCH :match LIMIT :cap);

-- name: versions
SELECT change, state, at FROM versions WHERE id = :id ORDER BY seq;

-- name: insert
INSERT INTO memories (
  id, partition, owner, tenant, user_id, agent_id, session_id, scope, memory_type, kind, key, tags, entities, language,
  confidence, strength, access_count, last_accessed_at, created_at, updated_at, valid_from, expires_at, version, supersedes,
  superseded_by, parent_id, state, source, message_hash, token_estimate, seen, speaker, content, short, line_tokens, short_tokens,
  change, term_count, fingerprint, vector)
VALUES (
  :id, :partition, :owner, :tenant, :user_id, :agent_id, :session_id, :scope, :memory_type, :kind, :key, :tags, :entities,
  :language, :confidence, :strength, :access_count, :last_accessed_at, :created_at, :updated_at, :valid_from, :expires_at,
  :version, :supersedes, :superseded_by, :parent_id, :state, :source, :message_hash, :token_estimate, :seen, :speaker,
  :content, :short, :line_tokens, :short_tokens, :change, :term_count, :fingerprint, :vector);

-- name: update
UPDATE memories SET
  partition = :partition, owner = :owner, tenant = :tenant, user_id = :user_id, agent_id = :agent_id,
  session_id = :session_id, scope = :scope, memory_type = :memory_type, kind = :kind, key = :key, tags = :tags,
  entities = :entities, language = :language, confidence = :confidence, strength = :strength,
  access_count = :access_count, last_accessed_at = :last_accessed_at, created_at = :created_at, updated_at = :updated_at,
  valid_from = :valid_from, expires_at = :expires_at, version = :version, supersedes = :supersedes,
  superseded_by = :superseded_by, parent_id = :parent_id, state = :state, source = :source, message_hash = :message_hash,
  token_estimate = :token_estimate, seen = :seen, speaker = :speaker, content = :content, short = :short,
  line_tokens = :line_tokens, short_tokens = :short_tokens, change = :change, term_count = :term_count
WHERE row = :row;

-- name: set_vector
UPDATE memories SET fingerprint = :fingerprint, vector = :vector WHERE row = :row;

-- name: vector
SELECT vector FROM memories WHERE row = :row AND fingerprint = :fingerprint;

-- name: owned
SELECT * FROM records WHERE id = :id AND owner = :owner;

-- name: add_version
INSERT INTO versions (id, change, at, state) VALUES (:id, :change, :at, :state);

-- name: partition_terms
-- Every token of a partition with its rows, ascending; `fts_terms` is a reader's own name for the index's inside.
SELECT term, doc FROM temp.fts_terms WHERE term >= :from AND term < :to;

-- name: rows_of
SELECT row, partition FROM memories
WHERE id IN (SELECT value FROM json_each(:ids)) AND partition IN (:agent, :user, :shared);

-- name: states
SELECT id, state, superseded_by, version FROM memories
WHERE id IN (SELECT value FROM json_each(:ids)) AND partition IN (:agent, :user, :shared);

-- name: count
SELECT count(*) FROM memories
WHERE partition IN (SELECT :user UNION SELECT owner FROM owners WHERE user_owner = :user)
  AND state IN ('active', 'pending');

-- name: touch
UPDATE memories SET access_count = access_count + 1, last_accessed_at = :now, strength = min(2.0, strength + 0.1)
WHERE id IN (SELECT value FROM json_each(:ids)) AND partition IN (:agent, :user, :shared);

-- name: add_terms
INSERT INTO fts (rowid, terms) VALUES (:row, :terms);

-- name: drop_terms
-- A contentless table must be told what it had indexed.
INSERT INTO fts (fts, rowid, terms) VALUES ('delete', :row, :terms);

-- name: drop_all_terms
INSERT INTO fts (fts) VALUES ('delete-all');

-- name: to_index
SELECT row, partition, content FROM memories WHERE state = 'active' AND row > :after ORDER BY row LIMIT 500;

-- name: to_see
SELECT row, content, source ->> 'role' FROM memories WHERE row > :after ORDER BY row LIMIT 500;

-- name: set_seen
UPDATE memories SET seen = :seen, speaker = :speaker WHERE row = :row;

-- name: set_term_count
UPDATE memories SET term_count = :term_count WHERE row = :row;

-- name: optimize_terms
INSERT INTO fts (fts) VALUES ('optimize');
