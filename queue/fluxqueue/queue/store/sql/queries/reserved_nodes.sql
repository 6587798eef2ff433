-- reserved_nodes --
SELECT uid, nodes FROM fluxqueue.reserved_nodes ORDER BY uid;

-- reserve_nodes --
INSERT INTO fluxqueue.reserved_nodes AS r (uid, nodes)
VALUES (%(uid)s, %(nodes)s::text[])
ON CONFLICT (uid) DO UPDATE SET nodes = EXCLUDED.nodes, chosen_at = now();

-- unreserve_nodes --
DELETE FROM fluxqueue.reserved_nodes WHERE uid = ANY (%(uids)s::text[]);
