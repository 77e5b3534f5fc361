"""Text that can be written as UTF-8."""

from __future__ import annotations


def has_surrogate(text: str) -> bool:
    """Whether text has half of a pair of UTF-16 in it, as what comes from damaged files or folders may: it has no form in UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_text(what: str, text: object) -> None:
    """Refuses what is no text, and text that has no form in UTF-8.

    Raises:
        TypeError: It is no text.
        ValueError: It has surrogates.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__}")
    if has_surrogate(text):
        raise ValueError(f"{what} {text!a} has a surrogate, which is no character")
