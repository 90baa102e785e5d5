"""The levels that the API tells of severities (`lake/severity.py`), in the colours of the pages."""

OTHER = "other"
# Told from each other, and from the page, in both themes. Only areas are drawn in them; letters on one are
# black or white, whichever is read better.
COLOURS = {
    "fatal": "#a1447c",
    "error": "#c2533f",
    "warn": "#d8a343",
    "info": "#5a8fb5",
    "debug": "#8296a4",
    OTHER: "#a9b6c0",
}
