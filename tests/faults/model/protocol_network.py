"""What the network does with messages: they arrive late, twice, never, or nobody hears the answer."""

from tests.faults.model.protocol_main import commit_answer, parked_answer
from tests.faults.model.protocol_merge import deliver_merge
from tests.faults.model.protocol_node import Node
from tests.faults.model.protocol_world import (
    Body,
    Commit,
    GroupWrite,
    Merge,
    ParkedWrite,
    Pick,
    World,
    commit,
    park,
)


def act_deliver(w: World, pick: Pick) -> str | None:
    """One message arrives, in any order; it, its answer, or neither may be lost; a copy may stay in the
    air."""
    if not w.air:
        return None
    at = pick(len(w.air))
    fate = ("", "", "", "answer lost", "copy stays", "lost")[pick(6)] if w.faults_allowed else ""
    message = w.air[at] if fate == "copy stays" else w.air.pop(at)
    w.seen[fate or "delivered"] += 1
    if isinstance(message.sender, Merge):
        return deliver_merge(w, message.sender, message.body, fate)
    return deliver(w, message.sender, message.body, fate)


def deliver(w: World, node: Node, body: Body, fate: str) -> str:
    """What a node has sent arrives."""
    if fate == "lost":
        return f"{body} is lost"
    if isinstance(body, GroupWrite):
        w.group[body.partition] = body
        return f"{body} of node {node.token} lands"
    heard_of = fate != "answer lost" and node in w.nodes
    if isinstance(body, Commit):
        result = commit(w, body)
        if heard_of:
            commit_answer(w, node, body, result)
        return f"{body} of node {node.token}: {result} {fate}"
    assert isinstance(body, ParkedWrite)
    result, version = park(w, body)
    if heard_of and not parked_answer(w, node, body, result, version):
        w.nodes.remove(node)
    return f"{body} of node {node.token}: {result} {fate}"
