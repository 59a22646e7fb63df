"""What a planned audit by canaries says: which claim it tests, what it can show, what to do, and its README."""

from __future__ import annotations

import shlex

from dpassay.accounting.adjacency import Unit
from dpassay.auditing.canaries.design import audits_of, each_confidence
from dpassay.auditing.canaries.files import PlannedCanaries
from dpassay.auditing.canaries.holdout import CANDIDATES, HOLDOUT, SOURCE
from dpassay.auditing.canaries.kinds import KINDS
from dpassay.base.number_format import (
    format_confidence,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)
from dpassay.data.reader import SEPARATORS, FileOptions

_STEPS = """# An audit that is planned

Somebody claims that a generator of synthetic data is private. This folder tests that with canaries: made-up records, of
which about half were put into `{file}`, each by its own fair coin; `private/manifest.json` knows all.
Each canary is {what}.

1. Keep this number outside this folder, with somebody who does not run the generator:
   `{digest}`
   It is the SHA-256 of the manifest, and proves later that no coin was changed.
2. {add}
   {unit} Change nothing else, and remove no canary: that would undo its coin.
3. Run the whole pipeline {runs}, from raw data to synthetic data, with the settings of the release, filters
   and deduplication included. Do not show the manifest or `{file}` to anyone who tunes or filters by hand.
4. `dpassay audit score DIR SYNTHETIC --expect {digest}`
   reads the synthetic file. {scorings}
   If you can, run the same generator once more on the same data *with its protection off*, and score what it writes
   with `dpassay audit score DIR OFF --unprotected`. That is the positive control: it says whether this attack sees
   leaks of this generator at all. It counts as no file, and nothing of it is released.
5. `dpassay audit bound DIR` says what the scores show, and `dpassay audit report DIR` writes a page.
{layout}
Decide on the run{plural} before you look at a result, and use these canaries for no other: a result that is one of
several counts only if all were planned. Canaries are made up, so synthetic data that saw them may repeat what is not
true: release those of a run without canaries.

## What it can show

{reach}

{read}The test is about adding or removing one {unit_name}. It says nothing of a claim about exchanging one, and a
result that shows nothing does not mean that nothing leaks: another attack may find more.
"""


_READ = """What canaries look like (ranges, words, wording, and what they are compared with) was read from
`{path}`. That is a read of private data, which stays in this folder: keep it as private as the data.

"""


_ADD = """Add all rows of `{file}` to the data, anywhere, by a rule that does not look at them. They are written as
   the data are{first}."""

_INPUT = """Give the generator `{input}` in place of the data: it has all planted canaries already, and
   leaves out the records of `private/holdout{suffix}`."""

_LAYOUT = """6. The same run serves audits of its real records.{repeated}
   {confidences}

{commands}
"""

_RARE = 0.001


def readme(planned: PlannedCanaries) -> str:
    """The README of a planned audit."""
    files, unit = planned.design.scorings, planned.design.unit
    return _STEPS.format(
        file=planned.plan.canaries,
        what=KINDS[planned.plan.kind].what,
        digest=planned.manifest_sha256,
        unit=_unit(unit, planned.plan.copies),
        runs="once" if files == 1 else f"{files} times or as often as was planned, but no more",
        scorings="Only one file can be scored." if files == 1 else f"At most {files} files can be scored.",
        plural="" if files == 1 else "s",
        unit_name=f"group of {unit.size}" if unit.is_group else unit.noun,
        add=_ADD.format(file=planned.plan.canaries, first=_first_line(planned))
        if planned.plan.layout is None
        else _INPUT.format(input=planned.input, suffix=planned.suffix),
        layout=_layout(planned),
        reach="\n".join([*planned.design.claim_in_words(), *reach(planned)]),
        read=_READ.format(path=planned.plan.reads_data) if planned.plan.reads_data else "",
    )


def _first_line(planned: PlannedCanaries) -> str:
    """What is said of the line with the names of columns, where the file has one."""
    has_names = planned.suffix.startswith((".csv", ".tsv")) and planned.plan.reading.header is not False
    return "; the first line, which names the columns, is left out where rows are appended" if has_names else ""


def _layout(planned: PlannedCanaries) -> str:
    """The audits of the same run that compare source and holdout."""
    layout = planned.plan.layout
    if layout is None:
        return ""
    repeated = f" {layout.repeated} records that repeat another have no coin." if layout.repeated else ""
    return _LAYOUT.format(
        repeated=repeated,
        confidences=confidences_in_words(planned),
        commands="\n".join(f"   `{command}`" for command in commands(planned, "DIR")[2:]),
    )


def _unit(unit: Unit, copies: int) -> str:
    if unit.needs_user:
        each = "one record" if copies == 1 else f"{copies} records"
        return f"Each canary is a {unit.noun} with {each}."
    return "Each canary is one record." if copies == 1 else f"Each canary is a group of {copies} records."


def reach(planned: PlannedCanaries) -> list[str]:
    """What a planned audit can show, and how likely it shows it, in sentences; and warnings."""
    design, needed, half = planned.design, planned.guesses_needed, planned.design.candidates // 2
    at = f" at δ = {format_number(design.delta)}" if design.delta else ""
    lines = []
    if design.guesses is not None:
        lines.append(
            f"With confidence {format_confidence(design.confidence)} and {planned.guesses} guesses, all of them "
            f"right, it shows at most ε = {format_upper(planned.ceiling)}{at}; fewer right guesses show less."
        )
        lines.append(
            f"With {half} guesses, if all are right, it would be at most {format_upper(planned.ceiling_of_half)}."
        )
    else:
        lines += _ceilings(planned, at)
    if design.claim is not None and needed is not None and not planned.warnings:
        lines.append(
            f"To refute the claim of ε = {format_number(design.claim.epsilon)} takes {needed} guesses if all are "
            "right, more if not."
        )
    given_away = "of the planted canaries " + ("are printed" if design.guesses is None else "stand out")
    lines += [
        "",
        "What to expect of one file, computed exactly (a generator with an ε leaks as much as this ε permits):",
        "",
        *_expected(planned),
        "",
    ]
    lines.append(planned.detectable.sentence(given_away))
    return [*lines, *(f"Warning: {warning}." for warning in planned.warnings)]


def _ceilings(planned: PlannedCanaries, at: str) -> list[str]:
    """What keys can show at most, which falls with the number of keys that the generator prints."""
    shown = [
        f"{number} printed keys at most ε = {format_upper(value)}{at}" for number, value in planned.ceilings if value
    ]
    least = planned.design.needed(0.0)
    none = "No number of keys shows anything" if least is None else f"Fewer than {least} show nothing, ε = 0"
    return [
        f"How much it can show depends on how many planted keys the generator prints. With confidence "
        f"{format_confidence(planned.design.confidence)}, if all that are printed were planted: {', '.join(shown)}.",
        f"{none}; so a generator that prints no key shows nothing, whatever it leaks otherwise.",
    ]


def _expected(planned: PlannedCanaries) -> list[str]:
    """One line for each generator: the chance that it is refuted, or that something is shown; and the bound."""
    claim = planned.design.claim
    lines = []
    for number, item in enumerate(planned.expected):
        chance = f"{'shows a leak' if claim is None else 'is refuted'} in {_runs(item.chance)}"
        if claim is not None and number == 0:  # a false alarm
            chance += f" (false alarms; never more than {format_percent(1 - planned.design.each)})"
        median, low, high = (_bound(planned, value) for value in (item.median, item.low, item.high))
        shown = f"shows ε ≥ {median} in the median"
        if low != high:
            shown += f", and from {low} to {high} in nine of ten"
        lines.append(f"- A generator that {item.generator} {chance} and {shown}.")
    return lines


def _bound(planned: PlannedCanaries, value: float | None) -> str:
    """A bound that may be found; the largest is printed as the ceiling is."""
    return format_upper(value) if value == planned.ceiling else format_lower(value)


def _runs(probability: float) -> str:
    """In how many runs something happens; what is nearly sure, or nearly never, is not counted out."""
    if probability < _RARE:
        return f"fewer than {format_percent(_RARE)} of runs" if probability else "no run"
    if probability > 1 - _RARE:
        return f"more than {format_percent(1 - _RARE)} of runs" if probability < 1 else "every run"
    return f"{format_percent(probability)} of runs"


def commands(planned: PlannedCanaries, folder: str, synthetic: str = "SYNTHETIC") -> list[str]:
    """The commands of all audits of the run, as they are typed; all but `bound` are for each planned file.

    Args:
        planned: with a layout or without.
        folder: of the plan.
        synthetic: a file that the generator wrote.
    """
    folder, synthetic = shlex.quote(folder), shlex.quote(synthetic)
    expect, plan, layout = f" --expect {planned.manifest_sha256}", planned.plan, planned.plan.layout
    results = [f"dpassay audit score {folder} {synthetic}{expect}", f"dpassay audit bound {folder}{expect}"]
    if layout is None:
        return results
    suffix, design = planned.suffix, planned.design
    sides = f"--source {folder}/private/{SOURCE}{suffix} --holdout {folder}/private/{HOLDOUT}{suffix}"
    claim = f" --delta {design.delta!r}" if design.delta else ""
    if design.claim is not None and str(design.unit) == layout.unit:
        claim += f" --epsilon {design.claim.epsilon!r}"
    stated = _reading(plan.reading, of_text=plan.text is not None)
    coins = f"{stated}--coins --confidence {_each_file(planned)!r}{claim}"
    user = f" --user {shlex.quote(str(plan.user))}" if layout.needs_user else ""
    if plan.text is None:
        ignored = "" if plan.id is None else f" --ignore {shlex.quote(plan.id)}"
        return [*results, f"dpassay audit table {synthetic} {sides}{ignored}{user} {coins}"]
    named = shlex.quote(plan.text)
    names = "" if named == "text" else f" --text {named} --synthetic-text {named}"
    results.append(f"dpassay audit text {synthetic} {sides}{names}{user} {coins}")
    if not layout.needs_user:
        candidates = f"{folder}/private/{CANDIDATES}.jsonl"
        results.append(f"dpassay audit membership text {candidates} --synthetic {synthetic}{names} {coins}")
    return results


def _reading(reading: FileOptions, *, of_text: bool) -> str:
    """What was stated of how the data are written, as options of a command, each before a space."""
    options = []
    if reading.separator is not None:
        options += ["--separator", SEPARATORS[reading.separator]]
    if reading.encoding is not None:
        options += ["--encoding", reading.encoding]
    if reading.header is not None:
        options += ["--header" if reading.header else "--no-header"]
    if not of_text:
        options += [word for missing in reading.missing or () for word in ("--missing", missing)]
        options += [] if reading.decimal is None else ["--decimal", reading.decimal]
    return "".join(f"{shlex.quote(option)} " for option in options)


def _each_file(planned: PlannedCanaries) -> float:
    """The confidence of an audit of real records for one file.

    The error probability is divided among the audits, and that of each audit among the planned files. The audit by
    canaries divides its own part itself (`CanariesDesign.each`).
    """
    assert planned.plan.layout is not None
    audits = audits_of(planned.plan.text is not None, planned.plan.layout.needs_user)
    return each_confidence(planned.plan.joint_confidence, audits * planned.design.scorings)


def confidences_in_words(planned: PlannedCanaries) -> str:
    """With what confidence the audits of a layout hold, each and jointly, before their commands are listed."""
    files, all_ = planned.design.scorings, format_confidence(planned.plan.joint_confidence)
    canaries = format_confidence(planned.design.confidence)
    if files == 1:
        return f"Each audit has confidence {canaries}, so that all of them hold jointly with {all_}:"
    return (
        f"Give each command that compares source and holdout for each of the {files} files. It has confidence "
        f"{format_confidence(_each_file(planned))} for one of them, and the audit by canaries {canaries} for all, so "
        f"that all of them hold jointly with {all_}:"
    )


def layout_in_words(planned: PlannedCanaries, folder: str) -> list[str]:
    """What was split and what to run, in sentences and commands; empty without a layout."""
    layout = planned.plan.layout
    if layout is None:
        return []
    lines = [
        f"The generator reads {folder}/{planned.input}: the data without the holdout, the planted canaries, shuffled."
    ]
    if layout.repeated:
        lines.append(
            f"{layout.repeated} of {layout.records} records repeat the content of another. They stay in the input "
            "without a coin, on neither side, since one coin could not decide on each. If they are of one user, name "
            "the users with --user and --unit user; if they are mistakes, drop them from the data and plan again."
        )
    several = f", each of {planned.design.scorings} files; `bound` comes once, after all are scored"
    written = f"SYNTHETIC is what it writes{'' if planned.design.scorings == 1 else several}."
    lines.append(f"{written} {confidences_in_words(planned)}")
    return [*lines, *(f"  {command}" for command in commands(planned, folder))]
