"""Task files: every key's rule, every default, and all that is refused."""

import json
import time
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from fairlead.base.errors import UsageError
from fairlead.config.schema import Agent, Config, Project
from fairlead.queue.task import Spec
from fairlead.queue.taskfile import (
    KEYS,
    MAX_ARGUMENT,
    MAX_PROBLEMS,
    MAX_SOURCE,
    MAX_TITLE,
    Parsed,
    TaskFileError,
    parse_task,
    runs_prompt,
)

NOW = 1_800_000_000_000
CONFIG = Config(
    agents={
        "shell": Agent(command=("/bin/sh", "-c", "{prompt}")),
        "claude": Agent(command=("claude", "-p"), stdin="prompt"),
        "reader": Agent(command=("read-it", "{prompt_file}")),
        "worker": Agent(command=("work", "--on={task_file}")),
        "braces": Agent(command=("echo", "{{prompt}}", "{{task_file}}")),
        "flag": Agent(command=("ask", "--text={prompt}")),
    },
    projects={
        "site": Project(path="/srv/site", owner="wanda", agent="claude", priority="high", timeout=60.0),
        "plain": Project(path="/srv/plain"),
        "stale": Project(path="/srv/stale", agent="gone"),
    },
)


def parse(text: str, name: str = "t.yaml", config: Config = CONFIG, owner: str = "olga") -> Parsed:
    return parse_task(text.encode(), name, owner, config, NOW)


def spec_of(text: str, name: str = "t.yaml", config: Config = CONFIG) -> Spec:
    return parse(text, name, config).spec


def with_prompt(**keys: Any) -> Spec:  # noqa: ANN401 - any value of any key
    return spec_of(json.dumps({"prompt": "go", **keys}), "t.json")


def problems(text: str, name: str = "t.yaml", config: Config = CONFIG) -> tuple[str, ...]:
    with pytest.raises(TaskFileError) as caught:
        parse(text, name, config)
    return caught.value.problems


def refusal(**keys: Any) -> str:  # noqa: ANN401 - any value of any key
    """The one problem of a file that has these keys and is otherwise fine."""
    (problem,) = problems(json.dumps({"prompt": "go", **keys}), "t.json")
    return problem


# --- Formats ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", "prompt: go"),
        ("t.yml", "prompt: go"),
        ("T.YAML", "prompt: go"),
        ("t.json", '{"prompt": "go"}'),
        ("t.md", "---\nagent: shell\n---\ngo\n"),
        ("t.x.markdown", "---\nproject: site\n---\ngo\n"),
    ],
)
def test_the_ending_decides_how_a_file_is_read(name: str, text: str) -> None:
    """YAML, JSON and Markdown are told apart by the end of the name."""
    spec = spec_of(text, name)
    assert spec.prompt == "go"
    assert spec.source == name


@pytest.mark.parametrize("name", ["t.txt", "t", ".yaml", "yaml", "t.yaml.bak", ""])
def test_another_ending_is_refused_with_the_allowed_ones(name: str) -> None:
    """A name with another ending is refused, and the message names those that work."""
    assert problems("prompt: go", name) == ("the name must end in .yaml, .yml, .json, .md, .markdown; rename the file",)


def test_a_file_that_cannot_be_read_is_refused_in_the_same_form() -> None:
    """An error of the format comes as a task file's error, with name and place."""
    with pytest.raises(TaskFileError) as caught:
        parse("prompt: a: b\n", "bad.yaml")
    assert str(caught.value).startswith("bad.yaml: 1 problem\n  line 1, column 10: not valid YAML")
    assert isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 2


def test_a_name_that_a_terminal_would_obey_is_spelled_out() -> None:
    """Control characters and broken characters in a file's name are made visible."""
    name = "a\x1b[2J\n\udcff.yaml"
    assert spec_of("prompt: go", name).source == "a\\x1b[2J\\n\\udcff.yaml"
    with pytest.raises(TaskFileError) as caught:
        parse("", name)
    assert str(caught.value).startswith("a\\x1b[2J\\n\\udcff.yaml: 1 problem\n")


# --- The report ---


def test_all_problems_are_reported_together_in_the_order_of_the_file() -> None:
    """One look at the report is enough to mend the whole file."""
    text = """\
timeout: soon
prompt: go
priority: hgih
colour: red
env:
  A: b
  FAIRLEAD_X: c
  1x: d
artifacts:
- ok.txt
- /etc
"""
    with pytest.raises(TaskFileError) as caught:
        parse(text, "many.yaml")
    assert str(caught.value).splitlines() == [
        "many.yaml: 6 problems",
        "  line 1: timeout: 'soon' is not a duration: write seconds, or a text like 90s, 15m, 1h30m, 2d",
        "  line 3: priority: 'hgih' is not a priority (did you mean 'high'?)",
        f"  line 4: colour: there is no such key; the keys are {', '.join(KEYS)}",
        "  line 7: env.FAIRLEAD_X: names that start with FAIRLEAD_ are Fairlead's own; choose another",
        "  line 8: env.1x: is no name for a variable; use letters, digits and '_', no digit first",
        "  line 11: artifacts[1]: '/etc' is not below the working directory; use no leading / and no '..'",
    ]


@pytest.mark.parametrize("where", ["keys", "env"])
def test_a_flood_of_problems_is_counted_not_listed(where: str) -> None:
    """Thousands of wrong keys make a short report, and soon."""
    wrong = {f"promt-{number}": 1 for number in range(50_000)}
    began = time.process_time()
    with pytest.raises(TaskFileError) as caught:
        parse(json.dumps({"prompt": "go"} | (wrong if where == "keys" else {"env": wrong})), "t.json")
    assert time.process_time() - began < 3.0
    assert len(caught.value.problems) == MAX_PROBLEMS
    assert str(caught.value).startswith("t.json: 50000 problems\n")
    assert str(caught.value).endswith(f"\n  and {50_000 - MAX_PROBLEMS} more")


def test_a_problem_is_one_short_line_whatever_the_file_holds() -> None:
    """Neither escape sequences nor endless values get into the report."""
    keys = {
        "a\n\x1b]0;x" + "y" * 500: 1,
        "priority": "\x1b[2J" * 500,
        "timeout": "9" * 5000,
        "user": "u" * 5000,
    }
    for problem in problems(json.dumps({"prompt": "go", **keys}), "t.json"):
        assert problem.isprintable()
        assert len(problem) < 500


def test_an_unknown_key_is_refused_with_the_near_miss() -> None:
    """A misspelt key is an error, not silently ignored."""
    assert refusal(Promt="x") == "line 1: Promt: there is no such key (did you mean 'prompt'?)"


@pytest.mark.parametrize("key", [key for key in KEYS if key != "prompt"])
def test_a_key_without_a_value_counts_as_absent(key: str) -> None:
    """Whoever leaves a key of a template empty gets its default."""
    assert spec_of(f"prompt: go\n{key}:\n") == spec_of("prompt: go\n")


@pytest.mark.parametrize("key", ["title", "prompt", "agent", "action", "type", "project", "user", "run_at", "source"])
def test_text_must_be_text(key: str) -> None:
    """A number where text is meant is refused: 1.10 and 1.1 would be the same."""
    assert refusal(**{key: 1.10}) == f"line 1: {key}: must be text, not 1.1; put it in quotes"


# --- What there is to do ---


@pytest.mark.parametrize(
    "text",
    [
        "title: nothing\n",
        'prompt: ""\n',
        'prompt: " \\n"\n',
        "payload: {a: 1}\n",
        "payload: {a: 1}\nagent: shell\n",
        "payload: {a: 1}\nagent: braces\n",
        "payload: {}\nagent: worker\n",
        "agent: worker\n",
    ],
)
def test_a_task_needs_something_to_do(text: str) -> None:
    """Without prompt and command, and a payload that reaches its agent, there is nothing to run."""
    (problem,) = problems(text)
    assert "prompt: give a prompt or a command (or a payload and an agent" in problem


@pytest.mark.parametrize(("key", "meant"), [("promt", "prompt"), ("comand", "command")])
def test_a_misspelt_prompt_is_not_also_missing(key: str, meant: str) -> None:
    """One mistake is told once."""
    assert problems(f"{key}: echo hi") == (f"line 1: {key}: there is no such key (did you mean '{meant}'?)",)


def test_prose_is_no_script() -> None:
    """Markdown goes to a shell only if its front matter says so; a command runs anyway, and agents get their text."""
    (problem,) = problems("Mend the login test.\n", "t.md")
    assert problem.startswith("line 1: prompt: agent 'shell' would run this text as a shell script; name an agent")
    assert spec_of("---\nagent: shell\n---\necho hi\n", "t.md").agent == "shell"
    assert spec_of("---\nagent: claude\n---\nMend it.\n", "t.md").agent == "claude"
    assert spec_of("---\ncommand: make test\n---\nWhat it is for.\n", "t.md").command[-1] == "make test"


@pytest.mark.parametrize(
    ("words", "stdin", "is_script"),
    [
        (("bash", "-c", "{prompt}"), "none", True),
        (("/usr/bin/zsh", "-lc", "cd x; {prompt}"), "none", True),
        (("sh", "-eu", "{prompt_file}"), "none", True),
        (("dash",), "prompt", True),
        (("bash", "-c", 'claude -p "$0"', "{prompt}"), "none", False),
        (("bash", "wrapper.sh", "{prompt}"), "prompt", False),
        (("bash", "-c"), "none", False),
        (("bash", "--norc"), "none", False),
        (("claude", "-p", "{prompt}"), "none", False),
    ],
)
def test_a_script_is_what_a_shell_would_run(
    words: tuple[str, ...], stdin: Literal["none", "prompt"], *, is_script: bool
) -> None:
    """Any shell, however it gets the text; a prompt that is an argument of somebody's own script is not run."""
    assert runs_prompt(Agent(command=words, stdin=stdin)) is is_script


def test_a_payload_is_enough_for_an_agent_that_reads_the_task_file() -> None:
    """An agent that is given the task file finds the payload there."""
    spec = spec_of("agent: worker\npayload: {site: x, pages: [1, 2.5, null, true]}\n")
    assert spec.payload == {"site": "x", "pages": [1, 2.5, None, True]}
    assert spec.title == "worker"


def test_a_payload_alone_does_not_do_for_a_default_agent() -> None:
    """The agent must be named: who names none may not know that the default one reads task files."""
    config = Config(agents=CONFIG.agents, default_agent="worker")
    assert "give a prompt" in problems("payload: {a: 1}\n", config=config)[0]


@pytest.mark.parametrize("value", [5, [], "text", True])
def test_a_payload_is_a_mapping(value: object) -> None:
    """A payload has names for its values."""
    assert refusal(payload=value) == "line 1: payload: must be a mapping of keys to values"


def test_a_wrong_prompt_is_not_also_a_missing_one() -> None:
    """One mistake is one problem."""
    assert len(problems("prompt: 5\n")) == 1
    assert len(problems("command: []\n")) == 1


def test_a_prompt_is_kept_to_the_letter() -> None:
    """Nothing is stripped or changed in a prompt."""
    assert with_prompt(prompt="  a\r\n\tb\x1b \n").prompt == "  a\r\n\tb\x1b \n"


@pytest.mark.parametrize("text", ['prompt: "a\\0"', 'command: "a\\0"', 'prompt: a\nenv: {A: "\\0"}', "prompt: \0"])
def test_nul_is_refused_everywhere(text: str) -> None:
    """A NUL would end an argument or a variable early."""
    assert "NUL" in problems(text)[0]


# --- Command ---


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (["make", "all"], ("make", "all")),
        (["sleep", 5], ("sleep", "5")),
        (["printf", ""], ("printf", "")),
        ("make all && echo done", ("/bin/sh", "-c", "make all && echo done")),
    ],
)
def test_a_command_is_a_list_or_a_line_for_the_shell(value: object, command: tuple[str, ...]) -> None:
    """A list runs as it is, one text goes through the shell."""
    assert spec_of(json.dumps({"command": value}), "t.json").command == command


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "command: must be a list of program and arguments"),
        ({"a": 1}, "command: must be a list of program and arguments"),
        (5, "command: must be a list of program and arguments"),
        (["a", 1.5], "command[1]: must be text, not 1.5"),
        (["a", True], "command[1]: must be text, not True"),
        (["a", None], "command[1]: must be text, not None"),
        (["", "x"], "command: names no program to run"),
        (" ", "command: names no program to run"),
        (
            ["a", "x" * (MAX_ARGUMENT + 1)],
            f"command[1]: has {MAX_ARGUMENT + 1} bytes, and Linux passes at most",
        ),
        ("x" * (MAX_ARGUMENT + 1), f"has {MAX_ARGUMENT + 1} bytes"),
    ],
)
def test_a_wrong_command_is_refused(value: object, message: str) -> None:
    """Each way to get a command wrong has its message."""
    assert message in refusal(command=value)


def test_the_longest_argument_is_let_through() -> None:
    """The limit itself is allowed."""
    assert len(with_prompt(command=["echo", "x" * MAX_ARGUMENT]).command[1]) == MAX_ARGUMENT


# --- Prompts that are arguments ---


@pytest.mark.parametrize(("agent", "room"), [("shell", MAX_ARGUMENT), ("flag", MAX_ARGUMENT - len("--text="))])
def test_a_prompt_must_fit_the_argument_it_becomes(agent: str, room: int) -> None:
    """Linux limits one argument; the limit counts bytes and what stands around the prompt."""
    assert with_prompt(agent=agent, prompt="x" * room)
    assert with_prompt(agent=agent, prompt="é" * (room // 2))
    assert refusal(agent=agent, prompt="é" * (room // 2 + 1)).endswith(
        f"bytes, and agent '{agent}' passes it as an argument, where Linux takes at most {MAX_ARGUMENT}; "
        "use an agent with {prompt_file} or `stdin: prompt`"
    )


@pytest.mark.parametrize("agent", ["claude", "reader", "braces"])
def test_a_prompt_that_is_no_argument_may_be_long(agent: str) -> None:
    """Standard input and files have no such limit."""
    assert with_prompt(agent=agent, prompt="x" * (MAX_ARGUMENT + 1))


def test_a_command_of_its_own_frees_the_prompt_from_the_limit() -> None:
    """The agent's template does not run then, so the prompt is no argument."""
    assert with_prompt(command=["cat"], prompt="x" * (MAX_ARGUMENT + 1))


# --- Who, where, with what ---


def test_defaults_come_from_the_configuration() -> None:
    """A file with nothing but a prompt gets agent, project and user of the instance."""
    assert spec_of("prompt: go") == Spec(
        user="olga",
        project="default",
        agent="shell",
        action="shell",
        priority=2,
        title="go",
        prompt="go",
        source="t.yaml",
        submitter="olga",
    )


def test_defaults_come_from_the_project() -> None:
    """A project's owner, agent and priority hold for tasks that name none; its time limit stays its own."""
    spec = spec_of("prompt: go\nproject: site")
    assert (spec.user, spec.agent, spec.action, spec.priority) == ("wanda", "claude", "claude", 1)
    assert spec.timeout is None


def test_a_file_overrides_its_project() -> None:
    """What the file says goes before what the project says."""
    spec = spec_of("prompt: go\nproject: site\nuser: carl\nagent: reader\npriority: low\naction: review")
    assert (spec.user, spec.agent, spec.action, spec.priority) == ("carl", "reader", "review", 3)


def test_the_default_user_goes_before_the_owner() -> None:
    """An instance's default user goes before the file's owner, and after the project's."""
    config = Config(agents=CONFIG.agents, projects=CONFIG.projects, default_user="dora")
    assert spec_of("prompt: go", config=config).user == "dora"
    assert spec_of("prompt: go\nproject: site", config=config).user == "wanda"


def test_an_owner_with_an_unusable_name_is_refused() -> None:
    """A user's name becomes part of paths: a strange one is refused even if it comes from the system."""
    with pytest.raises(TaskFileError) as caught:
        parse("prompt: go", owner="no/good")
    assert caught.value.problems[0].startswith("user: 'no/good' cannot be a user")


@pytest.mark.parametrize("key", ["agent", "project", "user", "action", "type"])
@pytest.mark.parametrize("name", ["../etc", ".x", "-x", "a b", "a/b", "", "x" * 65, "é"])
def test_names_are_names(key: str, name: str) -> None:
    """Whatever may become part of a path has letters, digits and little else."""
    assert f"line 1: {key}: " in refusal(**{key: name})
    assert "use 1 to 64 letters, digits" in refusal(**{key: name})


def test_the_norwegian_user_is_text() -> None:
    """`user: no` names the user no."""
    assert spec_of("prompt: go\nuser: no").user == "no"


def test_an_unknown_agent_is_refused_with_the_known_ones() -> None:
    """The message lists what could have been meant."""
    assert refusal(agent="cluade") == (
        "line 1: agent: there is no agent 'cluade' (did you mean 'claude'?); "
        "known: braces, claude, flag, reader, shell, worker"
    )


def test_an_unknown_agent_of_a_project_is_refused() -> None:
    """A project's agent that is not configured is reported though the file does not name it."""
    assert problems("prompt: go\nproject: stale")[0].startswith("agent: there is no agent 'gone'; known: ")


def test_without_any_agent_the_configuration_is_pointed_at() -> None:
    """An instance without agents says where to add one."""
    (problem,) = problems("prompt: go", config=Config())
    assert problem == "agent: there is no agent 'shell'; known: none; add one under `agents` in the configuration"


def test_an_unknown_project_is_refused_with_the_known_ones() -> None:
    """The message lists the projects, the default one among them."""
    assert refusal(project="sites") == (
        "line 1: project: there is no project 'sites' (did you mean 'site'?); known: default, plain, site, stale"
        "; add it under `projects` in config.yaml"
    )


def test_the_default_project_needs_no_entry() -> None:
    """The default project may be absent from the configuration, named or not."""
    assert with_prompt(project="default").project == "default"
    config = Config(agents=CONFIG.agents, default_project="home")
    assert spec_of("prompt: go", config=config).project == "home"
    assert "there is no project 'default'" in problems("prompt: go\nproject: default", config=config)[0]


def test_type_is_another_word_for_action() -> None:
    """`type` is understood; both at once are not."""
    assert with_prompt(type="review").action == "review"
    assert with_prompt(type=None, action="review").action == "review"
    assert refusal(type="a", action="b") == "line 1: type: means the same as `action`; keep one of them"


# --- Priority ---


@pytest.mark.parametrize(
    ("value", "rank"),
    [
        ("critical", 0),
        ("high", 1),
        ("medium", 2),
        ("normal", 2),
        ("low", 3),
        *zip(range(11), (0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3), strict=True),
    ],
)
def test_priorities_have_names_and_numbers(value: object, rank: int) -> None:
    """The four names, `normal`, and the numbers 0 to 10 are understood."""
    assert with_prompt(priority=value).priority == rank


@pytest.mark.parametrize("value", ["urgent!", "", 11, -1, 1.0, True, "3", []])
def test_other_priorities_are_refused(value: object) -> None:
    """Anything else is refused with what may be written."""
    assert refusal(priority=value).endswith("is not a priority: write critical, high, medium, low, normal, or 0 to 10")


def test_a_misspelt_priority_is_recognised() -> None:
    """Wrong case and swapped letters are pointed out."""
    assert refusal(priority="HIGH") == "line 1: priority: 'HIGH' is not a priority (did you mean 'high'?)"


# --- Times ---


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host's zone is Berlin's."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2030-01-31T22:00:00+01:00", 1_896_123_600_000),
        ("2030-01-31T21:00Z", 1_896_123_600_000),
        ("20300131T210000.5Z", 1_896_123_600_500),
        ("2999-12-31T23:59:59.999+00:00", 32_503_679_999_999),
        ("+2h", NOW + 7_200_000),
        ("+ 1h30m", NOW + 5_400_000),
        ("+0", NOW),
        ("+0.25s", NOW + 250),
    ],
)
def test_run_at_is_a_moment_or_an_offset(text: str, ms: int) -> None:
    """ISO 8601 with a zone, or a plus and a duration from now, and nothing needs a remark."""
    assert parse(f"prompt: go\nrun_at: '{text}'") == Parsed(
        spec_of(f"prompt: go\nrun_at: '{text}'"),
    )
    assert with_prompt(run_at=text).run_at == ms


@pytest.mark.parametrize(
    ("text", "ms", "read_as"),
    [
        ("2030-01-31T22:00:00", 1_896_123_600_000, "2030-01-31T22:00:00+01:00"),
        ("2030-07-31 22:00", 1_911_758_400_000, "2030-07-31T22:00:00+02:00"),
        ("2030-01-31", 1_896_044_400_000, "2030-01-31T00:00:00+01:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_a_time_without_zone_is_the_hosts_and_said_so(text: str, ms: int, read_as: str) -> None:
    """A naive time is read in the host's zone, summer time included, and a note tells it."""
    parsed = parse(f"prompt: go\nrun_at: {text}")
    assert parsed.spec.run_at == ms
    assert parsed.notes == (f"run_at: '{text}' names no time zone; this host's is meant: {read_as}",)


def test_a_note_is_safe_to_print() -> None:
    """Readers of ISO 8601 take any character between date and time; a note makes it visible."""
    (note,) = parse(json.dumps({"prompt": "go", "run_at": "2030-01-31\x1b22:00"}), "t.json").notes
    assert note.isprintable()


@pytest.mark.parametrize("text", ["tomorrow", "", "12:30", "2030-13-01T00:00Z", "2030-01-31T25:00Z", "x" * 5000])
def test_other_times_are_refused(text: str) -> None:
    """What is not a time is refused with an example of one."""
    assert refusal(run_at=text).endswith(
        "is not a time: write ISO 8601 like 2030-01-31T22:00:00+01:00, or +2h from now"
    )


@pytest.mark.parametrize("text", ["+", "+soon", "+-1h", "++1h", "+" + "9" * 5000])
def test_other_offsets_are_refused(text: str) -> None:
    """An offset is a duration, forward."""
    assert "is not a duration" in refusal(run_at=text)


@pytest.mark.parametrize(
    "text",
    [
        *("0001-01-01", "9999-12-31", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"),
        *(
            "1969-12-31T23:59:59.999Z",
            "3000-01-01T00:00Z",
            "1970-01-01T00:00+14:00",
            "2999-12-31T23:59-01:00",
        ),
    ],
)
def test_times_out_of_range_are_refused(text: str) -> None:
    """Years in which no zone can be computed are a mistake anyway."""
    assert refusal(run_at=text).endswith("is out of range: write a time from 1970 to 2999")


@pytest.mark.parametrize("key", ["timeout", "grace"])
@pytest.mark.parametrize(
    ("value", "seconds"), [(90, 90.0), (0.5, 0.5), ("90", 90.0), ("1h30m", 5400.0), ("2d", 172800.0)]
)
def test_durations_are_seconds_or_text(key: str, value: object, seconds: float) -> None:
    """Time limits are written as seconds or with units."""
    assert getattr(with_prompt(**{key: value}), key) == seconds


@pytest.mark.parametrize("key", ["timeout", "grace"])
@pytest.mark.parametrize("value", ["soon", "", "-1", -1, True, [], {}, "1y", 1e300, "1" * 5000])
def test_other_durations_are_refused(key: str, value: object) -> None:
    """What is not a duration is refused."""
    assert "is not a duration" in refusal(**{key: value})


def test_a_timeout_is_more_than_nothing() -> None:
    """A run that ends before it begins is a mistake; stopping without grace is not."""
    assert refusal(timeout=0) == "line 1: timeout: must be more than 0; leave it out for the configured limit"
    assert with_prompt(grace=0).grace == 0.0


# --- The rest ---


def test_idempotent_is_a_boolean() -> None:
    """True and false are understood."""
    assert with_prompt(idempotent=True).idempotent
    assert not with_prompt(idempotent=False).idempotent


@pytest.mark.parametrize("value", ["yes", "true", 1, 0, []])
def test_other_truths_are_refused(value: object) -> None:
    """Whether a task may run twice is not guessed."""
    assert refusal(idempotent=value).endswith("is neither true nor false: write true or false, without quotes")


def test_env_is_text_by_name() -> None:
    """Variables are text; whole numbers are taken as they are written."""
    env = spec_of('prompt: go\nenv: {A: b, _c1: "", PORT: 8080, FAIRLEAD: "x=y"}').env
    assert env == {"A": "b", "_c1": "", "PORT": "8080", "FAIRLEAD": "x=y"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "env: must be a mapping"),
        ({"1A": "x"}, "env.1A: is no name for a variable"),
        ({"A-B": "x"}, "env.A-B: is no name for a variable"),
        ({"A=B": "x"}, "env.A=B: is no name for a variable"),
        ({"": "x"}, "env.: is no name for a variable"),
        ({"é": "x"}, "env.é: is no name for a variable"),
        ({"A\n": "x"}, "env.A\\n: is no name for a variable"),
        ({"FAIRLEAD_TASK_ID": "x"}, "env.FAIRLEAD_TASK_ID: names that start with FAIRLEAD_"),
        ({"A": True}, "env.A: must be text, not True"),
        ({"A": 1.5}, "env.A: must be text, not 1.5"),
        ({"A": None}, "env.A: must be text, not None"),
        ({"A": "x" * (MAX_ARGUMENT - 1)}, f"env.A: has {MAX_ARGUMENT + 1} bytes"),
    ],
)
def test_a_wrong_variable_is_refused(value: object, message: str) -> None:
    """Each way to get a variable wrong has its message."""
    assert message in refusal(env=value)


def test_the_longest_variable_is_let_through() -> None:
    """The limit holds for name, equals sign and value together."""
    assert with_prompt(env={"A": "x" * (MAX_ARGUMENT - 2)})


def test_artifacts_are_patterns_below_the_working_directory() -> None:
    """Relative patterns are taken as they are."""
    patterns = ["out/*.txt", "**/report.html", "a..b", "./x", "..."]
    assert with_prompt(artifacts=patterns).artifacts == tuple(patterns)


@pytest.mark.parametrize("pattern", ["/etc/passwd", "..", "../x", "a/../../b", "a/..", ""])
def test_artifacts_elsewhere_are_refused(pattern: str) -> None:
    """A pattern that leads out of the working directory is refused."""
    assert refusal(artifacts=[pattern]).endswith("use no leading / and no '..'")


@pytest.mark.parametrize(
    ("value", "message"), [("out/*", "artifacts: must be a list"), ([1], "artifacts[0]: must be text")]
)
def test_artifacts_are_a_list_of_text(value: object, message: str) -> None:
    """One pattern is a list of one."""
    assert message in refusal(artifacts=value)


# --- Titles and sources ---


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ({"prompt": "\n  \n Fix it. \nNow."}, "Fix it."),
        ({"prompt": "## Fix it\n\ntext"}, "Fix it"),
        ({"prompt": "#!/bin/sh\nls"}, "#!/bin/sh"),
        ({"prompt": "# \nx"}, "#"),
        ({"prompt": "x" * 80}, "x" * 80),
        ({"prompt": "x" * 81}, "x" * 79 + "…"),
        ({"prompt": "a\u2028b"}, "a"),
        ({"command": ["make", "all"]}, "make all"),
        ({"command": "make all\nmake more"}, "make all"),
        ({"command": ["make"], "prompt": "Build it."}, "Build it."),
        ({"command": ["make"], "prompt": " \n"}, "make"),
        ({"agent": "worker", "payload": {"a": 1}, "action": "crawl"}, "crawl"),
    ],
)
def test_the_default_title_is_the_first_line_that_says_something(keys: dict[str, Any], title: str) -> None:
    """Lists of tasks are readable though nobody gave them titles."""
    spec = spec_of(json.dumps(keys), "t.json")
    assert spec.title == title
    assert with_prompt(title=spec.title).title == title


def test_a_title_is_taken_as_it_is() -> None:
    """A title of one line is kept, and an empty one means none."""
    assert with_prompt(title="x" * MAX_TITLE).title == "x" * MAX_TITLE
    assert with_prompt(title="").title == ""


@pytest.mark.parametrize(("key", "limit"), [("title", MAX_TITLE), ("source", MAX_SOURCE)])
def test_titles_and_sources_are_one_line_of_limited_length(key: str, limit: int) -> None:
    """Whatever is shown in lists has one line, and fits."""
    for text in ("a\nb", "a\n", "\n", "a\u2028b", "a\x85b"):
        assert refusal(**{key: text}) == f"line 1: {key}: must be one line; put the rest into the prompt"
    assert refusal(**{key: "x" * (limit + 1)}).endswith(f"has {limit + 1} characters; at most {limit} are allowed")


def test_a_source_may_be_given() -> None:
    """A file that was made from another one keeps that one's name."""
    assert with_prompt(source="first.md").source == "first.md"
    assert len(spec_of("prompt: go", "x" * 300 + ".yaml").source) == MAX_SOURCE
