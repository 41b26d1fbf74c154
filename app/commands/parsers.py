"""Parsers of the command's words: help with examples and defaults, and errors that name what was likely meant.

It loads argparse only: ``fabric --help`` answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from fabric.suggestions import nearest

_FEW_OPTIONS = 4
"""A usage line that lists more options than this hides what the command is given."""
_SAYS_ITSELF = ("default", "may be repeated")


class HelpFormatter(argparse.HelpFormatter):
    """Shows defaults, keeps the lines of examples, and leaves long lists of options out of the usage line."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Add the usage line; ``[OPTION ...]`` stands for options that are many."""
        actions = list(actions)
        optional = [one for one in actions if one.option_strings and not one.required and one.help != argparse.SUPPRESS]
        if usage is None and len(optional) > _FEW_OPTIONS:
            self._prog = f"{self._prog} [OPTION ...]"
            actions, groups = [one for one in actions if one not in optional], ()
        super().add_usage(usage, actions, groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in text.splitlines())

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if not text or not action.option_strings or any(words in text for words in _SAYS_ITSELF):
            return text
        if action.nargs == 0 or action.default in (None, argparse.SUPPRESS) or action.default == []:
            return text
        return f"{text} (default: %(default)s)"


class CommandParser(argparse.ArgumentParser):
    """A parser whose help has :class:`HelpFormatter`'s form, and whose errors suggest."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter} | settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of an argument's choices, naming the nearest, or else all."""
        known = [] if action.choices is None else [*map(str, action.choices)]
        if action.choices is None or value in action.choices:
            return
        near = nearest(str(value), known)
        hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
        if self.nested() is not None and action.nargs == argparse.PARSER:
            raise argparse.ArgumentError(None, f"unknown command {self.prog} {value}; {hint}")
        raise argparse.ArgumentError(action, f"unknown value {value!r}; {hint}")

    def nested(self) -> Mapping[str, CommandParser] | None:
        """Return the parsers of this one's own commands by name; None if it has none."""
        for action in self._actions:
            if action.nargs == argparse.PARSER and isinstance(action.choices, Mapping):
                return action.choices
        return None

    def options(self) -> list[argparse.Action]:
        """Return the options that help shows."""
        return [one for one in self._actions if one.option_strings and one.help != argparse.SUPPRESS]

    def with_nested(self) -> Iterator[CommandParser]:
        """Yield this parser and those of all of its commands."""
        yield self
        for parser in (self.nested() or {}).values():
            yield from parser.with_nested()

    def add_examples(self, examples: Sequence[str]) -> None:
        """End help with examples, that of this parser's own commands with those that are theirs."""
        for parser in self.with_nested():
            own = [line for line in examples if f"{line} ".startswith(f"{parser.prog} ")]
            if own:
                parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in own)])

    def parsed(self, words: Sequence[str]) -> argparse.Namespace:
        """Return what words say. Ends the process with exit code 2 if they are wrong, as :meth:`parse_args`; for an
        unknown option by the parser of its command, which knows the nearest one."""
        options, left = self.parse_known_args(words)
        if left:
            self._asked_for(words)._refuse_rest(left)
        return options

    def _asked_for(self, words: Sequence[str]) -> CommandParser:
        """Return the parser of the command that words name."""
        nested = self.nested() or {}
        named = next((word for word in words if word in nested), None)
        return self if named is None else nested[named]._asked_for(words[words.index(named) + 1 :])

    def _refuse_rest(self, left: Sequence[str]) -> NoReturn:
        known = [name for action in self.options() for name in action.option_strings if name.startswith("--")]
        for word in left:
            name = word.partition("=")[0]
            if word.startswith("-"):
                near = nearest(name, known)
                self.error(
                    f"unknown option {name}; " + (f"did you mean {near}?" if near else f"see {self.prog} --help")
                )
        self.error(f"too many arguments: {' '.join(left)}; see {self.prog} --help")
