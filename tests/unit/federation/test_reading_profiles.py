"""Reading a profile: what is accepted, and every fault with its line, its column and the fix."""

import pytest

from federation.profile import ProfileDocument
from federation.profile_yaml import read_profile
from providers.errors import ProfileInvalid

HEAD = "system: delta\nname: Delta\narchitecture: x86_64\n"  # lines 1 to 3
TAIL = "partitions:\n  gpu: {}\n"


def _faults(text: str) -> list[tuple[str, str]]:
    """Return (JSON pointer, message with its place) of every fault."""
    with pytest.raises(ProfileInvalid) as caught:
        read_profile(text, source="delta.yaml")
    return [(where, message) for where, _, message in caught.value.problems]


def _one(text: str) -> str:
    ((_, message),) = _faults(text)
    return message


def test_the_least_profile_is_a_name_an_architecture_and_a_partition() -> None:
    profile = read_profile(HEAD + TAIL)

    assert profile == ProfileDocument.model_validate(
        {"system": "delta", "name": "Delta", "architecture": "x86_64", "partitions": {"gpu": {}}}
    )


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ('"1:00:00"', 3_600),
        ("48:00:00", 172_800),
        ("2-00:00:00", 172_800),
        ("1-12:30:05", 131_405),
        ("1-12", 129_600),
        ("1-12:30", 131_400),
    ],
)
def test_wall_times_are_read_as_slurm_writes_them(written: str, seconds: int) -> None:
    profile = read_profile(f"{HEAD}partitions:\n  gpu: {{max_walltime_s: {written}}}\n")

    assert profile.partitions["gpu"].max_walltime_s == seconds


@pytest.mark.parametrize(
    "written", ["2h", "1:00", "-5:00:00", "1-24:00:00", "1:60:00", "1-2-3", "P1D", "1e3"]
)
def test_a_wall_time_in_another_spelling_is_told_the_right_one(written: str) -> None:
    message = _one(f"{HEAD}partitions:\n  gpu:\n    max_walltime_s: {written}\n")

    assert message.startswith("line 6, column 5: ")
    assert "HH:MM:SS" in message or "0 to 23" in message


@pytest.mark.parametrize(
    ("written", "mib"),
    [("1000", 1_000), ("256G", 262_144), ("256GiB", 262_144), ("256 GB", 262_144), ("2T", 2_097_152),
     ("1.5G", 1_536), ("512m", 512), ("2048K", 2), ("1000K", 0)],
)  # fmt: skip
def test_memory_is_read_with_its_unit_and_rounded_down(written: str, mib: int) -> None:
    profile = read_profile(f"{HEAD}node_types:\n  n: {{cpus: 1, memory_mib: {written}}}\n{TAIL}")

    assert profile.node_types["n"].memory_mib == mib


@pytest.mark.parametrize("written", ["10 apples", "-1G", "G", "1PB", "1,5G", "1e3G"])
def test_memory_in_another_unit_is_told_the_right_ones(written: str) -> None:
    message = _one(f'{HEAD}node_types:\n  n:\n    cpus: 1\n    memory_mib: "{written}"\n{TAIL}')

    assert message == (
        f"line 7, column 5: write a size such as 256G, 512GiB or 2T, or a number of MiB, not '{written}'"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_nodes: 0", "must be at least 1, not `0`"),
        ("max_nodes: 4.5", "write a whole number, such as 4, not `4.5`"),
        ("max_nodes: [1]", "write a whole number, such as 4, not a list"),
        ("max_gpus_per_job: -1", "must be at least 0, not `-1`"),
        ("exclusive: perhaps", "write true or false, not `perhaps`"),
        ("speed: fast", "write a number, such as 1.5, not `fast`"),
        ("speed: 0", "must be more than 0, not `0`"),
        ("speed: .inf", "write a number, such as 1.5, not `.inf`"),
        ("accounts: x-gpu", "write a list, such as [one, two], not `x-gpu`"),
        ("gpu_spelling: gre", "write gres, gpus-per-node or none, not `gre`. Did you mean `gres`?"),
        ("max_walltime: 5", "Unknown field `max_walltime`. Did you mean `max_walltime_s`?"),
        ("charge: {per_gpu: 1}", "`unit` is required."),
        ("charge: 1", "write a mapping of fields, one `name: value` a line, indented, not `1`"),
        ("scheduler_partition: a b", "write a name of letters, digits and `. _ + -`, not `a b`"),
    ],
)
def test_each_wrong_field_of_a_partition_says_what_to_write(line: str, message: str) -> None:
    assert _one(f"{HEAD}partitions:\n  gpu:\n    {line}\n") == f"line 6, column 5: {message}"


def test_an_endless_number_is_no_number() -> None:
    assert "write a number" in _one(f"{HEAD}partitions:\n  gpu: {{speed: Infinity}}\n")


def test_every_fault_is_told_in_the_order_of_the_text() -> None:
    found = _faults("system: Delta!\nname: ''\narchitecture: x86\npartitions:\n  gpu: {qoss: a}\n")

    assert found == [
        (
            "/system",
            (
                "line 1, column 1: write 2 to 40 lower-case letters, digits and dashes,"
                " beginning with a letter,"
                " not `Delta!`"
            ),
        ),
        ("/name", "line 2, column 1: must not be empty"),
        (
            "/architecture",
            "line 3, column 1: write x86_64, aarch64 or ppc64le, not `x86`. Did you mean `x86_64`?",
        ),
        ("/partitions/gpu/qoss", "line 5, column 9: Unknown field `qoss`. Did you mean `qos`?"),
    ]


def test_the_first_fault_leads_the_message_and_the_facts() -> None:
    with pytest.raises(ProfileInvalid) as caught:
        read_profile(HEAD, source="delta.yaml")

    assert caught.value.message == "delta.yaml has 1 fault; line 1, column 1: `partitions` is required."
    assert caught.value.facts == {"line": 1, "column": 1}


def test_names_that_do_not_agree_are_found_where_they_stand() -> None:
    text = (
        f"{HEAD}node_types:\n  gpua: {{cpus: 1, memory_mib: 1G}}\n"
        "partitions:\n  gpu:\n    nodes:\n      - {type: gpub, count: 2}\n"
        "policy:\n  blocked_partitions: [gpv]\n"
        "maintenance:\n"
        "  - start_at: 2027-01-01T00:00:00Z\n    end_at: 2027-01-02T00:00:00Z\n    partitions: [cpu]\n"
    )

    assert [message for _, message in _faults(text)] == [
        "line 9, column 10: unknown node type `gpub`. Did you mean `gpua`?",
        "line 11, column 24: unknown partition `gpv`. Did you mean `gpu`?",
        "line 15, column 18: unknown partition `cpu`. Did you mean `gpu`?",
    ]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gpus: 4", "line 5, column 3: a node with gpus must name its `gpu` type, such as a100"),
        ("gpu: a100", "line 5, column 35: names a GPU, but `gpus` (how many a node has) is 0"),
        (
            "gpus: 4, gpu: A100",
            (
                "line 5, column 44: write the canonical word a100;"
                " the scheduler's own spelling goes to gpu_spelling"
            ),
        ),
    ],
)
def test_a_gpu_is_named_counted_and_spelled(kind: str, message: str) -> None:
    assert _one(f"{HEAD}node_types:\n  gpua: {{cpus: 1, memory_mib: 1G, {kind}}}\n{TAIL}") == message


def test_a_gpu_nobody_has_heard_of_may_be_named() -> None:
    text = f"{HEAD}node_types:\n  n: {{cpus: 1, memory_mib: 1G, gpus: 1, gpu: zx9000}}\n{TAIL}"

    assert read_profile(text).node_types["n"].gpu == "zx9000"


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (
            "{start_at: 2027-01-01, end_at: 2027-01-02T00:00:00Z}",
            (
                "line 7, column 6: write an instant with its time zone, such as 2027-01-31T08:00:00Z,"
                " not `2027-01-01`"
            ),
        ),
        (
            "{start_at: 2027-01-02T00:00:00Z, end_at: 2027-01-01T00:00:00Z}",
            "line 7, column 5: end_at must be later than start_at",
        ),
    ],
)
def test_a_maintenance_window_has_two_instants_in_order(window: str, message: str) -> None:
    assert _one(f"{HEAD}{TAIL}maintenance:\n  - {window}\n") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: a profile is a mapping of fields, such as `system: delta` in its first line"),
        (
            "\n- a\n",
            "line 2, column 1: a profile is a mapping of fields, such as `system: delta` in its first line",
        ),
        (HEAD + "partitions:\n\tgpu: {}\n", "line 5, column 1: a tab stands here; indent with spaces"),
        (HEAD + "name: again\n", "line 4, column 1: the key 'name' stands here twice"),
        (HEAD + "x: &a 1\ny: *a\n", "line 5, column 4: aliases are not allowed"),
        (HEAD + "? [a]: b\n", "line 4, column 3: a key must be a plain word"),
        (
            HEAD + "a: b: c\n",
            (
                "line 4, column 5: mapping values are not allowed here; quote a text that holds `: `,"
                " and check the indentation"
            ),
        ),
        (HEAD + "a: [1\n", "line 5, column 1: expected ',' or ']', but got '<stream end>'"),
        ("system: de\x07lta", "line 1, column 11: the character U+0007 is not allowed in YAML"),
        ("a: 1\nb: \x00", "line 2, column 4: the character U+0000 is not allowed in YAML"),
        ("[" * 3_000, "line 1, column 1: it is nested too deeply"),
        ("a: " + "x" * 530_000, "line 1, column 1: it is longer than 512 KiB"),
    ],
    ids=lambda each: repr(each[:20]),
)
def test_what_is_not_yaml_or_not_a_profile_is_found_by_line_and_column(text: str, message: str) -> None:
    assert _one(text) == message


@pytest.mark.parametrize("tag", ["!!python/name:os.system", "!!binary aGk=", "!secret x"])
def test_no_tag_builds_an_object(tag: str) -> None:
    assert _one(f"{HEAD}x: {tag}\n{TAIL}").startswith("line 4, column ")


def test_comments_and_unicode_are_kept_apart_from_the_value() -> None:
    profile = read_profile("# a comment\n" + HEAD.replace("Delta", "Delta – Δ") + TAIL)

    assert profile.name == "Delta – Δ"
