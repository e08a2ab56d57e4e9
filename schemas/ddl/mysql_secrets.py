"""Removes passwords from the DDL statements of MySQL and MariaDB.

An engine that reads another server takes that server's address, token or password from an option
of the table: CONNECTION (engines FEDERATED and CONNECT), OPTION_LIST and HTTP (CONNECT), COMMENT
(SPIDER), ENGINE_ATTRIBUTE (Lakehouse). Engines can have any other option, too.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

EXECUTED_COMMENT = re.compile(r"/\*M?!")
"""The start of a comment that the servers run and the parser skips."""
UNREADABLE = "(a statement that is not shown, because it can have a password)"
"""Replaces a statement in which texts with passwords cannot be found.

Its effect is unknown, like the effect of the statement that it replaces.
"""
_OPTIONS = frozenset(
    {
        *("COMMENT", "CONNECTION", "OPTION_LIST", "PASSWORD"),
        *("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"),
    }
)
"""Options with secrets. For some of them, the value can follow without an equals sign."""
_PLAIN = frozenset({"CHARACTER SET", "CHARSET", "COLLATE", "ENGINE", "SET"})
"""Options whose value is never secret, and can matter for rows."""
_MAY_HAVE = re.compile(r"=|['\"#]|/\*|--")
"""Matches values, texts and comments, which can have passwords."""
_COMMENT = re.compile(r"\s*(?:/\*|--|#)")
_TEXTS = frozenset({TokenType.STRING, TokenType.NATIONAL_STRING})
_QUOTED = re.compile("n?['\"]", re.IGNORECASE)


def without_passwords(statement: str) -> str:
    """Return a DDL statement in which ``***`` replaces each text that can have a password.

    These are the values of options, and each text after an equals sign. The replaced texts have no
    effect on rows. SQL comments are removed, too. If the statement has a comment that the server
    executes, or cannot be tokenized, the result is `UNREADABLE`.
    """
    if not _MAY_HAVE.search(statement):
        return statement
    if EXECUTED_COMMENT.search(statement):
        return UNREADABLE
    try:
        tokens = sqlglot.tokenize(statement, read="mysql")
    except SqlglotError:
        return UNREADABLE
    parts, done, words, assigned = [], 0, ("", ""), False
    for token in tokens:
        parts.append(_without_comment(statement[done : token.start]))
        text = statement[token.start : token.end + 1]
        if token.token_type in _TEXTS and not _QUOTED.match(text):
            return UNREADABLE  # the tokenizer takes the rest of some statements for one text
        parts.append("'***'" if _hides(token.token_type, words, assigned=assigned) else text)
        done = token.end + 1
        assigned = token.token_type in (TokenType.EQ, TokenType.COLON_EQ)
        if not assigned:
            words = (words[1], "" if token.token_type in _TEXTS else token.text.upper())
    return "".join((*parts, _without_comment(statement[done:])))


def _hides(kind: TokenType, words: tuple[str, str], *, assigned: bool) -> bool:
    """Whether a token of a statement can be a text with a password.

    Args:
        kind: The token's type.
        words: The two words before the token, in upper case; empty for texts.
        assigned: Whether an equals sign is between the words and the token.
    """
    earlier, word = words
    if assigned and (kind in _TEXTS or kind is TokenType.IDENTIFIER):
        return word not in _PLAIN
    if kind not in _TEXTS:
        return assigned and word in _OPTIONS
    named = earlier in ("CHANGE", "COLUMN")  # a column can have the name of an option
    return (word in _OPTIONS and not named) or words == ("PASSWORD", "(")


def _without_comment(gap: str) -> str:
    """Return the text between two tokens of a statement; a space if it is a comment."""
    return " " if _COMMENT.match(gap) else gap
