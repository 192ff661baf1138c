"""Every setting there is, with its default and what it is for.

The classes are the reference: docs/configuration.md and `config show` are made from them. A field's
`Annotated` description says what it means; durations are seconds once loaded.

Three words in a type's `extra` are read when a file is loaded: `duration` marks seconds that may be written
as 15m, `size` bytes that may be written as 512M, and `noun` says in an error message what a text must look like.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

#: What an agent's command may name in braces, and what each stands for.
PLACEHOLDERS = {
    "prompt": "the prompt itself, as one argument",
    "prompt_file": "a file that holds the prompt",
    "task_file": "a file that holds the whole task as JSON",
    "project_path": "the working directory",
    "run_dir": "the directory of this run",
    "id": "the task's id",
    "user": "the user it runs for",
    "project": "the project's name",
    "result_file": "where the agent may leave its result as JSON",
}

_DURATION = {"duration": True}
# `(?!\n)$` because `$` alone would let a line end through.
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?!\n)$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$"

#: Bytes, which may be written as 512M.
Size = Annotated[int, Meta(ge=1, extra={"size": True})]
#: The same, where 0 means none.
SizeOrNone = Annotated[int, Meta(ge=0, extra={"size": True})]
Seconds = Annotated[float, Meta(ge=0, extra=_DURATION)]
Period = Annotated[float, Meta(gt=0, extra=_DURATION)]
#: Bounded, because infinity would swallow every other weight.
Positive = Annotated[float, Meta(gt=0, le=1_000_000)]
Count = Annotated[int, Meta(ge=1)]
Weight = Annotated[int, Meta(ge=1, le=10_000)]
#: Less would hold hardly a line.
Bytes = Annotated[int, Meta(ge=4096)]
Name = Annotated[
    str,
    Meta(pattern=_NAME, extra={"noun": "name (1 to 64 letters, digits, _ . -, not starting with . or -)"}),
]
#: A user, or all members of a group.
Principal = Annotated[
    str,
    Meta(
        pattern=r"^(group:)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?!\n)$",
        extra={"noun": "user, or group:NAME"},
    ),
]
Variable = Annotated[str, Meta(pattern=_VARIABLE, extra={"noun": "variable name (letters, digits, _)"})]
#: No program can be given a NUL, neither as argument nor in its environment.
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$", extra={"noun": "text"})]
Priority = Literal["critical", "high", "medium", "low"]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the configuration."""


class Slots(Section, frozen=True):
    """How many agents run at once."""

    max: Annotated[Count, Meta(description="Agents that may run at the same time, over all users.")] = 4


class PerUserSerialization(Section, frozen=True):
    """One task per user at a time."""

    enabled: Annotated[bool, Meta(description="Off allows parallel runs of one user; for debugging only.")] = True
    lock_timeout_seconds: Annotated[
        Period,
        Meta(
            description="The lease: a run without a heartbeat for this long is ended, then its lock freed."
            " At least four heartbeats."
        ),
    ] = 3600.0


class FairShare(Section, frozen=True):
    """Who is next."""

    half_life: Annotated[Seconds, Meta(description="After this long, used time counts half. 0 never forgets.")] = (
        14400.0
    )
    charge: Annotated[
        Literal["time", "cost"],
        Meta(description="Charge the time a run held its lock, or the `cost` that the agent's result reports."),
    ] = "time"
    ageing: Annotated[
        Period,
        Meta(description="Waiting this long is worth one step of priority, so that low never starves."),
    ] = 3600.0
    weights: Annotated[
        dict[Name, Positive], Meta(description="A user's weight; 2 gets twice the time of 1. Absent means 1.")
    ] = field(default_factory=dict)
    project_weights: Annotated[
        dict[Name, Positive],
        Meta(description="A project's weight among the projects of one user. Absent means 1."),
    ] = field(default_factory=dict)


class Sandbox(Section, frozen=True):
    """What a run may use and reach, where agents run in units of systemd; what is absent is not limited."""

    memory_max: Annotated[Size | None, Meta(description="Memory of the whole run; more ends it: out of memory.")] = None
    memory_high: Annotated[Size | None, Meta(description="Memory from which on the run is slowed down.")] = None
    cpu_quota: Annotated[Positive | None, Meta(description="Processors at the most; 1.5 is one and a half.")] = None
    cpu_weight: Annotated[Weight | None, Meta(description="Share of a busy processor; 100 is the usual one.")] = None
    io_weight: Annotated[Weight | None, Meta(description="Share of a busy disk; 100 is the usual one.")] = None
    tasks_max: Annotated[Count | None, Meta(description="Processes and threads of the whole run.")] = None
    protect_system: Annotated[
        Literal["no", "yes", "full", "strict"] | None,
        Meta(
            description="Read-only for the run: /usr (yes), /etc as well (full), or all but its project, its drop-off"
            " and read_write_paths (strict)."
        ),
    ] = None
    protect_home: Annotated[
        Literal["no", "yes", "read-only", "tmpfs"] | None,
        Meta(description="Whether homes can be seen; a project in one stays within reach."),
    ] = None
    read_write_paths: Annotated[
        tuple[Text, ...], Meta(description="Paths that stay writable beside the project where the system is protected.")
    ] = ()
    private_tmp: Annotated[bool | None, Meta(description="A /tmp and /var/tmp of the run's own.")] = None
    no_new_privileges: Annotated[bool | None, Meta(description="Programs like sudo give no rights.")] = None
    network: Annotated[bool | None, Meta(description="Off: nothing but the loopback interface.")] = None


class Agent(Section, frozen=True):
    """A named command template."""

    command: Annotated[
        tuple[Text, ...],
        Meta(
            min_length=1,
            description="Program and arguments, with placeholders; {{ and }} are literal braces.",
        ),
    ]
    stdin: Annotated[Literal["none", "prompt"], Meta(description="What the agent reads: nothing, or the prompt.")] = (
        "none"
    )
    env: Annotated[dict[Variable, Text], Meta(description="Environment variables for this agent.")] = field(
        default_factory=dict
    )
    timeout: Annotated[Seconds | None, Meta(description="Overrides limits.timeout for this agent; 0: no limit.")] = None
    stop_signal: Annotated[
        Literal["TERM", "INT", "HUP", "QUIT"], Meta(description="The signal that asks this agent to stop.")
    ] = "TERM"
    sandbox: Sandbox = Sandbox()


class Project(Section, frozen=True):
    """A tree that agents work in."""

    path: Annotated[
        Text, Meta(description="The working directory; ~ is the home of the Unix user that runs the daemon.")
    ]
    owner: Annotated[
        Name | None,
        Meta(description="The user that tasks of this project belong to unless they say otherwise."),
    ] = None
    members: Annotated[
        tuple[Principal, ...] | None,
        Meta(
            description="In the system's instance: users, or group:NAME, who may use this project and see all of its"
            " tasks. Absent: everybody may use it, and sees his own tasks."
        ),
    ] = None
    agent: Annotated[Name | None, Meta(description="The agent for tasks that name none.")] = None
    priority: Annotated[Priority | None, Meta(description="The priority for tasks that name none.")] = None
    timeout: Annotated[
        Seconds | None, Meta(description="Overrides limits.timeout and the agent's for this project; 0: no limit.")
    ] = None
    env: Annotated[dict[Variable, Text], Meta(description="Environment variables for runs in this project.")] = field(
        default_factory=dict
    )
    sandbox: Sandbox = Sandbox()


class Limits(Section, frozen=True):
    """What one task, one file and one user may use."""

    timeout: Annotated[
        Period, Meta(description="A run is ended after this long unless its task, project or agent says otherwise.")
    ] = 14400.0
    grace: Annotated[Seconds, Meta(description="Between asking a run to stop and ending all of it.")] = 10.0
    output_bytes: Annotated[
        Bytes,
        Meta(description="Kept of stdout and of stderr each: the first and the last half of this."),
    ] = 10 << 20
    result_bytes: Annotated[Count, Meta(description="The largest result.json that is taken over.")] = 1 << 20
    task_file_bytes: Annotated[Count, Meta(description="The largest task file that is accepted.")] = 1 << 20
    spool_files: Annotated[
        Count, Meta(description="In the system's instance: files in a user's spool; beyond that he is told to wait.")
    ] = 10_000
    spool_bytes: Annotated[
        Size, Meta(description="In the system's instance: bytes in a user's spool; beyond that he is told to wait.")
    ] = 1 << 30
    run_bytes: Annotated[
        Size,
        Meta(description="What the ended runs of one user may hold on the disk; the oldest beyond that are removed."),
    ] = 10 << 30
    disk_reserve: Annotated[
        SizeOrNone,
        Meta(
            description="Nothing new is taken in or started while less than this is free on the instance's disk, so"
            " that what runs can end; of a small disk a tenth at the most. 0 keeps nothing back."
        ),
    ] = 256 << 20
    inode_reserve: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="The same for files that can still be made there.")
    ] = 5000
    artifacts: Annotated[Count, Meta(description="How many artifact paths are recorded for one run.")] = 1000
    pending_warn: Annotated[Count, Meta(description="Waiting tasks of one user from which on a warning is given.")] = (
        1000
    )
    pending_max: Annotated[Count, Meta(description="Waiting tasks of one user; more are refused.")] = 1_000_000
    start_attempts: Annotated[Count, Meta(description="A run that could not be started is tried this often.")] = 3
    reruns: Annotated[
        Annotated[int, Meta(ge=0)],
        Meta(description="A lost task that says `idempotent` is run again this often in a row, without asking."),
    ] = 3


class Intervals(Section, frozen=True):
    """How often to look when nothing rings."""

    poll: Annotated[Period, Meta(description="The daemon's safety net: look at spool and queue this often.")] = 5.0
    watch: Annotated[Period, Meta(description="The watchdog's safety net: look at every run this often.")] = 5.0
    heartbeat: Annotated[Period, Meta(description="A supervisor beats this often.")] = 5.0
    settle: Annotated[
        Seconds, Meta(description="Without inotify: a file in the spool must have been quiet for this long.")
    ] = 1.0
    start_grace: Annotated[
        Period, Meta(description="A claimed run that has not started after this long is taken back.")
    ] = 30.0


class Spool(Section, frozen=True):
    """How files are taken in."""

    inotify: Annotated[bool, Meta(description="Off: rely on polling alone (network file systems).")] = True
    batch: Annotated[Count, Meta(description="Files taken in with one commit.")] = 500


class Retention(Section, frozen=True):
    """What is kept, and for how long."""

    days: Annotated[Positive, Meta(description="Archive, logs and rejected files older than this are pruned.")] = 30.0


class Log(Section, frozen=True):
    """What is logged, and how much of it is kept."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least level that is logged.")
    ] = "info"
    file: Annotated[
        Literal["auto", "always"],
        Meta(
            description="Where standard error goes to systemd's journal, lines go there; `always` writes them to the"
            " file as well."
        ),
    ] = "auto"
    max_bytes: Annotated[
        Bytes, Meta(description="A log file of this size is set aside as fairlead.log.1, and a new one begun.")
    ] = 50 << 20
    keep: Annotated[Count, Meta(description="Log files that were set aside and are kept; older ones are removed.")] = 5


class Users(Section, frozen=True):
    """Who may use the system's instance. One's own instance knows users as labels, and does not look at this."""

    allow: Annotated[
        tuple[Principal, ...],
        Meta(description="Users, or group:NAME, who get a spool directory and may submit; agents never run as root."),
    ] = ("group:fairlead",)


class Config(Section, frozen=True):
    """All settings of one instance."""

    slots: Slots = Slots()
    per_user_serialization: PerUserSerialization = PerUserSerialization()
    fair_share: FairShare = FairShare()
    default_agent: Annotated[Name, Meta(description="The agent for tasks that name none.")] = "shell"
    default_project: Annotated[Name, Meta(description="The project of tasks that name none.")] = "default"
    default_user: Annotated[
        Name | None, Meta(description="The user of tasks that name none; absent: the file's owner.")
    ] = None
    operators: Annotated[
        tuple[Principal, ...],
        Meta(
            description="Users, or group:NAME, whose critical tasks go before everybody's. In the system's instance"
            " they may also pause, cancel and reorder anybody's tasks and release locks."
        ),
    ] = ()
    admins: Annotated[
        tuple[Principal, ...],
        Meta(description="In the system's instance: users, or group:NAME, who may do and see all. Root always may."),
    ] = ()
    users: Users = Users()
    launcher: Annotated[
        Literal["auto", "process", "systemd"],
        Meta(
            description="How agents are started: each in a unit of its own by systemd, or as child processes; auto"
            " takes systemd where it may."
        ),
    ] = "auto"
    agents: Annotated[dict[Name, Agent], Meta(description="Named command templates.")] = field(default_factory=dict)
    projects: Annotated[dict[Name, Project], Meta(description="Named trees.")] = field(default_factory=dict)
    environment: Annotated[
        tuple[Variable, ...],
        Meta(description="Variables of the daemon's own environment that agents inherit."),
    ] = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
    limits: Limits = Limits()
    sandbox: Sandbox = Sandbox()
    intervals: Intervals = Intervals()
    spool: Spool = Spool()
    retention: Retention = Retention()
    log: Log = Log()
