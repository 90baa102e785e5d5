"""Reading fields out of JSON that a stranger wrote: the right type or a sentence that says what is
missing."""

from typing import Any
from uuid import UUID

from catalog.model.error_response import bad_request

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


def integer(source: dict[str, Any], key: str) -> int:
    """A whole number that fits 64 bits. Raises CatalogError 400."""
    value = source.get(key)
    if type(value) is not int or not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise bad_request(f"{key!r} must be a whole number of 64 bits")
    return value


def small_integer(source: dict[str, Any], key: str) -> int:
    """A whole number that fits 32 bits, as Iceberg's readers hold the ids of fields. Raises CatalogError
    400."""
    value = integer(source, key)
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise bad_request(f"{key!r} must be a whole number of 32 bits")
    return value


def optional_small_integer(source: dict[str, Any], key: str) -> int | None:
    """A whole number of 32 bits, or None where it is absent or null. Raises CatalogError 400."""
    return None if source.get(key) is None else small_integer(source, key)


def optional_integer(source: dict[str, Any], key: str) -> int | None:
    """A whole number, or None where it is absent or null. Raises CatalogError 400."""
    return None if source.get(key) is None else integer(source, key)


def string(source: dict[str, Any], key: str) -> str:
    """A text that is not empty. Raises CatalogError 400."""
    value = source.get(key)
    if not isinstance(value, str) or not value or "\x00" in value:
        raise bad_request(f"{key!r} must be a text that is not empty and has no NUL")
    return value


def optional_string(source: dict[str, Any], key: str) -> str | None:
    """A text, or None where it is absent or null. Raises CatalogError 400."""
    return None if source.get(key) is None else string(source, key)


def check_uuid(value: object) -> str:
    """A UUID's text as it came. Raises CatalogError 400."""
    try:
        UUID(str(value))
    except ValueError as error:
        raise bad_request(f"{value!r} is not a UUID") from error
    return str(value)


def boolean(source: dict[str, Any], key: str) -> bool:
    """true or false, false where it is absent or null. Raises CatalogError 400."""
    value = source.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise bad_request(f"{key!r} must be true or false")
    return value


def mapping(source: dict[str, Any], key: str) -> dict[str, Any]:
    """An object. Raises CatalogError 400."""
    value = source.get(key)
    if not isinstance(value, dict):
        raise bad_request(f"{key!r} must be an object")
    return value


def objects(source: dict[str, Any], key: str, *, optional: bool = False) -> list[dict[str, Any]]:
    """A list of objects; an absent one is empty where it is optional. Raises CatalogError 400."""
    value = source.get(key)
    if value is None and optional:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise bad_request(f"{key!r} must be a list of objects")
    return value


def integers(source: dict[str, Any], key: str) -> list[int]:
    """A list of whole numbers that fit 64 bits. Raises CatalogError 400."""
    value = source.get(key)
    if not isinstance(value, list) or not all(
        type(item) is int and -LONG_MAX - 1 <= item <= LONG_MAX for item in value
    ):
        raise bad_request(f"{key!r} must be a list of whole numbers of 64 bits")
    return value


def strings(source: dict[str, Any], key: str) -> list[str]:
    """A list of texts, empty where it is absent or null. Raises CatalogError 400."""
    value = source.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise bad_request(f"{key!r} must be a list of texts")
    return value


def properties(source: dict[str, Any], key: str) -> dict[str, str]:
    """An object whose values are all texts, empty where it is absent or null. Raises CatalogError 400."""
    value = source.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise bad_request(f"{key!r} must be an object whose values are texts")
    return value
