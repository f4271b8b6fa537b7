-- name: create
CREATE TABLE IF NOT EXISTS spent (
    day TEXT NOT NULL,
    tenant TEXT NOT NULL,
    purpose TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (day, tenant, purpose)
) WITHOUT ROWID;

-- name: forget_other_days
DELETE FROM spent WHERE day <> ?;

-- name: spent
SELECT tokens FROM spent WHERE day = ? AND tenant = ? AND purpose = ?;

-- name: add
INSERT INTO spent (day, tenant, purpose, tokens) VALUES (?, ?, ?, ?)
ON CONFLICT (day, tenant, purpose) DO UPDATE SET tokens = tokens + excluded.tokens;

-- name: correct
UPDATE spent SET tokens = tokens + ? WHERE day = ? AND tenant = ? AND purpose = ?;
