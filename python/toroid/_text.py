"""Text that can be written as UTF-8."""

from __future__ import annotations


def has_surrogate(text: str) -> bool:
    """Whether text has half of a pair of UTF-16 in it, as what comes from damaged files or folders may: it has no form in UTF-8."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_text(what: str, text: str) -> None:
    """Refuses text that has no form in UTF-8.

    Raises:
        ValueError: It has surrogates.
    """
    if has_surrogate(text):
        raise ValueError(f"{what} {text!a} has a surrogate, which is no character")
