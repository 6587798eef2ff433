"""Nodes that are added, removed, reshaped, relabelled or marked up and down, with jobs running on them.

What a job holds on a node outlives the node. A removed vertex leaves the tree with everything booked on it,
and a new node of the same name gets the same vertex. A node that shrinks below what its jobs hold keeps the
jobs and is closed. Reservations on a removed node are dropped, because they could never start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fluxqueue.fluxion.engine.job_changes import JobChanges
from fluxqueue.fluxion.engine.refusals import Refused
from fluxqueue.fluxion.engine.relocation import relocate_jobs
from fluxqueue.fluxion.graph.jgf import InvalidGraph
from fluxqueue.fluxion.graph.nodespecs import add_node, check_spec, parent_for, resize_pools
from fluxqueue.fluxion.graph.pools import LeafRun
from fluxqueue.fluxion.graph.vertices import NODE, Vertex
from fluxqueue.fluxion.match.state import GraphState
from fluxqueue.fluxion.messages import GraphNodeSpec, JobMode

__all__ = ["Topology"]


class Topology:
    """Changes of one state's graph.
    A change that cannot be made raises `Refused`; every change can be undone.
    """

    def __init__(self, state: GraphState, job_changes: JobChanges) -> None:
        self._state = state
        self._job_changes = job_changes
        self._stale = False

    def add(self, specs: Sequence[GraphNodeSpec]) -> tuple[int, ...]:
        """Add nodes, or give known ones another shape, parent, properties and status;
        return the dropped reservations.
        """
        displaced: list[int] = []
        self._stale = False
        for spec in specs:
            try:
                check_spec(spec)
                displaced.extend(self._add(spec))
            except InvalidGraph as error:
                raise Refused(str(error)) from None
        if self._stale:
            self._state.table.rebuild()
        self._state.graph_changed()
        return tuple(displaced)

    def _add(self, spec: GraphNodeSpec) -> list[int]:
        state, graph = self._state, self._state.graph
        node = graph.by_name.get(spec.name)
        if node is None and spec.name in graph.removed:
            node = self._bring_back(graph.removed.pop(spec.name), parent_for(graph, spec))
        if node is None:
            fresh = add_node(graph, spec)
            state.table.append(fresh)
            state.undo(lambda: self._detach(fresh))
            self._job_changes.book_awaited(fresh)
            return []
        if (parent := parent_for(graph, spec)) is not node.parent:
            self._move(node, parent)
        displaced = self._reshape(node, spec)
        self._relabel(node, spec.properties)
        self._switch(node, up=not spec.down)
        return displaced

    def _bring_back(self, node: Vertex, parent: Vertex) -> Vertex:
        self._attach(node, parent, later=True)

        def undo() -> None:
            self._detach(node)
            self._state.graph.removed[node.name] = node

        self._state.undo(undo)
        return node

    def _move(self, node: Vertex, parent: Vertex) -> None:
        before, position = node.parent, node.position
        assert before is not None
        self._detach(node)
        self._attach(node, parent, later=True)

        def undo() -> None:
            self._detach(node)
            self._attach(node, before, position)

        self._state.undo(undo)

    def _reshape(self, node: Vertex, spec: GraphNodeSpec) -> list[int]:
        """Give a node other pools; return the dropped reservations."""
        state = self._state
        wanted = {pool.type: (pool.total, pool.vertex_size or 1) for pool in spec.pools if pool.total > 0}
        if wanted == {kind: (run.total, run.size) for kind, run in node.runs.items()}:
            return []
        before = _shape(node)
        lost = [run for kind, run in node.runs.items() if kind not in wanted or wanted[kind][1] != run.size]
        if any(run.busy for run in lost):
            names = ", ".join(sorted(run.type for run in lost if run.busy))
            raise Refused(
                f"node {node.name}: jobs hold {names}, whose vertices would get another size: free them first"
            )
        gone = {job for run in lost for job in run.reserved}
        for run in node.runs.values():
            if run not in lost:
                total, size = wanted[run.type]
                kept = (1 << -(-total // size)) - 1
                gone.update(job for job, mask in run.reserved.items() if mask & ~kept)
        for job in gone:
            state.free(job)
        resize_pools(node, spec.pools)

        def settle() -> None:
            if node.row >= 0:
                state.table.resized(node)
            state.update_closed(node)
            state.graph.types.update(node.runs)

        def undo() -> None:
            before()
            settle()

        state.undo(undo)
        settle()
        gone |= relocate_jobs(state, node, displace=True)
        return sorted(job.jobid for job in gone)

    def remove(self, names: Sequence[str]) -> tuple[int, ...]:
        """Remove nodes; unknown names are no error. Return the dropped reservations."""
        state, graph = self._state, self._state.graph
        displaced: list[int] = []
        for name in names:
            node = graph.by_name.get(name)
            if node is None:
                continue
            for job in [job for job in (*node.shared, *node.exclusive) if job.mode is JobMode.RESERVED]:
                state.free(job)
                displaced.append(job.jobid)
            parent, position = node.parent, node.position
            assert parent is not None
            self._detach(node)
            if node.shared or node.exclusive:
                graph.removed[name] = node

            def undo(node: Vertex = node, parent: Vertex = parent, position: int = position) -> None:
                graph.removed.pop(node.name, None)
                self._attach(node, parent, position)

            state.undo(undo)
        state.graph_changed()
        return tuple(sorted(set(displaced)))

    def _detach(self, node: Vertex) -> None:
        graph = self._state.graph
        graph.unregister(node)
        self._state.table.drop(node)
        if node.parent is not None:
            node.parent.remove_child(node)

    def _attach(
        self, node: Vertex, parent: Vertex, position: int | None = None, *, later: bool = False
    ) -> None:
        """Put a vertex with everything booked on it back into the tree;
        with ``later``, the caller rebuilds the node table.
        """
        parent.add_child(node, position)
        node.path = f"{parent.path}/{node.name}"
        self._state.graph.register(node)
        for job in (*node.shared, *node.exclusive):
            job.placement.pass_through(parent)
            at: Vertex | None = parent
            while at is not None:
                if job not in at.exclusive:
                    at.shared[job] = None
                at = at.parent
        if later:  # many nodes may move in one call, and the table is rebuilt only once
            self._stale = True
        else:
            self._state.table.rebuild()

    def set_status(self, up: Mapping[str, bool]) -> None:
        """Mark nodes (by name) or vertices (by containment path) up or down; all or none."""
        graph = self._state.graph
        for name, is_up in up.items():
            vertex = graph.by_name.get(name) or graph.by_path.get(name)
            if vertex is not None:
                self._switch(vertex, up=is_up)
                continue
            leaf = graph.find_leaf(name)
            if leaf is None:
                raise Refused(f"status: {name!r:.200} is neither a node nor a containment path")
            self._switch_leaf(*leaf, up=is_up)
        self._state.releases += 1

    def _switch(self, vertex: Vertex, *, up: bool) -> None:
        if vertex.up == up:
            return
        state = self._state
        vertex.up = up
        below = sum(1 for other in vertex.subtree() if other.type == NODE)
        state.graph.nodes_up += below if up else -below
        state.table.refresh_below(vertex)
        state.undo(lambda: self._switch(vertex, up=not up))

    def _switch_leaf(self, run: LeafRun, index: int, *, up: bool) -> None:
        before, state = run.down, self._state
        run.down = run.down & ~(1 << index) if up else run.down | 1 << index

        def undo() -> None:
            run.down = before
            if run.parent.row >= 0:
                state.table.refresh(run.parent)

        if run.parent.row >= 0:
            state.table.refresh(run.parent)
        state.undo(undo)

    def set_properties(self, properties: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all properties of nodes."""
        for name, wanted in properties.items():
            node = self._state.graph.by_name.get(name)
            if node is None:
                raise Refused(f"properties: there is no node {name!r:.200}")
            self._relabel(node, wanted)
        self._state.graph_changed()

    def _relabel(self, node: Vertex, properties: Mapping[str, str]) -> None:
        before = node.properties
        if before == properties:
            return
        node.properties = dict(properties)
        self._state.table.relabelled(node)

        def undo() -> None:
            node.properties = before
            self._state.table.relabelled(node)

        self._state.undo(undo)


def _shape(node: Vertex) -> Callable[[], None]:
    """Return a function that restores the present shape of a node."""
    runs, entries = dict(node.runs), list(node.entries)
    each = [
        (run, run.ids, run.uniq_ids, run.full, dict(run.odd_sizes), run.position) for run in runs.values()
    ]

    def back() -> None:
        node.runs, node.entries = runs, entries
        for run, ids, uniq_ids, full, odd_sizes, position in each:
            run.ids, run.uniq_ids, run.full, run.odd_sizes, run.position = (
                ids,
                uniq_ids,
                full,
                odd_sizes,
                position,
            )

    return back
