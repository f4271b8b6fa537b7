-- name: mark_seen
INSERT INTO seen (seen_scope, chain, at) VALUES (:seen_scope, :chain, :at)
ON CONFLICT (seen_scope, chain) DO UPDATE SET at = max(at, excluded.at);

-- name: mark_seen_content
INSERT INTO seen_content (owner, hash) VALUES (:owner, :hash) ON CONFLICT DO NOTHING;

-- name: seen
SELECT chain FROM seen
WHERE seen_scope = :seen_scope AND chain IN (SELECT value FROM json_each(:chains)) AND (:since IS NULL OR at >= :since);

-- name: seen_content
SELECT hash FROM seen_content WHERE owner = :owner AND hash IN (SELECT value FROM json_each(:hashes))
UNION
SELECT substr(hash, 3) FROM tombstones
WHERE (owner = :owner OR owner = (SELECT user_owner FROM owners WHERE owners.owner = :owner))
  AND hash IN (SELECT 'm:' || value FROM json_each(:hashes));

-- name: touch_session
-- A session that goes on after its end is open again.
INSERT INTO sessions (owner, session_id, started_at, last_at, turns, point)
VALUES (:owner, :session_id, :started_at, :now, :turns, :points)
ON CONFLICT (owner, session_id) DO UPDATE SET
  last_at = max(last_at, excluded.last_at), turns = turns + excluded.turns, point = point + excluded.point, ended_at = NULL;

-- name: link
INSERT INTO session_links (owner, link, session_id, point, at)
VALUES (:owner, :link, :session_id,
        CASE WHEN :head THEN (SELECT point FROM sessions WHERE owner = :owner AND session_id = :session_id) ELSE 0 END, :now)
ON CONFLICT (owner, link, session_id) DO UPDATE SET point = max(point, excluded.point), at = excluded.at;

-- name: session_of
SELECT links.session_id FROM session_links AS links JOIN sessions USING (owner, session_id)
WHERE links.owner = :owner AND links.link = :link
ORDER BY (links.point = sessions.point AND links.point > 0) DESC, links.at DESC
LIMIT 1;

-- name: session
SELECT session_id, started_at, last_at, turns, ended_at FROM sessions WHERE owner = :owner AND session_id = :session_id;

-- name: end_session
UPDATE sessions SET ended_at = :now WHERE owner = :owner AND session_id = :session_id;
