"""Whose a dead letter is."""

from ingest.decode.dead_letter import DeadLetter
from ingest.route.router import Envelope, Router
from lake.settings import IngestSettings
from lake.tenant import TableId, from_identifier


class LetterTenants:
    """Whose a dead letter is: the table that could not take it, else what the rules of its topic say
    today."""

    def __init__(self, settings: IngestSettings) -> None:
        # In Firn's own topics a message has its tenant by what Firn made of it, not by the rules.
        own = (settings.internal_topics.replay, settings.internal_topics.dead_letters)
        self._routers = {topic.name: Router(topic) for topic in settings.topics if topic.name not in own}

    def table(self, letter: DeadLetter, value: bytes | None) -> TableId | None:
        """The table that its topic's rules name now; None where they name none, or the topic is not in the
        settings any more."""
        router = self._routers.get(letter.was_topic)
        target = (
            router.route(Envelope(letter.was_topic, letter.key, letter.headers, value))
            if router is not None
            else None
        )
        return target if isinstance(target, TableId) else None

    def tenant(self, letter: DeadLetter) -> str | None:
        """The tenant's name, as far as anybody can tell."""
        return self.names(letter)[0]

    def names(self, letter: DeadLetter) -> tuple[str | None, str | None]:
        """The names of tenant and stream, as far as anybody can tell."""
        if letter.foreign:
            return None, None
        if letter.table is not None:
            namespace, _, name = letter.table.partition(".")
            return from_identifier(namespace), from_identifier(name)
        table = self.table(letter, letter.value)
        return (None, None) if table is None else (table.tenant.name, table.stream)
