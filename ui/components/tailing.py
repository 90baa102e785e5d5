"""The live tail of a browser session: one at most, which ends with the session, with its page, and with
whoever signs out."""

from dataclasses import dataclass

import streamlit as st

from ui.api_client import api
from ui.tail_reader import TailReader, TailView


@dataclass
class Tailing:
    """`paused`: what is shown meanwhile."""

    reader: TailReader | None = None
    paused: TailView | None = None

    def begin(self, tenant: str, stream: str, words: str) -> None:
        """Starts a tail in place of the one before."""
        self.end()
        self.paused = None
        self.reader = TailReader(api(), tenant, stream, words)
        self.reader.start()

    def end(self) -> None:
        """Ends it; what it has come to stays to be looked at."""
        if self.reader is not None:
            self.reader.stop()

    @property
    def is_running(self) -> bool:
        return self.reader is not None and self.reader.is_running


# Streamlit releases it when the browser's connection has gone.
@st.cache_resource(scope="session", show_spinner=False, on_release=Tailing.end)
def tailing() -> Tailing:
    """The one of this session."""
    return Tailing()


def leave() -> None:
    """Ends the tail and forgets what it has shown."""
    kept = tailing()
    kept.end()
    kept.reader = kept.paused = None
