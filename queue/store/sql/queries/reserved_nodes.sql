-- reserved_nodes --
SELECT uid, nodes FROM fluxqueue.reserved_nodes ORDER BY uid;

-- reserve_nodes --
INSERT INTO fluxqueue.reserved_nodes AS r (uid, nodes, chosen_at)
VALUES (%(uid)s, %(nodes)s::text[], %(now)s::timestamptz)
ON CONFLICT (uid) DO UPDATE SET nodes = EXCLUDED.nodes, chosen_at = EXCLUDED.chosen_at;

-- unreserve_nodes --
DELETE FROM fluxqueue.reserved_nodes WHERE uid = ANY (%(uids)s::text[]);
