"""Alerts of a tenant: what fires, what came of its rules, and how the evaluator fares with them."""

from typing import Any
from urllib.parse import urlsplit

import orjson
import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import empty, show_error
from ui.components.plain_text import code, isolated, plain
from ui.components.stream_choice import choose_tenant
from ui.components.wording import age, count, short_time
from ui.url_state import FIRST_PAGE

HISTORY_SHOWN = 200
WITHOUT = (
    "“Set alert” beside a search makes one. Or write one into a file and keep it with `python -m query rules "
    "apply FILE`; `python -m query rules test "
    "FILE` carries out its tests first."
)


def show() -> None:
    """The page."""
    st.title("Alerts")
    try:
        tenant = choose_tenant(st.container(), "alerts")
        if tenant is None:
            return
        rules = api().get("/alerts/rules", tenant=tenant)["rules"]
        found = api().get("/alerts", tenant=tenant)
    except ApiError as error:
        show_error(error)
        return
    if not rules and not found["history"]:
        empty("This tenant has no rules of alerts.", WITHOUT)
        return
    _alerts(found["alerts"])
    _rules(rules)
    _history(found["history"])


def _alerts(alerts: list[dict[str, Any]]) -> None:
    firing = [alert for alert in alerts if alert["state"] == "firing"]
    st.subheader(f"{count(len(firing), 'alert')} firing", anchor=False)
    if not alerts:
        st.caption("Nothing fires, and nothing is about to.")
        return
    _table(
        {
            "rule": [alert["rule"] for alert in alerts],
            "state": [alert["state"] for alert in alerts],
            "since": [short_time(alert["since"]) for alert in alerts],
            "value": [f"{alert['value']:g}" for alert in alerts],
            "labels": [_labels(alert["labels"]) for alert in alerts],
            "says": [" · ".join(alert["annotations"].values()) for alert in alerts],
            "rows": [_address(alert["link"]) for alert in alerts],
        }
    )


def _rules(rules: list[dict[str, Any]]) -> None:
    st.subheader(count(len(rules), "rule"), anchor=False)
    troubled = [rule for rule in rules if rule["health"]["problem"] or rule["health"]["waits_for"]]
    for rule in troubled:
        health = rule["health"]
        st.warning(f"{code(rule['rule']['name'])}: {plain(health['problem'] or health['waits_for'])}")
    _table(
        {
            "name": [rule["rule"]["name"] for rule in rules],
            "stream": [rule["rule"]["stream"] for rule in rules],
            "condition": [_condition(rule["rule"]["condition"]) for rule in rules],
            "query": [rule["rule"]["query"] for rule in rules],
            "every": [rule["rule"]["every"] for rule in rules],
            "window": [rule["rule"]["window"] for rule in rules],
            "looked at until": [
                short_time(until) if (until := rule["health"]["looked_until"]) else "not yet"
                for rule in rules
            ],
            "looked": [age(rule["health"]["looked_at"]) for rule in rules],
            "took": [f"{1_000 * rule['health']['took_s']:.0f} ms" for rule in rules],
            "waiting messages": [rule["health"]["messages_waiting"] for rule in rules],
        }
    )


def _history(history: list[dict[str, Any]]) -> None:
    st.subheader("History", anchor=False)
    if not history:
        st.caption("No rule has told anybody anything yet.")
        return
    shown = history[:HISTORY_SHOWN]
    _table(
        {
            "window until": [short_time(event["window"]) for event in shown],
            "rule": [event["rule"] for event in shown],
            "what": [event["kind"] for event in shown],
            "group": [_labels(event["group"]) for event in shown],
            "value": ["" if event["value"] is None else f"{event['value']:g}" for event in shown],
            "why": [event["why"] for event in shown],
            "rows": [_address(event["link"]) for event in shown],
        }
    )


def _table(columns: dict[str, list[Any]]) -> None:
    shown = {
        name: [isolated(each) if isinstance(each, str) and name != "rows" else each for each in values]
        for name, values in columns.items()
    }
    rows = st.column_config.LinkColumn(width=75, display_text="open", help="Searches the rows it is about")
    st.dataframe(pd.DataFrame(shown), hide_index=True, width="stretch", column_config={"rows": rows})


def _labels(labels: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'' if value is None else value}" for name, value in sorted(labels.items()))


def _condition(condition: dict[str, Any]) -> str:
    told = [
        f"{name} {_text(value)}" for name, value in condition.items() if name != "mode" and value is not None
    ]
    return " ".join([condition["mode"].replace("_", " "), *told])


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _address(link: str) -> str | None:
    """The search of these pages, wherever the link leads."""
    query = urlsplit(link).query
    return f"{FIRST_PAGE}search?{query}" if query else None
