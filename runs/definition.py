"""What an experiment is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from fabric.errors import ConfigError, ResultError

if TYPE_CHECKING:  # What is here is read to list the experiments, at once.
    from fabric.measures import Measure
    from fabric.records.figure_forms import Form
    from fabric.report.figures import FigureSpec, RepeatedSpec
    from fabric.report.figures.forms import Shown
    from fabric.results import Result
    from fabric.tables import Table
    from runs.config import RunConfig
    from runs.session import Session
    from runs.study import Study

    Run = Callable[[Session, Any], dict[str, Any]]

HOME = Path(__file__).parents[1] / "experiments"
"""The folder of the experiments that come with the program."""
DEFINITION = "experiment.py"
"""What makes a folder an experiment: it defines ``EXPERIMENT``."""


@dataclass(frozen=True)
class Experiment:
    """One question, and the folder that answers it, by whose name it is known; ``see_also``: what to run after it.

    The rest is given by name, ``package.module:name``, and loaded when it is needed:

    - ``config``: a subclass of :class:`runs.config.RunConfig`, which checks its YAML file;
    - ``study``: a :class:`runs.study.Study`, which has its measures and figures, and is its run unless it names one;
    - ``run``: plays it in a session and returns its summary, with ``metrics`` as :data:`fabric.metrics.Metrics`;
    - ``tables``: a dictionary of those that its results have in addition to :data:`fabric.tables.TABLES`; a run adds
      rows by ``session.keep_frame``;
    - ``measures``: a sequence of :class:`fabric.measures.Measure`, what those of its metrics mean that only it reports;
    - ``figures``: a module (``package.module``), whose ``FIGURES`` are those that only its results have, and whose
      ``REPEATED``, if it has that, are those over several runs (``--repeat``);
    - ``earlier``: for figures of a study, a function that returns, as :class:`runs.study.Point`, the cases of a result
      that was written before the experiment was a study.

    The line is drawn at a config and a summary: what comes before, such as checks and the engine, and what comes after,
    such as the verdict, tables, figures and sweeps, is the same for all. Names are text, so that a list of experiments
    loads none of them.

    Example: ``experiment.py`` in the folder ``my_question``, beside ``my_question.yaml``::

        EXPERIMENT = Experiment(
            folder=Path(__file__).parent,
            question="How much does HFReduce slow down beside flows of others?",
            config="my_question.run:MyQuestionConfig",
            run="my_question.run:run_my_question",
        )

    :meth:`of_study` makes one of a study.
    """

    folder: Path
    question: str
    config: str
    run: str = ""
    see_also: str = ""
    study: str | None = None
    tables: str | None = None
    measures: str | None = None
    figures: str | None = None
    earlier: str | None = None

    @classmethod
    def of_study(cls, file: str, question: str, config: str, **others: str) -> Experiment:
        """Return one whose folder has its parts where they usually are: a study ``STUDY`` in ``study.py``, a class of
        this name in ``config.py``. ``file``: its ``experiment.py``; ``others``: further parts, by name in its folder
        (``run="study:run_incast"``) or in ``runs`` (``tables="runs.node_use:TABLES"``), and ``see_also``."""
        folder = Path(file).parent
        package = f"{HOME.name}.{folder.name}" if folder.parent == HOME else folder.name
        parts = {"config": f"config:{config}", "study": "study:STUDY", **others}
        for part, value in parts.items():
            if part != "see_also" and not value.startswith("runs."):
                parts[part] = f"{package}.{value}"
        return cls(folder, question, **parts)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def file(self) -> Path:
        """The YAML file with its defaults."""
        return self.folder / f"{self.name}.yaml"

    @property
    def in_manifest(self) -> dict[str, str | None]:
        """What a manifest says of it, by which :func:`runs.registry.experiment_of` finds it again."""
        folder = self.foreign_folder
        return {"experiment": self.name, "experiment_folder": None if folder is None else str(folder)}

    @property
    def foreign_folder(self) -> Path | None:
        """Its folder, if it does not come with the program."""
        return None if self.folder.parent == HOME else self.folder

    def load_config(self) -> type[RunConfig]:
        """Return what checks its YAML file. Raises ConfigError if that cannot be loaded."""
        from runs.config import RunConfig

        found = self._named("config", self.config)
        if not (isinstance(found, type) and issubclass(found, RunConfig)):
            raise self._fault("config", f"{self.config} is not a subclass of runs.config.RunConfig")
        return found

    def load_run(self) -> Run:
        """Return what plays it in a session and returns its summary. Raises ConfigError if that cannot be loaded."""
        if not self.run and self.study is not None:
            if (study := self._load_study()).play is None:
                raise self._fault("study", f"{self.study} has no play; give it one, or name a run")
            return study
        if not self.run:
            raise self._fault("run", "is missing; name one, or a study")
        found: Run = self._named("run", self.run)
        if not callable(found):
            raise self._fault("run", f"{self.run} is not a function of a session and a config")
        return found

    def _load_study(self) -> Study[Any, Any]:
        """Return the study. Raises ConfigError if it cannot be loaded."""
        from runs.study import Study

        found = self._named("study", self.study)
        if not isinstance(found, Study):
            raise self._fault("study", f"{self.study} is not a runs.study.Study")
        return found

    def _load_forms(self) -> Sequence[Form]:
        """Return the figures of the study by their form. Raises ResultError if it cannot be loaded."""
        try:
            return [one for asked in self._load_study().questions for one in asked.figures] if self.study else ()
        except ConfigError as error:
            raise ResultError(str(error)) from error

    def load_tables(self) -> Mapping[str, Table]:
        """Return the tables that only its results have, by name. Raises ConfigError if they cannot be loaded, or one
        has the name of a table that every result has."""
        from fabric.tables import TABLES, Table

        if self.tables is None:
            return {}
        found = self._named("tables", self.tables)
        if not (isinstance(found, Mapping) and all(isinstance(one, Table) for one in found.values())):
            raise self._fault("tables", f"{self.tables} is not a dictionary of fabric.tables.Table by name")
        if taken := sorted(found.keys() & TABLES.keys()):
            raise self._fault("tables", f"every result has {', '.join(taken)}; rename yours")
        return found

    def load_measures(self) -> Sequence[Measure]:
        """Return what those of its metrics mean that only it reports. Raises ConfigError if that cannot be loaded."""
        from fabric.measures import Measure

        found = () if self.measures is None else self._named("measures", self.measures)
        if self.measures is None and self.study is not None:
            found = tuple(one for asked in self._load_study().questions for one in asked.measures)
        if not (isinstance(found, list | tuple) and all(isinstance(one, Measure) for one in found)):
            raise self._fault("measures", f"{self.measures} is not a sequence of fabric.measures.Measure")
        return found

    def load_figures(self) -> Sequence[FigureSpec]:
        """Return the figures that only its results have. Raises ResultError if their module cannot be loaded."""
        from fabric.report.figures.forms import figure_of

        own: Sequence[FigureSpec] = () if self.figures is None else self._of_figures("FIGURES")
        return (*(figure_of(form, self._earlier_cases) for form in self._load_forms()), *own)

    def _earlier_cases(self, result: Result) -> Sequence[Shown]:
        """Return the cases of a result whose summary lists none; none if the experiment does not know such results."""
        from fabric.metrics import Numbers
        from fabric.report.figures.forms import Shown

        points = () if self.earlier is None else self._named("earlier", self.earlier)(result)
        return [Shown(point.settings, [Numbers(point.numbers)]) for point in points]

    def load_repeated_figures(self) -> Sequence[RepeatedSpec]:
        """Return the figures over several runs that only it has. Raises ResultError as :meth:`load_figures`."""
        from fabric.report.figures.forms import figure_over_runs

        own: Sequence[RepeatedSpec] = () if self.figures is None else self._of_figures("REPEATED", ())
        return (*map(figure_over_runs, self._load_forms()), *own)

    def _named(self, field: str, name: object) -> Any:
        """Return what a field names. Raises ConfigError."""
        if not isinstance(name, str) or not all(parts := name.partition(":")):
            raise self._fault(field, f"is {name!r}; name what is meant, as '{self.name}.run:NAME'")
        module, _, attribute = parts
        try:
            return getattr(importlib.import_module(module), attribute)
        except Exception as error:  # It may be somebody's own code, which may do anything.
            frames = [one for one in extract_tb(error.__traceback__) if "importlib" not in one.filename]
            where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
            raise self._fault(field, f"{name} cannot be loaded: {type(error).__name__}: {error}{where}") from error

    def _fault(self, field: str, what: str) -> ConfigError:
        return ConfigError(str(self.folder / DEFINITION), [f"{field}: {what}"])

    def _of_figures(self, name: str, *otherwise: Any) -> Any:
        assert self.figures is not None
        try:
            return getattr(importlib.import_module(self.figures), name, *otherwise)
        except Exception as error:  # It may be somebody's own code; the rest of a result is good without it.
            raise ResultError(f"{self.figures} cannot be loaded: {type(error).__name__}: {error}") from error
