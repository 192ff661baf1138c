"""One user as the decision sees him, with everything that is his: for explaining, not for choosing."""

from fairlead.queue.decide import Candidate, Head, Lane
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_head


class Explaining(StorePart):
    """candidate."""

    def candidate(self, user: str) -> Candidate:
        """A user with all lanes that have due tasks, paused ones marked."""
        with self.db.reading():
            paused = {row[0] for row in self.db.rows(sql.PAUSES)}
            lanes = tuple(
                Lane(
                    project=project,
                    standing=standing,
                    heads=self._due_heads(user, project),
                    paused=f"project:{project}" in paused,
                )
                for project, standing in self.db.rows(sql.DUE_LANES, (user,))
            )
            standing = self.db.value(sql.USER_STANDING, (user,))
            return Candidate(user=user, standing=standing or 0.0, lanes=lanes)

    def _due_heads(self, user: str, project: str) -> tuple[Head, ...]:
        """The first due task of each priority, an operator's critical one before all."""
        rows = self.db.rows(sql.EXPRESS_IN_LANE, (user, project))
        rows += self.db.rows(sql.HEADS, {"user": user, "project": project})
        return tuple(map(as_head, rows))
