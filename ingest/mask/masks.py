"""The masks of all topics."""

from ingest.mask.message_mask import MessageMask
from ingest.model.link import Counts
from lake.settings import IngestSettings, TopicSettings


def mask_of(
    settings: IngestSettings, topic: TopicSettings, *, keeps_hashes: bool = False
) -> MessageMask | None:
    """Returns what masks the messages of a topic; None where nothing of them is masked. `keeps_hashes`: what
    is a hash already stays one, for messages that were masked before. Raises SettingsError where a rule is
    none."""
    if topic.masking is None:
        return None
    key = settings.masking.key
    secret = None if key is None else key.get_secret_value().encode()
    return MessageMask(topic, secret, settings.limits.depth_max, keeps_hashes=keeps_hashes)


class Masks:
    """Masks messages by the rules of their topics. Raises SettingsError where a rule is none."""

    def __init__(self, settings: IngestSettings) -> None:
        self._of = {
            topic.name: mask for topic in settings.topics if (mask := mask_of(settings, topic)) is not None
        }

    def of(self, topic: str) -> MessageMask | None:
        """Returns the mask of a topic; None where it has none."""
        return self._of.get(topic)

    def take_counts(self) -> Counts:
        """Returns what was masked since the last call."""
        found = Counts()
        for topic, mask in self._of.items():
            counts = mask.take_counts()
            for rule, number in counts.values.items():
                found.masked_values[topic, rule.name, rule.action] += number
            found.masked_messages[topic] += counts.messages
            found.withheld[topic] += counts.withheld
        return found
