-- name: derived
-- Summaries and lessons made from a record; other children are links of a tool chain and stand alone.
SELECT * FROM records
WHERE parent_id = :id AND owner = :owner AND (kind IN ('summary', 'lesson', 'reflection') OR memory_type = 'reflective');

-- name: session_summaries
-- Made from all that was said in a session, so also from this record.
SELECT * FROM records
WHERE owner = :owner AND session_id = :session_id AND agent_id = :agent_id AND kind = 'summary' AND id <> :id;

-- name: same_message
SELECT * FROM records WHERE message_hash = :message_hash AND owner = :owner;

-- name: former_states
SELECT state FROM versions WHERE id = :id;

-- name: drop_versions
DELETE FROM versions WHERE id = :id;

-- name: drop_memory
DELETE FROM memories WHERE row = :row;

-- name: unlink_successor
UPDATE memories SET supersedes = NULL WHERE id = :superseded_by AND supersedes = :id;

-- name: turns_with_text
SELECT seq, body, answer, answer_hash FROM journal WHERE owner = :owner AND body IS NOT NULL;

-- name: drop_turn
DELETE FROM journal WHERE seq = :seq;

-- name: reword_turn
UPDATE journal SET body = :body WHERE seq = :seq;

-- name: add_tombstone
INSERT INTO tombstones (owner, hash, at) VALUES (:owner, :hash, :at) ON CONFLICT DO NOTHING;

-- name: tombstones
SELECT 1 FROM tombstones WHERE owner = :owner AND hash = :content
UNION ALL
SELECT 1 FROM tombstones WHERE owner = :owner AND hash = :message;

-- name: is_forgotten
SELECT 1 FROM tombstones WHERE owner = :owner AND hash = :message;

-- name: lift_tombstones
DELETE FROM tombstones WHERE owner = :owner AND hash IN (:content, :message);

-- name: know_owner
INSERT INTO owners (owner, user_owner) VALUES (:owner, :user_owner) ON CONFLICT DO NOTHING;

-- name: set_meta
INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: get_meta
SELECT value FROM meta WHERE name = :name;
