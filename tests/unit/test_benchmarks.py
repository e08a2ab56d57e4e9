"""The results of benchmarks in RESULTS.md."""

from __future__ import annotations

from benchmarks.__main__ import HEAD, figures_of, section, with_section


def test_a_benchmark_that_runs_again_replaces_its_own_section() -> None:
    fleet, again = (section(["benchmarks.fleet"], {"ratio": ratio}) for ratio in (1.1, 1.2))
    first = with_section(HEAD, "fleet", fleet)
    both = with_section(first, "capture", section(["benchmarks.capture"], {"rate": 5}))
    found = with_section(both, "fleet", again)
    assert found == both.replace(fleet.strip(), again.strip())
    assert found.startswith(HEAD.strip())
    assert with_section(found, "fleet", again) == found


def test_the_figures_are_the_last_document_of_the_output() -> None:
    lines = ["stack up\n", "{\n", '  "ratio": 1.1\n', "}\n", "stack stopped\n"]
    assert figures_of(lines) == {"ratio": 1.1}
    assert figures_of(["stack up\n", "AssertionError\n"]) is None


def test_a_section_has_the_command_as_a_shell_takes_it() -> None:
    found = section(["benchmarks.capture", "--sides", "as shipped"], {})
    assert found.startswith("`python -m benchmarks.capture --sides 'as shipped'` on ")
