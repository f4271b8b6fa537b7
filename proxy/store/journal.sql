-- name: known
SELECT id, status, answer_hash, replaces FROM journal WHERE seen_scope = :seen_scope AND chain = :chain;

-- name: open
INSERT INTO journal (id, owner, seen_scope, chain, at, status, boot, header, body, replaces)
VALUES (:id, :owner, :seen_scope, :chain, :at, 'open', :boot, :header, :body, :replaces);

-- name: join
-- Another call with the same new part is under way. The text of a finished turn was dropped; it is needed again when its
-- answer is replaced.
UPDATE journal SET
  calls = CASE boot WHEN :boot THEN calls + 1 ELSE 1 END,
  boot = :boot,
  header = CASE WHEN status IN ('done', 'failed') THEN :header ELSE header END,
  body = CASE WHEN status IN ('done', 'failed') THEN :body ELSE body END
WHERE id = :id;

-- name: by_id
SELECT status, at, header, calls FROM journal WHERE id = :id;

-- name: answer
UPDATE journal SET status = 'answered', answer = :answer, answer_hash = :answer_hash, calls = max(calls - 1, 0),
  replaces = CASE status WHEN 'done' THEN answer_hash ELSE coalesce(replaces, answer_hash) END
WHERE id = :id;

-- name: leave
-- The turn goes only when all calls that share it have failed.
UPDATE journal SET calls = max(calls - 1, 0) WHERE id = :id;

-- name: drop_left
DELETE FROM journal WHERE id = :id AND status = 'open' AND calls = 0;

-- name: close
-- Not when another call has answered it anew meanwhile: that answer is still to be worked on.
UPDATE journal SET
  status = :status,
  body = CASE WHEN :status = 'done' AND calls = 0 THEN NULL ELSE body END,
  answer = CASE :status WHEN 'done' THEN NULL ELSE answer END
WHERE id = :id AND (:worked_on IS NULL OR answer_hash IS NULL OR answer_hash = :worked_on);

-- name: drop_text
UPDATE journal SET body = NULL WHERE id = :id AND status = 'done' AND calls = 0;

-- name: drop_unfinished_text
-- At a start no call is under way: what a call of the run before would have needed goes.
UPDATE journal SET body = CASE status WHEN 'done' THEN NULL ELSE body END, calls = 0
WHERE status IN ('open', 'answered') OR (status = 'done' AND body IS NOT NULL);

-- name: waiting
SELECT seq FROM journal
WHERE status IN ('open', 'answered') AND (status = 'answered' OR boot <> :boot)
ORDER BY seq;

-- name: waiting_turn
SELECT id, seen_scope, chain, at, status, header, body, answer, replaces FROM journal
WHERE seq = :seq AND status IN ('open', 'answered') AND (status = 'answered' OR boot <> :boot);

-- name: ledger_open
INSERT INTO ledger (id, turn, owner, at, scope, status, written_status, outcomes)
VALUES (:id, :turn, :owner, :at, :scope, :status, :written_status, :outcomes)
ON CONFLICT (id) DO NOTHING
RETURNING seq;

-- name: ledger_put
INSERT INTO ledger (id, turn, owner, at, scope, status, written_status, outcomes)
VALUES (:id, :turn, :owner, :at, :scope, :status, :written_status, :outcomes)
ON CONFLICT (id) DO UPDATE SET
  status = excluded.status, written_status = excluded.written_status, outcomes = excluded.outcomes
WHERE owner = excluded.owner
RETURNING seq;

-- name: recall_put
INSERT INTO recalls (seq, recalled, injected) VALUES (:seq, :recalled, :injected)
ON CONFLICT (seq) DO UPDATE SET recalled = excluded.recalled, injected = excluded.injected;

-- name: ledger_share
-- Several calls share a turn: each one's account waits for its own answer.
UPDATE ledger SET written_status = 'open' WHERE id = :turn AND written_status = 'queued';

-- name: ledger_answered
UPDATE ledger SET written_status = 'queued' WHERE id = :call AND written_status = 'open';

-- name: ledger_void
UPDATE ledger SET written_status = 'failed', outcomes = :outcomes
WHERE id = :call AND written_status IN ('queued', 'open');

-- name: ledger_unfinished
UPDATE ledger SET written_status = 'failed', outcomes = :outcomes WHERE written_status = 'open';

-- name: ledger_close
UPDATE ledger SET written_status = :written_status, outcomes = :outcomes WHERE turn = :turn AND written_status = 'queued';

-- name: ledger
SELECT id, scope, at, status, recalled, injected,
  CASE written_status WHEN 'open' THEN 'queued' ELSE written_status END, outcomes
FROM ledger JOIN recalls USING (seq)
WHERE id = :id AND owner = :owner;

-- name: kept_from
-- Entries come in the order of time: this walks over those that go, and no further.
SELECT coalesce((SELECT seq FROM ledger WHERE at >= :before ORDER BY seq LIMIT 1), 9223372036854775807);

-- name: prune_recalls
DELETE FROM recalls WHERE seq < :seq;

-- name: prune_ledger
DELETE FROM ledger WHERE seq < :seq;

-- name: prune_journal
DELETE FROM journal WHERE at < :before AND status IN ('done', 'failed');
