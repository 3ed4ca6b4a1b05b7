"""Delay of DeleteTopics responses until the names are free, as clients often recreate a topic at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from odradek.base.units import TopicName
from odradek.coordination.tree import TreeFailed
from odradek.core.broker.effects import Changed
from odradek.net.cluster.controller_updates import Shell
from odradek.net.cluster.tree_metadata import Metadata

REMOVED_MS_MAX = 1_000  # Not much later: a broker that is down may keep a name in use for days.
POLL_SECONDS = 0.005


class DelayedDeletions:
    """Deletions of one broker whose responses are delayed; on the loop's thread."""

    def __init__(
        self,
        shell: Shell,
        metadata: Metadata,
        unless_closed: Callable[..., None],
        on_visible: Callable[[Changed], None],
    ) -> None:
        """Create an empty set; `on_visible` answers waiting requests, `unless_closed` is as in ControllerUpdates."""
        self._shell = shell
        self._metadata = metadata
        self._unless_closed = unless_closed
        self._on_visible = on_visible

    def add(self, changed: Changed) -> None:
        """Accept a change that clients can see here; answer at once if it deletes nothing."""
        deleted = [name for name, topic in changed.topics.items() if topic is None]
        if deleted:
            self._check_removed(changed, deleted, self._shell.now().steady + REMOVED_MS_MAX)
        else:
            self._on_visible(changed)

    def _check_removed(self, changed: Changed, deleted: Sequence[TopicName], until: int) -> None:
        def on_checked(done: Future[bool]) -> None:
            failure = done.exception()
            if failure is not None and not isinstance(failure, TreeFailed):
                raise failure
            if failure is not None or not done.result() or self._shell.now().steady >= until:
                self._on_visible(changed)
            else:
                self._shell.loop.call_later(
                    POLL_SECONDS, self._unless_closed, self._check_removed, changed, deleted, until
                )

        work = partial(self._metadata.are_being_deleted, deleted)
        self._shell.in_order(work, partial(self._unless_closed, on_checked))
