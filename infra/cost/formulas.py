"""Formulas of a file: sums, products, comparisons and a few functions of named values, and nothing else."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from lake.errors import SettingsError

FORMULA_CHARACTERS_MAX = 500
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARED: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max, "ceil": math.ceil}
ALLOWED = "numbers, names, + - * /, < <= > >=, A if B else C, and min, max, ceil"


def evaluate(text: str, values: Mapping[str, float], where: str) -> float:
    """The value of a formula. Raises SettingsError, naming `where` it stands, for one that cannot be read,
    has a name that is not known, or has no value."""
    if len(text) > FORMULA_CHARACTERS_MAX:
        raise SettingsError(f"{where}: a formula has at most {FORMULA_CHARACTERS_MAX} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SettingsError(f"{where}: {text!r} is no formula; it may have {ALLOWED}") from None
    try:
        found = float(_value(tree.body, values, where))
    except (ZeroDivisionError, OverflowError):
        raise SettingsError(f"{where}: {text!r} has no value for this load") from None
    if not math.isfinite(found):
        raise SettingsError(f"{where}: {text!r} has no value for this load")
    return found


def _value(node: ast.expr, values: Mapping[str, float], where: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in values:
                raise SettingsError(f"{where}: {name!r} is no value; there are {', '.join(sorted(values))}")
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values, where)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, values, where), _value(right, values, where))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return _COMPARED[type(op)](_value(left, values, where), _value(right, values, where))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, values, where) else orelse, values, where)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if name in _FUNCTIONS:
            return _function(name, [_value(each, values, where) for each in arguments], where)
    raise SettingsError(f"{where}: {ast.unparse(node)!r} is not allowed; a formula may have {ALLOWED}")


def _function(name: str, arguments: list[float], where: str) -> float:
    if (name == "ceil") != (len(arguments) == 1):
        raise SettingsError(f"{where}: ceil takes one value, min and max two or more")
    return _FUNCTIONS[name](*arguments)
